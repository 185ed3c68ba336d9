"""How long does invoking an inequality join take as its windows grow? PSoup's figure 8.

Two streams, an element a millisecond each; the query joins their latest elements by equality of one
attribute and inequality of another, and its answer grows with the windows. PSoup-C keeps the answer
(`materialize = 'eager'`), PSoup-P reads stored pairs and applies the windows (`lazy`), NoMat joins
the windows' slices anew (`none`), "recomputed" is DuckDB over all kept elements in memory.

    python benchmarks/papers/join_invocation.py [--rows 100000] [--repeats 50]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from _harness import percentile, picture, seconds, show
from millpond.service.handles import Handle
from millpond.service.open_pond import open_pond

START = 1_577_836_800_000_000
KEYS = 20_000
JOIN = "SELECT l.v AS a, r.v AS b FROM {l} l, {r} r WHERE l.k = r.k AND l.v < r.v"


def elements(rows: int, seed: int) -> pa.Table:
    """Elements a millisecond apart, with a key and a value."""
    chance = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": pa.array(START + np.arange(rows, dtype=np.int64) * 1_000, pa.timestamp("us")),
            "k": chance.integers(0, KEYS, rows).astype(np.int32),
            "v": chance.integers(0, 1_000_000, rows).astype(np.int32),
        }
    )


def p50(handle: Handle, repeats: int) -> float:
    """Median milliseconds of an invocation, after one to warm up."""
    handle.invoke()
    return percentile([seconds(handle.invoke) for _ in range(repeats)], 0.5) * 1e3


def recompute(memory: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    return memory.sql(sql).to_arrow_table()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=50)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    given = {name: elements(options.rows, seed) for seed, name in enumerate("lr")}
    sizes = [n for n in (1_000, 3_000, 10_000, 30_000, 100_000) if n <= options.rows]
    rows = []
    with open_pond(base / "store") as pond, duckdb.connect(config={"threads": "1"}) as memory:
        for name, table in given.items():
            pond.execute(
                f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY ts"
            )
            pond.ingest(name, table)
            memory.register("given", table)
            memory.execute(f"CREATE TABLE {name} AS FROM given")
        pond.catch_up()
        for size in sizes:
            text = JOIN.format(
                l=f"l [RANGE {size} MILLISECONDS]", r=f"r [RANGE {size} MILLISECONDS]"
            )
            ways = {
                mode: pond.register(text, materialize=mode) for mode in ("eager", "lazy", "none")
            }
            pond.wait_until_matched()
            low = f"make_timestamp({START + (options.rows - 1 - size) * 1_000})"
            sql = JOIN.format(l="l", r="r") + f" AND l.ts > {low} AND r.ts > {low}"
            want = Counter(memory.sql(sql).fetchall())
            for handle in ways.values():
                assert Counter(handle.invoke().rows()) == want
            times = {mode: p50(handle, options.repeats) for mode, handle in ways.items()}
            scratch = percentile([seconds(partial(recompute, memory, sql)) for _ in range(10)], 0.5)
            rows.append([size, want.total(), *times.values(), scratch * 1e3])
    show(
        "Invocation of a join by window size",
        [
            "windows, elements",
            "rows of answer",
            "PSoup-C p50, ms",
            "PSoup-P p50, ms",
            "NoMat p50, ms",
            "recomputed p50, ms",
        ],
        rows,
    )
    names = ("PSoup-C", "PSoup-P", "NoMat", "recomputed by DuckDB")
    picture(
        "join_invocation",
        "Invocation of a join by window size",
        "windows, elements",
        "milliseconds",
        {name: (sizes, [row[i] for row in rows]) for i, name in enumerate(names, 2)},
    )
    shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
