"""What does an aggregate over a window cost, as the window grows?

COUNT, SUM, AVG, MIN and MAX of a predicate's matches, at instants spread over all that is kept.
"Segments" merges totals of segments; "from rows" is the same query answered from the window's rows
(with a HAVING that is always true: what all aggregates cost before); "DuckDB" computes it anew over
the same elements held in memory and sorted by time, with one thread; "DuckDB, kept" computes it
over the pond's own kept segments, mapped and as they lie; "eager" is given the answer at NOW that
is kept ready. Elements arrive out of order, so that up to 16 segments straddle an instant
(`--straddling`). Then, with 1,000 such queries over 20 predicates registered: how fast elements are
taken, until they are visible and until totals are made, beside the same queries without totals
(`--ingest`).

    python benchmarks/window_aggregates.py [--rows 10000000] [--repeats 200] [--straddling 16]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from _harness import console, percentile, picture, seconds, show, spread
from millpond.service.handles import Handle
from millpond.service.pond import Pond
from millpond.state.segment_file import open_rows
from millpond.testing.local_runtime import open_local

START = 1_577_836_800_000_000  # 2020-01-01
#: Microseconds between elements.
STEP = 1_000
CALLS = "count(*) AS n, sum(v) AS total, avg(v) AS mean, min(v) AS least, max(x) AS most"
STREAM = (
    "CREATE STREAM s (ts TIMESTAMP, a INTEGER, v BIGINT, x DOUBLE) TIMESTAMP BY ts"
    " DELAY INTERVAL 1 DAY"
)
#: Elements of a push; each push reaches back over those before it as far as the segments straddle.
PUSH = 1 << 18


def make_push(first: int, rows: int, reach: int, random: np.random.Generator) -> pa.Table:
    """Elements one a millisecond, each up to `reach` elements late, with values of their own."""
    numbers = np.arange(first, first + rows) - random.integers(0, max(reach, 1), rows)
    stamps = START + np.maximum(numbers, 0) * STEP
    return pa.table(
        {
            "ts": pa.array(stamps).cast(pa.timestamp("us")),
            "a": random.integers(0, 100, rows).astype(np.int32),
            "v": random.integers(-1_000_000, 1_000_000, rows),
            "x": random.normal(size=rows),
        }
    )


def fill(pond: Pond, rows: int, straddling: int) -> pa.Table:
    """Push the elements; gives them."""
    random = np.random.default_rng(5)
    reach = (straddling - 1) * PUSH
    parts = []
    for first in range(0, rows, PUSH):
        parts.append(make_push(first, min(PUSH, rows - first), reach, random))
        pond.ingest("s", parts[-1])
    return pa.concat_tables(parts)


def measure(
    work: Callable[[int], object], instants: Sequence[int]
) -> tuple[list[float], list[float]]:
    """Milliseconds of each call, behind some to warm up: by the clock, of this thread's work."""
    for at in instants[:20]:
        work(at)
    clock, processor = [], []
    for at in instants:
        before = time.thread_time()
        clock.append(1e3 * seconds(lambda at=at: work(at)))
        processor.append(1e3 * (time.thread_time() - before))
    return clock, processor


def describe(measured: tuple[list[float], list[float]]) -> list[float]:
    """Median, the 5th and the 95th percentile by the clock; the median by the processor."""
    clock, processor = measured
    return [*(percentile(clock, share) for share in (0.5, 0.05, 0.95)), percentile(processor, 0.5)]


#: The figures of `describe`.
FIGURES = ("p50", "p5", "p95", "p50 by the processor")


def open_kept(pond: Pond, store: Path) -> pa.Table:
    """The kept elements as the pond has them, mapped from its files."""
    version = pond._components.log.version
    (stream,) = (s for s in version.named_streams() if s.name == "s")
    segments = version.segments(stream.id)
    rows = [open_rows(store / s.path, s.checksum, s.seq_runs, s.rows) for s in segments]
    return pa.concat_tables(table.drop_columns(["__ts", "__seq"]) for table in rows)


def window_lengths(
    pond: Pond, store: Path, elements: pa.Table, options: argparse.Namespace
) -> None:
    rows = elements.num_rows
    random = np.random.default_rng(9)
    lengths = [n for n in (10**3, 10**4, 10**5, 10**6, 3 * 10**6, 10**7) if n <= rows]
    table = []
    with duckdb.connect(config={"threads": "1"}) as connection:
        connection.execute("CREATE TABLE s AS FROM elements ORDER BY ts")
        connection.register("kept", open_kept(pond, store))
        for length in lengths:
            text = f"SELECT {CALLS} FROM s [RANGE {length} MILLISECONDS] WHERE a < 50"
            merged, scanned = pond.register(text), pond.register(f"{text} HAVING true")
            eager = pond.register(text, materialize="eager")
            pond.wait_until_matched()
            spread = random.integers(0, rows, options.repeats)
            instants = (START + spread * STEP + 7).tolist()
            few = instants[: max(5, min(50, 10**7 // length))]

            def recompute(at: int, source: str = "s", length: int = length) -> object:
                low = at - length * 1_000
                between = f"epoch_us(ts) > {low} AND epoch_us(ts) <= {at}"
                where = f"WHERE {between} AND a < 50"
                return connection.sql(f"SELECT {CALLS} FROM {source} {where}").fetchall()

            for at in few[:5]:
                assert merged.invoke(at).rows() == scanned.invoke(at).rows() == recompute(at)
                assert recompute(at, "kept") == recompute(at)
            times = [
                describe(measure(merged.invoke, instants)),
                describe(measure(scanned.invoke, few)),
                describe(measure(recompute, few)),
                describe(measure(partial(recompute, source="kept"), few)),
                describe(measure(lambda _, eager=eager: eager.invoke(), instants)),
            ]
            ratios = [times[other][n] / times[0][n] for other in (2, 3) for n in (0, 3)]
            table.append([length, *(f for each in times for f in each), *ratios])
            for handle in (merged, scanned, eager):
                handle.unregister()
    names = ("segments", "from rows", "DuckDB", "DuckDB, kept", "eager")
    figures = [f"{n} {f}, ms" for n in names for f in FIGURES]
    ratios = [f"{n} / segments{by}" for n in names[2:4] for by in ("", ", by the processor")]
    show("Aggregates by window length", ["window, elements", *figures, *ratios], table)
    lines = {
        n: (lengths, [row[1 + len(FIGURES) * i] for row in table]) for i, n in enumerate(names)
    }
    picture(
        "window_aggregates",
        "COUNT, SUM, AVG, MIN, MAX by window length",
        "window, elements",
        "milliseconds (median)",
        lines,
    )


def register_thousand(pond: Pond, rows: int, suffix: str) -> list[Handle]:
    """1,000 queries of 20 predicates, each with a window of its own."""
    texts = [
        f"SELECT {CALLS} FROM s [RANGE {1 + i * rows // 1_000} MILLISECONDS]"
        f" WHERE a < {5 * (i % 20 + 1)}{suffix}"
        for i in range(1_000)
    ]
    return pond.register_many(texts)


def with_a_thousand(pond: Pond, options: argparse.Namespace) -> None:
    rows = options.rows
    handles = register_thousand(pond, rows, "")
    pond.wait_until_matched()
    random = np.random.default_rng(11)
    instants = (START + random.integers(0, rows, options.repeats) * STEP).tolist()
    chosen = random.integers(0, len(handles), options.repeats).tolist()
    pairs = dict(zip(instants, chosen, strict=True))
    times = measure(lambda at: handles[pairs[at]].invoke(at), instants)
    title = "One of 1,000 registered aggregates over 20 predicates"
    show(title, ["elements", *(f"{f}, ms" for f in FIGURES)], [[rows, *describe(times)]])
    console.print(pond.explain(handles[500].name, "runtime"))


def ingest(options: argparse.Namespace) -> None:
    """Elements a second, with maintenance behind it, in pairs of runs that take turns."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(options.ingest):
        for suffix in ("", " HAVING true"):
            base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
            pond = open_local(base / "store")
            pond.execute(STREAM)
            register_thousand(pond, options.rows, suffix)
            random = np.random.default_rng(5)
            pushes = [make_push(n * PUSH, PUSH, PUSH, random) for n in range(8)]
            started = time.perf_counter()
            for push in pushes:
                pond.ingest("s", push)
            for until, wait in (("visible", pond.catch_up), ("measured", pond.wait_until_matched)):
                wait()
                speed = len(pushes) * PUSH / (time.perf_counter() - started)
                found.setdefault((until, suffix), []).append(speed)
            pond.close()
            shutil.rmtree(base, ignore_errors=True)
    rows = []
    for until in ("visible", "measured"):
        both = found[until, ""], found[until, " HAVING true"]
        with_totals, without = (percentile(one, 0.5) for one in both)
        rows.append([until, with_totals, without, with_totals / without, *map(spread, both)])
    columns = ["until", "with totals", "without", "share kept", "with totals, all", "without, all"]
    show("Elements a second past 1,000 aggregates", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--straddling", type=int, default=16)
    parser.add_argument("--ingest", type=int, default=3, help="pairs of runs; 0: none")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    pond = open_local(base / "store")
    pond.execute(STREAM)
    elements = fill(pond, options.rows, options.straddling)
    pond.wait_until_matched()
    window_lengths(pond, base / "store", elements, options)
    with_a_thousand(pond, options)
    pond.close()
    shutil.rmtree(base, ignore_errors=True)
    if options.ingest:
        ingest(options)


if __name__ == "__main__":
    main()
