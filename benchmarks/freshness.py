"""How long from the arrival of an element until an answer shows it, and until its change is told?

Elements are pushed in batches of equal size at equal distances, past 1,000 standing queries. One
time is from handing a batch over until an invocation counts its elements; the other until a
subscriber is given the change that the batch's first element makes to a query it follows. "keeps
up" says whether as much became visible as was pushed: the greatest rate that does is the load, and
half of it is where the target stands.

    python benchmarks/freshness.py [--rates 1000,10000,50000,100000] [--seconds 15]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from _harness import percentile, show
from millpond.errors import MillpondError
from millpond.service.open_pond import open_pond
from millpond.service.pond import Pond
from workloads.interests import elements, texts

#: Pushes a second, at any rate.
PUSHES = 20


class Follower(threading.Thread):
    """A subscriber that notes when it was told of each push: by `a` of its first element."""

    def __init__(self, pond: Pond) -> None:
        super().__init__(daemon=True)
        self._changes = pond.query("followed").subscribe()
        self.told: dict[int, float] = {}

    def run(self) -> None:
        with suppress(MillpondError):  # the pond was closed
            for change in self._changes:
                self.told[change.row[0]] = time.perf_counter()

    def wait_for(self, marks: list[int]) -> list[float]:
        """When it was told of each of some pushes."""
        while any(mark not in self.told for mark in marks):
            assert self.is_alive()
            time.sleep(0.01)
        return [self.told[mark] for mark in marks]


def watch(
    pond: Pond, follower: Follower, rate: int, lasting: float
) -> tuple[list[float], list[float], bool]:
    """Seconds until each push was visible, and told of; whether all were soon after the last."""
    query = pond.query("watched")
    size = max(1, rate // PUSHES)
    random = np.random.default_rng(rate)
    before = int(query.invoke().rows()[0][0])
    pushed: list[tuple[int, float]] = []
    first = -1 - len(follower.told)
    marks: list[int] = []
    seen: list[float] = []
    stop = threading.Event()

    def look() -> None:
        at = 0
        while not (stop.is_set() and at == len(pushed)):
            count = int(query.invoke().rows()[0][0]) - before
            now = time.perf_counter()
            while at < len(pushed) and count >= pushed[at][0]:
                seen.append(now - pushed[at][1])
                at += 1
            time.sleep(0.01)

    looking = threading.Thread(target=look)
    looking.start()
    begun = time.perf_counter()
    total = 0
    for number in range(int(lasting * PUSHES)):
        time.sleep(max(0.0, begun + number / PUSHES - time.perf_counter()))
        total += size
        marks.append(first - number)
        batch = marked(elements(size, random), marks[-1])
        at = time.perf_counter()
        pond.ingest("s", batch)
        pushed.append((total, at))
    pushing = time.perf_counter() - begun
    stop.set()
    looking.join()
    keeps_up = time.perf_counter() - begun - pushing < 2 and pushing < 1.1 * lasting
    handed = [at for _, at in pushed]
    told = [then - at for then, at in zip(follower.wait_for(marks), handed, strict=True)]
    settled = len(seen) // 5  # Spark compiles while it runs; what it does first is slow
    return seen[settled:], told[settled:], keeps_up


def marked(batch: pa.Table, mark: int) -> pa.Table:
    """The batch with a negative number, which no other element has, in its first element's `a`."""
    a = batch["a"].to_numpy().copy()
    a[0] = mark
    return batch.set_column(0, "a", pa.array(a))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", default="1000,10000,50000,100000")
    parser.add_argument("--seconds", type=float, default=15)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    rows = []
    with open_pond(base / "store") as pond:
        pond.execute("CREATE STREAM s (a INTEGER, b INTEGER, c INTEGER, d INTEGER, e INTEGER)")
        pond.register_many([(text, None, {}) for text in texts(1_000, "s")])
        pond.register("SELECT count(*) FROM s", name="watched")
        pond.register("SELECT a FROM s WHERE a < 0", name="followed")
        follower = Follower(pond)
        follower.start()
        watch(pond, follower, 10_000, 30)  # Spark's JVM compiles most of what it runs in this time
        for rate in (int(r) for r in options.rates.split(",")):
            seen, told, keeps_up = watch(pond, follower, rate, options.seconds)
            shown = [
                1e3 * value
                for times in (seen, told)
                for value in (percentile(times, 0.5), percentile(times, 0.99), max(times))
            ]
            rows.append([rate, *shown, "yes" if keeps_up else "no"])
    columns = ["p50, ms", "p99, ms", "most, ms"]
    show(
        "Freshness",
        ["elements a second", *columns, *(f"told: {name}" for name in columns), "keeps up"],
        rows,
    )
    shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
