"""What do a hundred thousand, or a million, standing queries `a = k` cost in one pond?

They are registered 100,000 at a time, in a pond that runs its tasks in this process, without Spark.
Then elements are pushed, of which each matches one query; one more query is registered; and the
store is opened again. Seconds are those of the processor, since others may use the machine.

    python benchmarks/registration.py --many 100000 [--rows 200000]
"""

from __future__ import annotations

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


def show_many(queries: int, rows: int) -> None:
    """Measure so many queries, and pushes of so many rows; print the result."""
    base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    random = np.random.default_rng(1)

    def text(k: int) -> str:
        return f"SELECT a, b FROM s [RANGE 1 HOUR] WHERE a = {k}"

    def elements(number: int) -> pa.Table:
        values = random.integers(0, queries, number).astype(np.int32)
        return pa.table({"a": values, "b": values % 9})

    with open_local(base / "store") as pond:
        pond.execute("CREATE STREAM s (a INTEGER, b INTEGER)")
        before, registered = resident(), 0.0
        for low in range(0, queries, AT_ONCE):
            texts = [text(k) for k in range(low, min(low + AT_ONCE, queries))]
            registered += thread_seconds(lambda t=texts: pond.register_many(t))
        held = (resident() - before) / queries
        first = thread_seconds(lambda: pond.ingest("s", elements(rows)))
        later = thread_seconds(lambda: pond.ingest("s", elements(rows)))
        one_more = thread_seconds(lambda: pond.register(text(queries)))
        after = thread_seconds(lambda: pond.ingest("s", elements(10)))
    begun = time.process_time()
    with open_local(base / "store"):
        reopened = time.process_time() - begun
    show(
        f"{queries:,} standing queries",
        ["what", "figure"],
        [
            ["registered, s", registered],
            ["µs a query", registered / queries * 1e6],
            ["resident bytes a query", held],
            [f"first {rows:,} elements, with the laying out, s", first],
            [f"next {rows:,} elements, s", later],
            ["one more query, ms", one_more * 1e3],
            ["ten elements after it, ms", after * 1e3],
            ["reopened, s of all threads", reopened],
        ],
    )
    shutil.rmtree(base, ignore_errors=True)
