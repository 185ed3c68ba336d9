"""How fast does somebody catch up who begins to follow a query over a long history?

The elements are kept before anybody follows; each query is registered with its changes from the
beginning, and fetched once, which makes all of them. Windows are of a second, with 100,000 elements
a second, of which a tenth is selected. Seconds by the clock, and by the processor, since others may
use the machine. The pond is in this process, without Spark.

    python benchmarks/serving/catch_up.py [--rows 3000000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))
from _harness import show, spread
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

#: What is followed; `{most}` differs from repeat to repeat, so that nothing is kept of the last.
QUERIES = {
    "selection": "SELECT ts, a FROM s [RANGE 1 SECOND] WHERE a < {most}",
    "selection with a join with a relation": "SELECT s.ts, s.a, r.name FROM s [RANGE 1 SECOND] "
    "JOIN r ON s.k = r.k WHERE s.a < {most}",
    "selection with a join of streams": "SELECT s.ts, s.a, t.a AS b FROM s [RANGE 100 MILLISECONDS]"
    " JOIN t [RANGE 100 MILLISECONDS] ON s.k = t.k WHERE s.a < {most}",
    "group-by": "SELECT k, count(*) AS n FROM s [RANGE 1 SECOND] WHERE a < {most} GROUP BY k",
}
KEYS = VALUES = 1_000
AT_ONCE = 250_000


def fill(pond: Pond, rows: int) -> None:
    """Keep elements: of `s` one every 10 microseconds, of `t` a tenth as many."""
    columns = "(ts TIMESTAMP, k INTEGER, a INTEGER) TIMESTAMP BY ts"
    pond.execute(f"CREATE STREAM s {columns}; CREATE STREAM t {columns}")
    pond.execute("CREATE RELATION r (k INTEGER, name STRING, PRIMARY KEY (k))")
    values = ", ".join(f"({key}, 'n{key}')" for key in range(KEYS))
    pond.execute(f"INSERT INTO r VALUES {values}")
    random = np.random.default_rng(1)
    for first in range(0, rows, AT_ONCE):
        for name, every in (("s", 1), ("t", 10)):
            places = np.arange(first, min(first + AT_ONCE, rows), every)
            table = {"ts": pa.array(places * 10, pa.timestamp("us"))}
            for column, size in (("k", KEYS), ("a", VALUES)):
                table[column] = pa.array(random.integers(0, size, len(places)), pa.int32())
            pond.ingest(name, pa.table(table))


def main() -> None:
    """Measure all queries in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in QUERIES}
    with tempfile.TemporaryDirectory() as folder, open_local(Path(folder) / "store") as pond:
        fill(pond, given.rows)
        # The first turn compiles, and does not count.
        for turn in range(given.repeats + 1):
            for name, text in QUERIES.items():
                query = text.format(most=VALUES // 10 + turn)
                handle = pond.register(query, changes="from beginning")
                clock, processor = time.perf_counter(), time.process_time()
                assert handle.fetch(limit=1)
                spent = time.perf_counter() - clock, time.process_time() - processor
                handle.unregister()
                if turn:
                    elements = given.rows * (1.1 if "streams" in name else 1.0)
                    found[name].append((elements / spent[0], elements / spent[1]))
    show(
        f"Catching up over {given.rows:,} elements (load {os.getloadavg()[0]:.0f})",
        ["followed", "elements/s", "by second of the processor"],
        [[name, *map(spread, zip(*rates, strict=True))] for name, rates in found.items()],
    )


if __name__ == "__main__":
    main()
