"""How many elements and changes a second do 1 and 100 sliding group-bys follow?

Every query groups 1,000 keys over a sliding window of minutes and takes back its row of a group
and gives the new one at every arrival and every expiration. The hundred differ in window, filter,
aggregates and HAVING. Beside it: DuckDB and Polars answering the queries anew, once for each batch
(which says nothing of the instants between) and, by the same measurement, at every arrival; and,
where it is installed (`make peers`), Flink SQL with an OVER window for each query, which tells of
arrivals and not of expirations. Millpond's changes are added up, and compared with the last answers
of DuckDB and Polars.

    python benchmarks/sliding_aggregates.py [--elements 400000] [--queries 1 100] [--no-peers]
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tests.oracle.oracle_pond import OraclePond
from tests.oracle.world import World
from tests.tools.changes_play import plan_query

from _harness import console, show
from millpond.engine.dataflow.dataflow import Dataflow
from millpond.planner.dataflow.plan import Plan
from peers import flink
from peers.answering_anew import Answer, Asked, through_duckdb, through_polars

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


def queries(count: int) -> list[Asked]:
    """The first is the one that is asked alone."""
    return [(i % 10, 10 - i // 10 % 10, i // 100 if i % 3 == 2 else None) for i in range(count)]


def text(asked: Asked) -> str:
    """A query in CQL."""
    number, minutes, least = asked
    having = "" if least is None else f" HAVING n > {least}"
    return f"SELECT k, {AGGREGATES[number]} FROM s [RANGE {minutes} MINUTES] GROUP BY k{having}"


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


def follow(plans: Sequence[Plan], table: pa.Table, batch: int) -> tuple[float, int, list[Answer]]:
    """Seconds to follow the queries through a feed, changes they gave, and what they add up to."""
    flow = Dataflow(*plans)
    stamps = table["__ts"].to_numpy()
    changes, spent = 0, 0.0
    sums: list[Counter[tuple[object, ...]]] = [Counter() for _ in plans]
    for low in range(0, table.num_rows, batch):
        part = table.slice(low, batch)
        # Whole instants only: those of the next batch's first element wait for it.
        upto = int(stamps[low + batch]) - 1 if low + batch < table.num_rows else int(stamps[-1])
        part = part.filter(pa.array(part["__ts"].to_numpy() <= upto))
        start = time.perf_counter()
        given = flow.advance({"s": part}, upto)
        spent += time.perf_counter() - start
        changes += sum(delta.num_rows for delta in given.values())
        for plan, total in zip(plans, sums, strict=True):
            add(total, given[plan.key])
    return spent, changes, [{row[0]: row[1:] for row in rows} for rows in map(held, sums)]


def add(total: Counter[tuple[object, ...]], changes: pa.Table) -> None:
    """Add changes to what a query's rows add up to."""
    names = [name for name in changes.column_names if not name.startswith("__")]
    net = changes.group_by(names).aggregate([("__sign", "sum")])
    net = net.filter(pc.not_equal(net["__sign_sum"], 0))
    rows = zip(*(net[name].to_pylist() for name in names), strict=True)
    for row, sign in zip(rows, net["__sign_sum"].to_pylist(), strict=True):
        total[row] += sign


def held(total: Counter[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The rows that are there, each of them once."""
    rows = [row for row, count in total.items() if count]
    assert all(total[row] == 1 for row in rows)
    return rows


def compare(own: list[Answer], others: list[Answer], peer: str) -> None:
    """All answers are equal, doubles but for their rounding."""
    for number, (mine, theirs) in enumerate(zip(own, others, strict=True)):
        assert mine.keys() == theirs.keys(), (peer, number)
        for key, row in mine.items():
            pairs = zip(row, theirs[key], strict=True)
            equal = all(
                x == y or (None not in (x, y) and math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-9))
                for x, y in pairs
            )
            assert equal, (peer, number, key, row, theirs[key])


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
        asked = queries(count)
        texts = [text(one) for one in asked]
        elements = options.elements if count == 1 else max(options.elements // 10, 40_000)
        table = feed(elements)
        plans = [plan_query(catalog, one) for one in texts]
        follow(plans, table.slice(0, options.batch), options.batch)
        spent, changes, answers = follow(plans, table, options.batch)
        rows.append(["Millpond, every change", count, elements / spent, changes / spent])
        rounds = -(-elements // options.batch)
        for name, (took, last) in {
            "DuckDB": through_duckdb(texts, table, options.batch),
            "Polars": through_polars(asked, table, options.batch),
        }.items():
            compare(answers, last, name)
            rows.append([f"{name} anew, once a batch", count, elements / took, None])
            rows.append([f"{name} anew, at every arrival", count, rounds / took, None])
        if flink.is_installed() and not options.no_peers:
            few, many = (50_000, 450_000) if count == 1 else (4_000, 24_000)
            rate = flink.rate("flink_sliding.py", few, many, count)
            rows.append(["Flink SQL, every arrival", count, rate, rate * count])
    if not flink.is_installed():
        console.print(flink.MISSING)
    show("Sliding aggregates", ["", "queries", "elements/s", "changes/s"], rows)


if __name__ == "__main__":
    main()
