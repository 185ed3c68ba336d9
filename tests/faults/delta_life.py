"""Who appends to a Delta table, in a process of its own.

`STORE TABLE ROWS`: a pond with a sink to the table, fed until its end. `TABLE`: a sender alone that
delivers without end. It prints the number of each delivery that is in the table, and what it says
when it may not go on.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import pyarrow as pa

from millpond.catalog.sink_def import SinkDef, SinkPosition
from millpond.errors import MillpondError
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.pond import Pond
from millpond.service.results import Changes
from millpond.service.sinks.delta import DeltaSender
from millpond.service.sinks.sender import Delivery, DeliveryError
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

NOW = 1_772_366_400_000_000
STEPS = (
    "CREATE STREAM s (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts",
    "CREATE QUERY q AS ISTREAM (SELECT v FROM s [NOW])",
    "CREATE SINK k USING delta (path '{path}', batch 3) FROM QUERY q",
)


def live(pond: Pond, path: str, rows: int) -> None:
    """Do what a client does that repeats everything, and wait for the sink."""
    for step in STEPS:
        try:
            pond.execute(step.replace("{path}", path))
        except MillpondError as error:
            if error.code != "CQL-208":
                raise
    print("ready", flush=True)
    for v in range(rows):
        at = f"2026-01-01 00:{v // 60:02}:{v % 60:02}"
        pond.ingest("s", [{"ts": at, "v": v}], idempotency_key=str(v))
    pond.catch_up()
    # The last element is not final: another could have its instant.
    while pond.status()["sinks"][0]["changes"] < rows - 1:
        time.sleep(0.01)


def sender_of(path: str, done: int = 0) -> DeltaSender:
    """A sender of the sink, whose store knows of so many deliveries."""
    options = {"path": path}
    position = SinkPosition(cursor_of(done), done, done)
    return DeltaSender(SinkDef(7, "s", "delta", options, position=position), options)


def cursor_of(number: int) -> str:
    """A cursor, which begins with the incarnation of the store, as those of feeds do."""
    return f"3f2a9c.c{number}"


def delivery(number: int) -> Delivery:
    """A delivery of one change, whose value is its number."""
    rows = pa.table({"cursor": [number], "timestamp": [number], "change": ["+"], "v": [number]})
    page = Changes(rows, "q", f"r.{number}", number, number)
    event = FeedEvent("change", cursor_of(number), "q", 1, changes=page)
    return Delivery(f"3f2a9c.7.{number}", "s", cursor_of(number), [event], [])


def send(path: str) -> None:
    """Deliver until another sender has taken the table over."""
    sender = sender_of(path)
    try:
        for number in itertools.count(1):
            sender.send(delivery(number))
            print(number, flush=True)
    except DeliveryError as error:
        print(error.is_final, error, flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        send(sys.argv[1])
    else:
        with open_local(Path(sys.argv[1]), clock=ManualClock(NOW)) as opened:
            live(opened, sys.argv[2], int(sys.argv[3]))
