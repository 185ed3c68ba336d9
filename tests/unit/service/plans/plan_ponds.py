"""Ponds whose plans are exported: five followed queries over two streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

WINDOW = "s [RANGE 10 SECONDS]"
QUERIES = {
    "three": f"SELECT a.v FROM {WINDOW} a, {WINDOW} b, {WINDOW} c WHERE a.k = b.k AND b.v = c.v",
    "kinds": "SELECT DISTINCT k FROM s [RANGE 10 SECONDS]",
    "counts": "SELECT k, count(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k",
    "more": "SELECT k, count(*) AS n, max(v) AS m FROM s [RANGE 10 SECONDS] GROUP BY k",
    "not_there": "SELECT v FROM s [RANGE 3 SECONDS] EXCEPT SELECT v FROM t [RANGE 2 SECONDS]",
}


def push(pond: Pond, *seconds: int) -> None:
    for stream in ("s", "t"):
        rows = [{"ts": f"1970-01-01 00:00:{t:02}", "k": "ab"[t % 2], "v": t % 3} for t in seconds]
        pond.ingest(stream, rows)
    pond.catch_up()


def start(store: Path) -> Pond:
    pond = open_local(store, ManualClock())
    for stream in ("s", "t"):
        pond.execute(f"CREATE STREAM {stream} (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
    for name, text in QUERIES.items():
        pond.execute(f"CREATE QUERY {name} WITH (changes = 'from beginning') AS {text}")
        pond.query(name).fetch()
    return pond


def fetch(pond: Pond) -> dict[str, list[Any]]:
    return {name: pond.query(name).fetch().rows() for name in QUERIES}


def find(document: dict[str, Any], name: str, query: str) -> str:
    """The id of the operator of a name that a query has, the first one."""
    operators = document["operators"]
    return next(i for i, o in operators.items() if o["name"] == name and query in o["queries"])
