"""Everything at once for half a minute: pushes, registrations, drops and invocations.

What every reader is promised is checked in every answer: it shows the effect of a prefix of what
happened, batches whole or not at all, never less than before; and what is final stays as it is.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from millpond.service.pond import Pond

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS = float(os.environ.get("MILLPOND_SOAK_SECONDS", "30"))
EPOCH = datetime(2024, 1, 1)
PUSHERS = 4

SCHEMA = """
CREATE STREAM events (ts TIMESTAMP, pusher INTEGER, batch INTEGER, size INTEGER, n BIGINT)
  TIMESTAMP BY ts DELAY INTERVAL 10 MINUTES;
CREATE STREAM marks (pusher INTEGER, batch INTEGER);
CREATE QUERY batches AS SELECT pusher, batch, size, count(*) AS n FROM events
  GROUP BY pusher, batch, size;
CREATE QUERY total AS SELECT count(*) AS n, sum(n) AS s FROM events;
CREATE QUERY parity AS SELECT
  (SELECT count(*) FROM events) AS everything,
  (SELECT count(*) FROM events WHERE n % 2 = 0) AS even,
  (SELECT count(*) FROM events WHERE n % 2 <> 0) AS odd;
CREATE QUERY hour AS SELECT n FROM events [RANGE 1 HOUR] WHERE n % 5 = 3;
CREATE QUERY last AS SELECT n FROM events [ROWS 50];
CREATE QUERY marked AS SELECT pusher, max(batch) AS b FROM marks GROUP BY pusher;
"""


class Soak:
    """The pond, the threads, and what they know of each other."""

    def __init__(self, pond: Pond) -> None:
        self.pond = pond
        self.end = time.monotonic() + SECONDS
        self.numbers = itertools.count(1)
        self.pushed: list[tuple[int, int]] = []
        self.problems: list[BaseException] = []
        self.done: Counter[str] = Counter()

    def run(self, *works: Callable[[random.Random], None]) -> None:
        """Every work in a thread of its own, over and over, until the time is up."""
        threads = [
            threading.Thread(target=self._repeat, args=(work, random.Random(seed)))
            for seed, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.problems:
            raise self.problems[0]

    def _repeat(self, work: Callable[[random.Random], None], pick: random.Random) -> None:
        try:
            while time.monotonic() < self.end and not self.problems:
                work(pick)
                self.done[getattr(work, "__name__", "push")] += 1
        except BaseException as error:
            self.problems.append(error)

    def pusher(self, which: int) -> Callable[[random.Random], None]:
        """Pushes a batch, and once that is acknowledged a mark that it was."""
        batches = itertools.count()

        def push(pick: random.Random) -> None:
            batch, size = next(batches), pick.choice([1, 2, 7, 60])
            rows = []
            for _ in range(size):
                n = next(self.numbers)
                ts = EPOCH + timedelta(seconds=n)
                rows.append({"ts": ts, "pusher": which, "batch": batch, "size": size, "n": n})
            receipt = self.pond.ingest("events", rows, idempotency_key=f"{which}-{batch}")
            assert (receipt.accepted, receipt.rejected) == (size, 0)
            self.pushed.append((size, sum(row["n"] for row in rows)))
            self.pond.ingest("marks", [{"pusher": which, "batch": batch}])
            time.sleep(0.05)

        return push

    def register(self, pick: random.Random) -> None:
        """A new query answers at once as if it had always been there."""
        divisor = pick.randrange(2, 40)
        rest = pick.randrange(divisor)
        handle = self.pond.register(f"SELECT n FROM events WHERE n % {divisor} = {rest}")
        everything = self.pond.query("everything").invoke()
        found = sorted(n for (n,) in handle.invoke(at=everything.as_of).rows())
        if everything.final:
            assert found == sorted(n for (n,) in everything.rows() if n % divisor == rest)
        assert all(n % divisor == rest for n in found)
        handle.unregister()

    def invoke(self, pick: random.Random) -> None:
        """Answers one after the other, as one reader sees them."""
        pond = self.pond
        marks = dict(pond.query("marked").invoke().rows())
        batches = pond.query("batches").invoke()
        seen: dict[int, list[int]] = {which: [] for which in range(PUSHERS)}
        for which, batch, size, count in batches.rows():
            assert count == size, "part of a batch"
            seen[which].append(batch)
        for which, found in seen.items():
            assert sorted(found) == list(range(len(found))), "a later batch without an earlier one"
            assert len(found) > marks.get(which, -1), "a mark without what it marks"
        count, _ = pond.query("total").invoke().rows()[0]
        assert count >= sum(size for _, _, size, _ in batches.rows()), "less than before"
        ((everything, even, odd),) = pond.query("parity").invoke().rows()
        assert everything == even + odd, "two windows of one answer differ"
        assert everything >= count
        last = [n for (n,) in pond.query("last").invoke().rows()]
        assert len(last) == min(50, max(everything, len(last)))
        self.keep_final(pick)

    def keep_final(self, pick: random.Random) -> None:
        """What is final now is asked again later, at the same instant."""
        handle = self.pond.query(pick.choice(["total", "hour", "last", "batches"]))
        newest = self.pond.query("total").invoke().as_of
        at = newest - pick.randrange(0, 1200) * 1_000_000
        first = handle.invoke(at=at)
        if not first.final:
            return
        self.done["final"] += 1
        time.sleep(pick.uniform(0, 0.5))
        again = handle.invoke(at=at)
        assert again.final
        assert sorted(again.rows()) == sorted(first.rows()), (handle.name, at)
        assert again.epoch >= first.epoch


def test_everything_at_once(pond: Pond) -> None:
    pond.execute(SCHEMA)
    pond.register("SELECT n FROM events", "everything")
    soak = Soak(pond)
    pushers = [soak.pusher(which) for which in range(PUSHERS)]
    soak.run(*pushers, soak.register, soak.register, soak.invoke, soak.invoke)
    pond.wait_until_matched(timeout=300)
    count, total = sum(s for s, _ in soak.pushed), sum(t for _, t in soak.pushed)
    assert pond.query("total").invoke().rows() == [(count, total)]
    assert sorted(q.name for q in pond.queries()) == sorted(
        ["batches", "total", "parity", "hour", "last", "marked", "everything"]
    )
    assert all(soak.done[what] > 3 for what in ("push", "register", "invoke")), soak.done
    assert pond.status()["problems"] == []
    print(f"{count} rows; {dict(soak.done)}")
