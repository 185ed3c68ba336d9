"""What do a hundred thousand, or a million, standing queries `a = k` cost in one pond?

They are registered 100,000 at a time, in a pond that runs its tasks in this process, without Spark.
Then elements are pushed, of which each matches one query; one more query is registered; and the
store is opened again. Seconds are those of the processor, since others may use the machine.

    python benchmarks/many_queries.py [--queries 100000] [--rows 200000]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from _harness import show
from millpond.testing.local_runtime import open_local

AT_ONCE = 100_000


def resident() -> int:
    """This process's resident memory, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def thread_seconds(act: Callable[[], object]) -> float:
    begun = time.thread_time()
    act()
    return time.thread_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=200_000)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    random = np.random.default_rng(1)

    def text(k: int) -> str:
        return f"SELECT a, b FROM s [RANGE 1 HOUR] WHERE a = {k}"

    def elements(rows: int) -> pa.Table:
        values = random.integers(0, options.queries, rows).astype(np.int32)
        return pa.table({"a": values, "b": values % 9})

    with open_local(base / "store") as pond:
        pond.execute("CREATE STREAM s (a INTEGER, b INTEGER)")
        before, registered = resident(), 0.0
        for low in range(0, options.queries, AT_ONCE):
            texts = [text(k) for k in range(low, min(low + AT_ONCE, options.queries))]
            registered += thread_seconds(lambda t=texts: pond.register_many(t))
        held = (resident() - before) / options.queries
        first = thread_seconds(lambda: pond.ingest("s", elements(options.rows)))
        later = thread_seconds(lambda: pond.ingest("s", elements(options.rows)))
        one_more = thread_seconds(lambda: pond.register(text(options.queries)))
        after = thread_seconds(lambda: pond.ingest("s", elements(10)))
    begun = time.process_time()
    with open_local(base / "store"):
        reopened = time.process_time() - begun
    show(
        f"{options.queries:,} standing queries",
        ["what", "figure"],
        [
            ["registered, s", registered],
            ["µs a query", registered / options.queries * 1e6],
            ["resident bytes a query", held],
            [f"first {options.rows:,} elements, with the laying out, s", first],
            [f"next {options.rows:,} elements, s", later],
            ["one more query, ms", one_more * 1e3],
            ["ten elements after it, ms", after * 1e3],
            ["reopened, s of all threads", reopened],
        ],
    )
    shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
