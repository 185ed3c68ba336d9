"""Everybody's alerts through one feed, cut in the middle: each comes once, as the files have it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.demo.screen import Screen, seconds
from millpond.service.pond import Pond

TAG = "alerts"
#: A text for everybody: who waits for somebody at an airport is told of each flight that is late.
_TEXT = (
    "SELECT ts, carrier, flight, origin, dest, dep_delay FROM flights"
    " WHERE dest = $dest AND dep_delay >= $least"
)
_LEAST = 120
#: Alerts that are shown.
_SHOWN = 3


def show_feed(pond: Pond, flights: pa.Table, screen: Screen) -> bool:
    """Follow an alert for each airport through one feed, with a cut; whether it told the truth.

    Args:
        pond: Where the flights have streamed in.
        flights: The flights themselves, which the feed is compared with.
        screen: Where it is shown.
    """
    airports = sorted(set(flights["dest"].to_pylist()))
    people = [{"name": f"alert_{dest}", "dest": dest, "least": _LEAST} for dest in airports]
    began = time.monotonic()
    options = {"tags": TAG, "follow": True, "changes": "from beginning"}
    for handle in pond.register_table(_TEXT, people, **options):
        handle.fetch(limit=1)  # a feed gives what is computed; this waits until it is
    first, cursor, _ = _read(pond, None, _filter_late(flights).num_rows // 2)
    rest, _, up_to = _read(pond, cursor, None)
    told = first + rest
    took = time.monotonic() - began
    screen.say(
        f"{len(airports):,} more ask for one airport each: tell me of flights that leave two hours "
        f"late or more. One feed has the changes of all of them, {len(told):,} in {seconds(took)}. "
        f"It was cut after {len(first):,} and went on behind its cursor. It ends with:"
    )
    for query, row in told[-_SHOWN:]:
        at, carrier, flight, origin, dest, delay = row
        screen.say(f"  {query}: {at}  {carrier} {flight}  {origin} to {dest}, {delay} minutes late")
    agree = bool(told) and Counter(told) == Counter(_list(flights, up_to))
    words = "Each alert came once, and they are those of the files." if agree else "It differs."
    screen.verdict(words, agree)
    return agree


def _read(pond: Pond, after: str | None, most: int | None) -> tuple[list[Any], str, datetime]:
    """Read a feed from a cursor on: its alerts, its cursor and how far it is complete."""
    told: list[Any] = []
    cursor, up_to = after or "", "-infinity"
    for event in pond.subscribe(tag=TAG, after=after, follow=False):
        cursor = event.cursor or cursor
        if event.kind == "mark":
            up_to = event.facts["progress"][0]["up_to"]
        if event.kind == "change":
            told.append((event.query, event.change.row))
        if most is not None and len(told) >= most:
            break
    ends = {"-infinity": datetime.min, "infinity": datetime.max}
    return told, cursor, ends.get(up_to) or datetime.fromisoformat(up_to)


def _filter_late(flights: pa.Table) -> pa.Table:
    return flights.filter(pc.field("dep_delay") >= _LEAST)


def _list(flights: pa.Table, up_to: datetime) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The alerts that there have to be, from the flights themselves."""
    late = _filter_late(flights).filter(pc.field("ts") <= up_to)
    names = ("ts", "carrier", "flight", "origin", "dest", "dep_delay")
    for row in zip(*(late[name].to_pylist() for name in names), strict=True):
        yield f"alert_{row[4]}", row
