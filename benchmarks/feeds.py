"""Thousands of saved searches, followed through one feed, while elements are pushed at a rate.

Every query selects from one stream by two constants of its own, as saved searches do:
`SELECT sent, item, price FROM s WHERE item = 17 AND price < 0.0123`. They are registered in bulk
with `follow`. One reader has one feed of all of them and compares what it was given with a direct
computation: of every query the number of changes, and the sum of their prices. The lag of a change
is from handing its element over until the reader has the change.

    python benchmarks/feeds.py [--queries 10000] [--rate 20000] [--seconds 30]
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from _harness import console, percentile, show
from millpond.errors import MillpondError
from millpond.service.open_pond import open_pond
from millpond.service.pond import Pond
from millpond.service.queries.query_selection import QuerySelection
from millpond.testing.local_runtime import open_local

#: Pushes a second, at any rate.
PUSHES = 10
ITEMS = 1_000
#: Of the elements of a query's item, the share that it wants: a tenth of all elements are news.
WANTED = 0.01


def limits(queries: int) -> np.ndarray:
    """float64[queries]: below which price each query wants its item, number % ITEMS."""
    mean = WANTED * ITEMS / queries * 10
    return np.round(np.random.default_rng(5).uniform(0.5, 1.5, queries) * mean, 6)


def texts(queries: int) -> list[str]:
    """The saved searches."""
    return [
        f"SELECT sent, item, price FROM s WHERE item = {number % ITEMS} AND price < {limit:.6f}"
        for number, limit in enumerate(limits(queries).tolist())
    ]


def make_elements(rows: int, random: np.random.Generator) -> pa.Table:
    """Elements that are handed over now."""
    return pa.table(
        {
            "sent": np.full(rows, time.time_ns() // 1000),
            "item": random.integers(0, ITEMS, rows).astype(np.int32),
            "price": random.random(rows),
        }
    )


class Expected:
    """What the queries want of the elements, computed directly."""

    def __init__(self, queries: int) -> None:
        self.count = np.zeros(queries, np.int64)
        self.total = np.zeros(queries)
        own = limits(queries)
        self._of_item = [np.arange(item, queries, ITEMS) for item in range(ITEMS)]
        self._limits = [own[some] for some in self._of_item]

    def add(self, batch: pa.Table) -> None:
        prices = batch["price"].to_numpy()
        near = np.flatnonzero(prices < 10 * WANTED * ITEMS)
        for item, price in zip(batch["item"].to_numpy()[near], prices[near], strict=True):
            wanting = self._of_item[item][price < self._limits[item]]
            self.count[wanting] += 1
            self.total[wanting] += price


class Reader(threading.Thread):
    """Reads one feed of all queries."""

    def __init__(self, pond: Pond, ids: list[int]) -> None:
        super().__init__(daemon=True)
        self._pond = pond
        self._place = {id: number for number, id in enumerate(ids)}
        self.count = np.zeros(len(ids), np.int64)
        self.total = np.zeros(len(ids))
        self.lags: list[tuple[float, float]] = []
        self.spent = 0.0

    def run(self) -> None:
        news = threading.Event()
        self._pond.listen(news.set)
        with suppress(MillpondError):  # the pond was closed
            feed = self._pond.open_feed(QuerySelection(tag="searches"))
            while True:
                news.clear()
                before = time.thread_time()
                events = feed.read()
                now = time.time()
                for event in events:
                    if event.kind == "change":
                        assert event.changes is not None
                        assert event.id is not None
                        table = event.changes.table
                        sent = table["sent"][event.index].as_py()
                        place = self._place[event.id]
                        self.count[place] += 1
                        self.total[place] += table["price"][event.index].as_py()
                        self.lags.append((sent / 1e6, now - sent / 1e6))
                self.spent += time.thread_time() - before
                if not events:
                    news.wait()


def measure(pond: Pond, base: Path, queries: int, rate: int, lasting: float) -> list[object]:
    """Register, push, and compare; a row of the table."""
    pond.execute("CREATE STREAM s (sent BIGINT, item INTEGER, price DOUBLE)")
    options = {"follow": True, "tags": "searches"}
    wanted = [(text, f"q{number}", options) for number, text in enumerate(texts(queries))]
    begun = time.perf_counter()
    handles = pond.register_many(wanted)
    registered = time.perf_counter() - begun
    console.print(f"registered {queries:,} in {registered:.1f} s")
    reader = Reader(pond, [handle.id for handle in handles])
    reader.start()
    random, expected, size = np.random.default_rng(1), Expected(queries), rate // PUSHES
    begun, began_at, handed = time.perf_counter(), time.time(), 0
    for number in range(int(lasting * PUSHES)):
        time.sleep(max(0.0, begun + number / PUSHES - time.perf_counter()))
        batch = make_elements(size, random)
        pond.ingest("s", batch)
        expected.add(batch)
        handed += size
    reached = handed / (time.perf_counter() - begun)
    deadline = time.perf_counter() + 60 + lasting
    while reader.count.sum() < expected.count.sum() and time.perf_counter() < deadline:
        assert reader.is_alive()
        time.sleep(0.1)
    time.sleep(1.0)
    assert (reader.count == expected.count).all(), (reader.count.sum(), expected.count.sum())
    assert np.allclose(reader.total, expected.total)
    lags = [lag for sent, lag in reader.lags if sent > began_at + min(10.0, lasting / 3)]
    files = [path for path in (base / "store").rglob("*") if path.is_file()]
    return [
        queries,
        registered,
        reached,
        int(expected.count.sum()),
        percentile(lags, 0.5) * 1e3,
        percentile(lags, 0.99) * 1e3,
        max(lags) * 1e3,
        len(files),
        sum(path.stat().st_size for path in files) / 1e6,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    ]


def main() -> None:
    """Measure some numbers of queries, each in a pond of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", default="10000", help="numbers, with commas between")
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--local", action="store_true", help="without Spark, in this process")
    options = parser.parse_args()
    rows = []
    for queries in (int(n) for n in options.queries.split(",")):
        base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
        opened = open_local if options.local else open_pond
        with opened(base / "store") as pond:
            rows.append(measure(pond, base, queries, options.rate, options.seconds))
        shutil.rmtree(base, ignore_errors=True)
    columns = ["queries", "registered, s", "elements a second", "changes"]
    columns += ["lag p50, ms", "p99, ms", "most, ms", "files", "MB", "memory, MB"]
    show("Feeds of saved searches", columns, rows)


if __name__ == "__main__":
    main()
