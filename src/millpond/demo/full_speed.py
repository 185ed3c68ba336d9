"""The demo's second replay: the same year at once, past the same queries, in a store of its own.

The first replay drops a day's files as fast as answers show them, so that it can be watched; that
makes hundreds of small epochs. Here all queries stand first, and all rows are there at once. So
this shows what the pond takes when nothing holds the rows back. Everybody's answers have to be
those of the first replay.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.demo.data import RELATIONS, DayFile, ReplayedRows
from millpond.demo.proof import find_answers
from millpond.demo.replay import Meter, Replay, count_matched
from millpond.demo.screen import Screen, seconds
from millpond.demo.travellers import SCHEMA, Traveller
from millpond.model.time import format_instant
from millpond.service.pond import Pond

Opener = Callable[[Path, Callable[[dict[str, Any]], None]], Pond]

#: The answers of one traveller in so many are compared: each is a first one in the second pond.
_ONE_IN = 4


@dataclass
class FullSpeed:
    """The result of the second replay.

    Attributes:
        registered: Seconds in which all queries were registered.
        tuples: Elements that were read; none was rejected.
        seconds: From the first file's drop until answers show every element.
        matches: Pairs of element and predicate matched as the elements came.
        answers: How many answers were compared with those of the first replay.
        differences: A line for every answer that differs.
    """

    registered: float = 0.0
    tuples: int = 0
    seconds: float = 0.0
    matches: int = 0
    answers: int = 0
    differences: list[str] = field(default_factory=list)


def replay_at_once(
    feed: ReplayedRows,
    first: Pond,
    people: Sequence[Traveller],
    instants: Sequence[int | None],
    open_beside: Opener,
    pause: Callable[[Pond], None],
    screen: Screen,
) -> FullSpeed:
    """Replay everything at once in a second pond, and compare its answers with the first's.

    Args:
        feed: What the first pond was fed with.
        first: The first pond, which stays open.
        people: Whose queries stand in both ponds.
        instants: Now (None), and past ones; each answer is compared now and at one of these.
        open_beside: Opens the second pond, on the Spark session that the first one uses.
        pause: Called between two looks at the second pond.
        screen: Where it is shown.
    """
    directory = feed.directory.with_name("at-once")
    whole, meter, result = gather(feed, directory / "feed"), Meter(), FullSpeed()
    with open_beside(directory / "store", meter) as pond:
        pond.execute(SCHEMA.format(directory=whole.directory))
        began = time.perf_counter()
        pond.register_many([(t.cql, t.name, {}) for t in people])
        result.registered = time.perf_counter() - began
        for tick in Replay(whole, pond, meter).run():
            result.tuples = tick.tuples
            if tick.share < 1:
                pause(pond)
        result.seconds = max(meter.freshness)
        result.matches = count_matched(pond)
        screen.say(
            f"{len(people):,} queries stand in a second store ({seconds(result.registered)}); then "
            f"all files come at once. {result.tuples:,} tuples in {seconds(result.seconds)}: "
            f"{result.tuples / result.seconds:,.0f} tuples/s, "
            f"{result.matches / result.seconds:,.0f} matches/s."
        )
        _, *past = instants
        for number, traveller in enumerate(people[::_ONE_IN]):
            _compare(traveller, first, pond, [None, past[number % len(past)]], result)
    screen.verdict(
        f"{result.answers - len(result.differences):,} of {result.answers:,} answers are those of "
        f"the first replay: one in {_ONE_IN} travellers', now and at an instant of the past.",
        not result.differences,
    )
    return result


def _compare(
    traveller: Traveller,
    first: Pond,
    second: Pond,
    instants: Sequence[int | None],
    result: FullSpeed,
) -> None:
    """Compare a traveller's answers of both ponds, and note the result."""
    expected = find_answers(first.query(traveller.name), instants)
    found = find_answers(second.query(traveller.name), instants)
    result.answers += len(expected)
    for at, was, now in zip(instants, expected, found, strict=True):
        if was != now:
            moment = "now" if at is None else format_instant(at)
            result.differences.append(
                f"{traveller.name} at {moment}: {len(was[1])} rows day by day, "
                f"{len(now[1])} at once: {traveller.cql}"
            )


def gather(feed: ReplayedRows, directory: Path) -> ReplayedRows:
    """Write the feed's rows anew, in one file a processor for each stream."""
    directory.mkdir(parents=True)
    for name in RELATIONS:
        shutil.copy(feed.directory / f"{name}.csv", directory)
    files: list[DayFile] = []
    for stream, rows in (("flights", feed.flights), ("weather", feed.weather)):
        (directory / stream).mkdir()
        pq.write_table(rows.slice(0, 0), directory / stream / "0000-columns.parquet")
        files += _write_parts(directory / "ahead" / stream, stream, rows)
    return ReplayedRows(directory, [(feed.days[-1][0], files)], feed.flights, feed.weather)


def _write_parts(ahead: Path, stream: str, rows: pa.Table) -> list[DayFile]:
    """Write rows in as many parts as there are processors, in their order."""
    ahead.mkdir(parents=True)
    size = -(-rows.num_rows // (os.cpu_count() or 1))
    written = []
    for start in range(0, rows.num_rows, size):
        part, path = rows.slice(start, size), ahead / f"{start // size:04d}.parquet"
        pq.write_table(part, path, compression="zstd")
        written.append(DayFile(stream, path, part.num_rows))
    return written
