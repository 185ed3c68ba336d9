"""How long does an invocation take as the window grows, beside NoMat and recomputing?

A stream of uniform elements, one a millisecond; a query whose answer over the largest window has
about 1,000 rows. PSoup-C keeps the answer (`materialize = 'eager'`), PSoup-P reads stored matches
(`lazy`), NoMat evaluates the predicate at invocation (`none`), "recomputed" is DuckDB over all kept
elements (VLDB 2002, figure 7).
Then its table 2: one, two and four interval factors.

    python benchmarks/invocation.py [--rows 1000000] [--repeats 200]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from _harness import percentile, picture, seconds, show
from millpond.service.handles import Handle
from millpond.service.open_pond import open_pond
from millpond.service.pond import Pond
from workloads.interests import ATTRIBUTES, SPAN, elements

START = 1_577_836_800_000_000  # 2020-01-01


def write_stream(directory: Path, rows: int) -> Path:
    """One Parquet file of elements with a timestamp each millisecond."""
    directory.mkdir(parents=True)
    table = elements(rows, np.random.default_rng(3))
    stamps = pa.array(START + np.arange(rows, dtype=np.int64) * 1_000).cast(pa.timestamp("us"))
    path = directory / "part.parquet"
    pq.write_table(table.append_column("ts", stamps), path)
    return path


def invocations(handle: Handle, repeats: int) -> list[float]:
    """Seconds of each invocation, after one to warm up."""
    handle.invoke()
    return [seconds(handle.invoke) for _ in range(repeats)]


def recomputed(file: Path, rows: int, window: int, predicate: str, repeats: int) -> float:
    """Median seconds of the same answer by DuckDB over the elements held in memory."""
    with duckdb.connect(config={"threads": "1"}) as connection:
        connection.execute(f"CREATE TABLE s AS FROM '{file}'")
        low = START + (rows - 1 - window) * 1_000
        sql = f"SELECT * FROM s WHERE ts > make_timestamp({low}) AND {predicate}"
        connection.sql(sql).to_arrow_table()
        times = [seconds(lambda: connection.sql(sql).to_arrow_table()) for _ in range(repeats)]
    return percentile(times, 0.5)


def window_sizes(pond: Pond, file: Path, rows: int, repeats: int) -> None:
    """The figure: response time by window size."""
    low, high = 0, SPAN * 1_000 // rows
    predicate = f"a BETWEEN {low} AND {high}"
    sizes = [n for n in (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000) if n <= rows]
    table = []
    for size in sizes:
        text = f"SELECT * FROM s [RANGE {size} MILLISECONDS] WHERE {predicate}"
        lazy = pond.register(text)
        none = pond.register(text, materialize="none")
        eager = pond.register(text, materialize="eager")
        pond.wait_until_matched()
        p = invocations(lazy, repeats)
        c = invocations(eager, repeats)
        nomat = invocations(none, max(10, repeats // 10))
        assert sorted(eager.invoke().rows()) == sorted(none.invoke().rows())
        assert sorted(lazy.invoke().rows()) == sorted(none.invoke().rows())
        scratch = recomputed(file, rows, size, predicate, max(10, repeats // 10))
        answer = lazy.invoke().table.num_rows
        table.append(
            [
                size,
                answer,
                percentile(c, 0.5) * 1e3,
                percentile(c, 0.99) * 1e3,
                percentile(p, 0.5) * 1e3,
                percentile(p, 0.99) * 1e3,
                percentile(nomat, 0.5) * 1e3,
                scratch * 1e3,
                percentile(nomat, 0.5) / percentile(p, 0.5),
                scratch / percentile(p, 0.5),
                scratch / percentile(c, 0.5),
            ]
        )
    show(
        "Invocation by window size",
        [
            "window, elements",
            "rows of answer",
            "PSoup-C p50, ms",
            "PSoup-C p99, ms",
            "PSoup-P p50, ms",
            "PSoup-P p99, ms",
            "NoMat p50, ms",
            "recomputed p50, ms",
            "NoMat / PSoup-P",
            "recomputed / PSoup-P",
            "recomputed / PSoup-C",
        ],
        table,
    )
    picture(
        "invocation",
        "Invocation by window size",
        "window, elements",
        "milliseconds",
        {
            "PSoup-C": (sizes, [r[2] for r in table]),
            "PSoup-P": (sizes, [r[4] for r in table]),
            "NoMat": (sizes, [r[6] for r in table]),
            "recomputed by DuckDB": (sizes, [r[7] for r in table]),
        },
    )


def interval_factors(pond: Pond, rows: int, repeats: int) -> None:
    """Table 2: response time by the number of interval factors."""
    table = []
    for count in (1, 2, 4):
        factors = " AND ".join(
            f"{a} BETWEEN {SPAN // 4} AND {SPAN // 2}" for a in ATTRIBUTES[:count]
        )
        text = f"SELECT * FROM s [RANGE {rows // 10} MILLISECONDS] WHERE {factors}"
        lazy = pond.register(text)
        none = pond.register(text, materialize="none")
        pond.wait_until_matched()
        p = percentile(invocations(lazy, repeats), 0.5)
        n = percentile(invocations(none, max(10, repeats // 10)), 0.5)
        table.append([count, lazy.invoke().table.num_rows, p * 1e3, n * 1e3, n / p])
    show(
        "Invocation by interval factors",
        [
            "interval factors",
            "rows of answer",
            "PSoup-P p50, ms",
            "NoMat p50, ms",
            "NoMat / PSoup-P",
        ],
        table,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=200)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    file = write_stream(base / "elements", options.rows)
    columns = ", ".join(f"{a} INTEGER" for a in ATTRIBUTES)
    with open_pond(base / "store") as pond:
        pond.execute(
            f"CREATE STREAM s ({columns}, ts TIMESTAMP) TIMESTAMP BY ts"
            f" USING parquet OPTIONS (path '{file.parent}')"
        )
        pond.catch_up()
        while pond._components.log.version.clock(pond.streams()[0].id).next_seq < options.rows:
            time.sleep(0.1)
        window_sizes(pond, file, options.rows, options.repeats)
        interval_factors(pond, options.rows, options.repeats)
    shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
