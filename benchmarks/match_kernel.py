"""How many elements a second does one core join with the standing queries, answers encoded?

Five integer attributes, range factors on all of them, uniform data; the share a query's factor
keeps is chosen so that an element matches some 5.5 % of the queries. Besides: one query, string
equality, registration, reading a slot back, and what the first call costs.

    python benchmarks/match_kernel.py [--rows 200000] [--repeats 3] [--led]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from kernel.led_queries import WORKLOADS, show_led
from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import QuerySteM, snapshot_queries
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.predicates.factors import Factors
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.engine.values.value_sets import Domain, interval, points
from millpond.model.schema import Field, Schema

ATTRIBUTES = ("a", "b", "c", "d", "e")
SPAN = 1_000_000
SCHEMA = Schema((*(Field(a, "INTEGER") for a in ATTRIBUTES), Field("s", "VARCHAR")))


def elements(rows: int, random: np.random.Generator) -> pa.Table:
    columns = {a: random.integers(0, SPAN, rows).astype(np.int32) for a in ATTRIBUTES}
    names = np.array([f"user_{i:06d}" for i in range(100_000)])
    return pa.table({**columns, "s": names[random.integers(0, len(names), rows)]})


def range_queries(count: int, random: np.random.Generator, share: float = 0.055) -> list[Factors]:
    """Range factors on five attributes; the product of their widths is about `share`."""
    width = int(SPAN * share ** (1 / len(ATTRIBUTES)))
    queries = []
    for _ in range(count):
        sets = []
        for attribute in ATTRIBUTES:
            low = int(random.integers(0, SPAN - width))
            sets.append((attribute, interval(Domain.INT32, low, low + width)))
        queries.append(Factors(sets=tuple(sets)))
    return queries


def name_queries(count: int, random: np.random.Generator) -> list[Factors]:
    chosen = random.integers(0, 100_000, count)
    return [Factors(sets=(("s", points(Domain.TEXT, [b"user_%06d" % i])),)) for i in chosen]


def median_seconds(act: Callable[[], object], repeats: int) -> float:
    """Seconds of one core: what others do on the machine meanwhile is not counted."""
    spent = []
    for _ in range(repeats):
        begun = time.thread_time()
        act()
        spent.append(time.thread_time() - begun)
    return statistics.median(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--led", action="store_true", help="queries that few elements match")
    parser.add_argument("--queries", default="1000,10000,100000,1000000")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    options = parser.parse_args()
    if options.led:
        counts = [int(n) for n in options.queries.split(",")]
        show_led(options.rows, counts, options.workloads.split(","), options.repeats)
        return
    random = np.random.default_rng(7)
    table = elements(options.rows, random)
    scalar = ScalarEvaluator()
    report = Table(title=f"match kernel, one core, {options.rows:,} elements a batch")
    for heading in ("what", "figure", "matches an element"):
        report.add_column(heading, justify="left" if heading == "what" else "right")

    begun = time.perf_counter()
    warm = snapshot_queries(enumerate(range_queries(1, random)), SCHEMA)
    match(table.slice(0, 100), warm, scalar)
    report.add_row("first call in this process", f"{time.perf_counter() - begun:.3f} s", "")

    for name, queries in [
        ("1 query, 5 ranges", range_queries(1, random)),
        ("100 queries, 5 ranges", range_queries(100, random)),
        ("1,000 queries, 5 ranges", range_queries(1000, random)),
        ("10,000 queries, 5 ranges", range_queries(10_000, random)),
        ("1,000 queries, string equality", name_queries(1000, random)),
        ("10,000 queries, string equality", name_queries(10_000, random)),
    ]:
        snapshot = snapshot_queries(enumerate(queries), SCHEMA)
        result = match(table, snapshot, scalar).to_table()
        matches = int(np.sum(result["count"].to_numpy(), dtype=np.int64))
        seconds = median_seconds(lambda s=snapshot: match(table, s, scalar), options.repeats)
        rate = options.rows / seconds / 1e6
        report.add_row(name, f"{rate:.2f} M elements/s", f"{matches / options.rows:.2f}")

    queries = range_queries(10_000, random)
    stem = QuerySteM(SCHEMA)
    begun = time.perf_counter()
    for slot, factors in enumerate(queries):
        stem.add(slot, factors)
    added = time.perf_counter() - begun
    stem.snapshot()
    whole = time.perf_counter() - begun
    report.add_row("10,000 adds", f"{added:.3f} s", "")
    report.add_row("10,000 adds and snapshot", f"{whole:.3f} s", "")
    begun = time.perf_counter()
    stem.add(10_000, queries[0])
    snapshot = stem.snapshot()
    report.add_row("one more add and snapshot", f"{(time.perf_counter() - begun) * 1e3:.2f} ms", "")
    report.add_row("driver memory a query, tables held", f"{stem.memory() / 10_001:.0f} bytes", "")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "stem"
        saving = median_seconds(lambda: snapshot.save(path), 1)
        loading = median_seconds(lambda: StemSnapshot.load(path), 1)
        stem.release(path.parent)
    report.add_row("save, load the snapshot", f"{saving * 1e3:.1f}, {loading * 1e3:.1f} ms", "")
    report.add_row("driver memory a query, released", f"{stem.memory() / 10_001:.0f} bytes", "")

    million = elements(1_000_000, random)
    narrow = snapshot_queries([(0, range_queries(1, random, 0.001)[0])], SCHEMA)
    reader = match(million, narrow, scalar).reader()
    seconds = median_seconds(lambda: reader.rows(0, 0, 1_000_000), 101)
    label = f"read {reader.count(0):,} of 1,000,000 rows"
    report.add_row(label, f"{seconds * 1e6:.0f} µs", "")
    Console().print(report)


if __name__ == "__main__":
    main()
