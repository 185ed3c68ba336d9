"""How many elements and changes a second do 1 and 100 sliding group-bys follow?

Every query groups 1,000 keys over a sliding window of minutes and takes back its row of a group
and gives the new one at every arrival and every expiration. The hundred differ in window, filter,
aggregates and HAVING. Beside it: DuckDB answering the queries anew, once for each batch (which
says nothing of the instants between) and, by the same measurement, at every arrival; and, where it
is installed (`make peers`), Flink SQL with an OVER window for each query, which tells of arrivals
and not of expirations.

    python benchmarks/sliding_aggregates.py [--elements 400000] [--queries 1 100] [--no-peers]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
from tests.oracle.oracle_pond import OraclePond
from tests.oracle.world import World
from tests.tools.changes_play import plan_query

from _harness import console, show
from millpond.engine.dataflow.dataflow import Dataflow
from millpond.planner.dataflow.plan import Plan
from peers import flink

KEYS = 1_000
#: Elements a second of the stream's own time: a window of ten minutes holds 120,000.
RATE = 200
SECOND = 1_000_000

AGGREGATES = (
    "COUNT(*) AS n, SUM(size) AS total",
    "COUNT(*) AS n, AVG(price) AS mean",
    "SUM(price) AS total, COUNT(price) AS n",
    "AVG(size) AS mean, COUNT(*) AS n",
    "COUNT(*) FILTER (WHERE size > 50) AS big, COUNT(*) AS n",
    "SUM(size) FILTER (WHERE price > 500) AS total, COUNT(*) AS n",
    "MAX(price) AS most, COUNT(*) AS n",
    "MIN(price) AS least, MAX(price) AS most, COUNT(*) AS n",
    "stddev_samp(price) AS spread, COUNT(*) AS n",
    "COUNT(*) AS n, SUM(size * 2) AS twice",
)


def queries(count: int) -> list[str]:
    """The first is the one that is asked alone."""
    found = []
    for i in range(count):
        minutes = 10 - i // 10 % 10
        having = f" HAVING n > {i // 100}" if i % 3 == 2 else ""
        found.append(
            f"SELECT k, {AGGREGATES[i % 10]} FROM s [RANGE {minutes} MINUTES] GROUP BY k{having}"
        )
    return found


def feed(elements: int, seed: int = 1) -> pa.Table:
    """Elements in time order."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, elements * SECOND // RATE, elements))
    return pa.table(
        {
            "__ts": at,
            "__seq": np.arange(elements),
            "k": rng.integers(0, KEYS, elements).astype(np.int32),
            "size": rng.integers(0, 100, elements).astype(np.int32),
            "price": np.round(rng.uniform(0, 1_000, elements), 2),
        }
    )


def world() -> World:
    """The catalog the queries are bound against."""
    pond = OraclePond()
    pond.execute(
        "CREATE STREAM s (at TIMESTAMP, k INTEGER, size INTEGER, price DOUBLE) "
        "TIMESTAMP BY at DELAY 0 SECONDS"
    )
    return pond.world


def follow(plans: Sequence[Plan], table: pa.Table, batch: int) -> tuple[float, int]:
    """Seconds to follow the queries through a feed, and changes they gave."""
    flow = Dataflow(*plans)
    stamps = table["__ts"].to_numpy()
    changes, spent = 0, 0.0
    for low in range(0, table.num_rows, batch):
        part = table.slice(low, batch)
        # Whole instants only: those of the next batch's first element wait for it.
        upto = int(stamps[low + batch]) - 1 if low + batch < table.num_rows else int(stamps[-1])
        part = part.filter(pa.array(part["__ts"].to_numpy() <= upto))
        start = time.perf_counter()
        given = flow.advance({"s": part}, upto)
        spent += time.perf_counter() - start
        changes += sum(delta.num_rows for delta in given.values())
    return spent, changes


def anew(texts: Sequence[str], table: pa.Table, batch: int) -> float:
    """Seconds DuckDB takes to answer the queries once after each batch."""
    stamps = table["__ts"].to_numpy()
    spent = 0.0
    with duckdb.connect(config={"threads": "1"}) as connection:
        for low in range(0, table.num_rows, batch):
            end = min(low + batch, table.num_rows)
            now = int(stamps[end - 1])
            kept = table.slice(0, end)
            start = time.perf_counter()
            for text in texts:
                head, window, tail = text.replace("]", "[").split("[")
                size = int(window.split()[1]) * 60 * SECOND
                first = int(np.searchsorted(stamps[:end], now - size, side="right"))
                connection.register("s", kept.slice(first))
                connection.sql(head + tail).to_arrow_table()
            spent += time.perf_counter() - start
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=400_000)
    parser.add_argument("--batch", type=int, default=20_000)
    parser.add_argument("--queries", type=int, nargs="*", default=[1, 100])
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    catalog = world()
    rows: list[list[object]] = []
    for count in options.queries:
        texts = queries(count)
        elements = options.elements if count == 1 else max(options.elements // 10, 40_000)
        table = feed(elements)
        plans = [plan_query(catalog, text) for text in texts]
        follow(plans, table.slice(0, options.batch), options.batch)
        spent, changes = follow(plans, table, options.batch)
        rows.append(["Millpond, every change", count, elements / spent, changes / spent])
        seconds = anew(texts, table, options.batch)
        rounds = -(-elements // options.batch)
        rows.append(["DuckDB anew, once a batch", count, elements / seconds, None])
        rows.append(["DuckDB anew, at every arrival", count, rounds / seconds, None])
        if flink.is_installed() and not options.no_peers:
            few, many = (50_000, 450_000) if count == 1 else (4_000, 24_000)
            rate = flink.rate("flink_sliding.py", few, many, count)
            rows.append(["Flink SQL, every arrival", count, rate, rate * count])
    if not flink.is_installed():
        console.print(flink.MISSING)
    show("sliding aggregates", ["", "queries", "elements/s", "changes/s"], rows)


if __name__ == "__main__":
    main()
