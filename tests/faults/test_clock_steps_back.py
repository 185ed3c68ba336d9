"""The machine's clock steps back, under a server and while it is away: nothing is lost or wrong.

The whole process sees another clock, by `faketime`; without it the test is passed over.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.faults.local_server import start, wait_until_ready

import millpond
from millpond.api.client import RemotePond

FOUND = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))

#: After how many seconds a process sees that the clock was set. Looking each time is slow.
_SEEN_AFTER = 1

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOUND, reason="faketime is not installed (apt-get install faketime)"),
]

QUERIES = {
    "total": "SELECT count(*) AS n, sum(n) AS s FROM s",
    "day": "SELECT n FROM s [RANGE 1 DAY]",
    "last": "SELECT n FROM s [ROWS 3]",
    "timed": "SELECT n FROM t [RANGE 10 MINUTES]",
    "both": "SELECT a.n FROM s [RANGE 1 DAY] a, s [ROWS 3] b WHERE a.n = b.n",
}


class Machine:
    """A machine whose clock can be set, and a server on it."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self._clock = folder / "clock"
        self.pushed = 0
        #: What a subscriber has received, by query, and its cursors.
        self.received: dict[str, Counter[Any]] = {name: Counter() for name in QUERIES}
        self.cursors: dict[str, Any] = {}

    def set_clock(self, seconds: int) -> None:
        """Have the clock so many seconds off."""
        written = self._clock.with_suffix(".tmp")
        written.write_text(f"{seconds:+d}\n")
        written.rename(self._clock)
        time.sleep(_SEEN_AFTER + 0.5)

    def begin(self) -> None:
        settings = {
            "LD_PRELOAD": str(FOUND[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_CACHE_DURATION": str(_SEEN_AFTER),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        given = [f"{name}={value}" for name, value in settings.items()]
        self._process = start(self.store, through=("env", *given))
        self.client: RemotePond = millpond.connect(wait_until_ready(self._process).url)

    def kill(self) -> None:
        self.client.close()
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def push(self, count: int) -> None:
        """Push rows to both streams; those of one have instants of their own."""
        for _ in range(count):
            n = self.pushed
            self.client.ingest("s", [{"n": n}])
            self.client.ingest("t", [{"ts": f"2026-01-01 00:{n:02}:00", "n": n}])
            self.pushed += 1
        self.client.catch_up(timeout=60)

    def check(self) -> None:
        """Whether every answer and all changes are of all rows that were pushed."""
        everything = range(self.pushed)
        wanted: dict[str, list[tuple[Any, ...]]] = {
            "total": [(self.pushed, sum(everything))],
            "day": [(n,) for n in everything],
            "last": [(n,) for n in everything[-3:]],
            "timed": [(n,) for n in everything[-10:]],
            "both": [(n,) for n in everything[-3:]],
        }
        for name, rows in wanted.items():
            answer = self.client.query(name).invoke()
            assert sorted(answer.rows()) == rows, name
            assert answer.exact, name

    def follow(self) -> None:
        """Receive what has changed."""
        for name, received in self.received.items():
            page = self.client.query(name).fetch(after=self.cursors.get(name))
            for _, _, sign, *row in page.rows():
                received[tuple(row)] += 1 if str(sign) in ("+", "1") else -1
            self.cursors[name] = page.cursor

    def check_changes(self) -> None:
        """Whether the changes add up to the answers, once all of them are final."""
        until = time.monotonic() + 60
        for name in ("day", "total", "last"):
            wanted = Counter(self.client.query(name).invoke().rows())
            while +self.received[name] != wanted and time.monotonic() < until:
                time.sleep(0.2)
                self.follow()
            assert +self.received[name] == wanted, name
            assert min(self.received[name].values()) >= 0, name


def test_nothing_is_lost_or_wrong(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.set_clock(0)
    machine.begin()
    machine.client.execute(
        "CREATE STREAM s (n BIGINT);CREATE STREAM t (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts"
    )
    for name, text in QUERIES.items():
        machine.client.execute(f"CREATE QUERY {name} WITH (changes = 'from beginning') AS {text}")
    machine.push(3)
    machine.check()
    machine.follow()
    for seconds in (-3600, 120, -7200):  # under the server
        machine.set_clock(seconds)
        machine.push(3)
        machine.check()
        machine.follow()
    assert {p["code"] for p in machine.client.status()["problems"]} == {"STORE-605"}
    machine.check_changes()
    for seconds in (-10_000, -100_000, 0):  # while it is away
        machine.kill()
        machine.set_clock(seconds)
        machine.begin()
        machine.check()
        machine.push(3)
        machine.check()
        machine.follow()
    machine.set_clock(7200)
    machine.push(1)
    machine.check()
    machine.check_changes()
    assert machine.client.status()["problems"] == []
    machine.kill()
