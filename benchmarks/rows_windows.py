"""What do windows that count elements cost, beside windows over time?

CACQ (section 3.3.3) has windows of a number of tuples only; all queries share what is kept, and
each takes its own window from it when matches are read. Here selections of one shape over
`[RANGE 100 MILLISECONDS]`, `[ROWS 100]` and `[PARTITION BY k ROWS 5]` (20 keys), so that every
window has 100 elements: their registration, elements a second that are matched, followed or
counted into kept answers, and the time of an invocation.

The pond is in this process, without Spark.

    python benchmarks/rows_windows.py [--queries 1000] [--batch 5000] [--pushes 10]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from _harness import show
from millpond.testing.local_runtime import open_local

WINDOWS = ("RANGE 100 MILLISECONDS", "ROWS 100", "PARTITION BY k ROWS 5")
WAYS = ("matched", "kept", "followed")
SPAN = 10_000


def batch(number: int, rows: int) -> pa.Table:
    """The elements of a push; one a millisecond."""
    random = np.random.default_rng(number)
    ts = (np.arange(rows) + number * rows) * 1_000
    return pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us")),
            "a": pa.array(random.integers(0, SPAN, rows), pa.int32()),
            "k": pa.array(random.integers(0, 20, rows), pa.int32()),
        }
    )


def measure(window: str, way: str, queries: int, rows: int, pushes: int) -> list[object]:
    """Registration (µs a query), elements a second, and milliseconds of an invocation."""
    bounds = np.random.default_rng(3).integers(0, SPAN, queries)
    with (
        tempfile.TemporaryDirectory(prefix="millpond-bench-") as folder,
        open_local(Path(folder) / "store") as pond,
    ):
        pond.execute("CREATE STREAM s (ts TIMESTAMP, a INTEGER, k INTEGER) TIMESTAMP BY ts")
        mode = "eager" if way == "kept" else "lazy"
        options = {"materialize": mode, "follow": way == "followed"}
        texts = [
            (f"SELECT a, k FROM s [{window}] WHERE a > {bound}", None, options) for bound in bounds
        ]
        began = time.perf_counter()
        handles = pond.register_many(texts)
        registered = time.perf_counter() - began
        pond.ingest("s", batch(0, rows))
        pond.catch_up()
        began = time.perf_counter()
        for number in range(1, pushes + 1):
            pond.ingest("s", batch(number, rows))
            pond.wait_until_matched()
            pond.catch_up()
        rate = rows * pushes / (time.perf_counter() - began)
        began = time.perf_counter()
        for handle in handles[:200]:
            handle.invoke()
        invoked = (time.perf_counter() - began) / min(queries, 200)
    return [window, way, queries, registered / queries * 1e6, rate, invoked * 1e3]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=5_000)
    parser.add_argument("--pushes", type=int, default=10)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--windows", default=";".join(WINDOWS))
    options = parser.parse_args()
    rows = []
    for way in options.ways.split(","):
        for window in options.windows.split(";"):
            rows.append(measure(window, way, options.queries, options.batch, options.pushes))
            print(rows[-1], flush=True)
    heads = ["window", "way", "queries", "registered, µs each", "elements/s", "invoked, ms"]
    show("Windows of rows beside windows over time", heads, rows)


if __name__ == "__main__":
    main()
