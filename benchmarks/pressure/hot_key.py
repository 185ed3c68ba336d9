"""What do sums and extremes of a join cost by how many partners a row has, with pairs and without?

Two streams are joined in windows of ten seconds with 10,000 elements a second each, and a sum, or
the least and the greatest value, is followed by group. All values of the key are equally frequent,
or half of the elements have one of them. Both ways give the same changes to the last bit, which is
checked. Seconds of the processor, the median of some turns; `refused` is POND-405: more than 5
million pairs in a step.

    make bench NAME=hot_key
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import plan_query

from _harness import show, spread
from millpond.engine.dataflow.dataflow import Dataflow
from millpond.planner.dataflow.plan import Plan
from millpond.planner.optimize.cost import find_cheapest, strip_expire
from millpond.planner.optimize.rules import Rule, rewrite
from millpond.planner.optimize.rules.extremes_by_key import extremes_by_key
from millpond.planner.optimize.rules.sum_by_key import sum_by_key
from millpond.planner.optimize.statistics import GuessedStatistics
from millpond.testing.manual_clock import ManualClock

WINDOW = "[RANGE 10 SECONDS]"
#: What is followed, and the rewritings that do it without pairs.
QUERIES: dict[str, tuple[str, tuple[Rule, ...]]] = {
    "sums": ("count(*) AS n, sum(t.x) AS x", (sum_by_key,)),
    "extremes": ("min(t.x) AS x, max(t.x) AS y", (extremes_by_key,)),
    "both": ("count(*) AS n, sum(t.x) AS x, max(t.x) AS y", (extremes_by_key, sum_by_key)),
}
#: Values of the key, and the share of the elements that have the first of them.
KEYS = ((1_000_000, 0.0), (50_000, 0.0), (20_000, 0.0), (1_000, 0.0), (1_000, 0.5))
#: Elements of a step; microseconds between two.
STEP, EVERY = 500, 100


def make_steps(rows: int, keys: int, share: float) -> Iterator[tuple[dict[str, pa.Table], int]]:
    """Make the elements of both streams, step by step, and each step's last instant."""
    random = np.random.default_rng(1)
    for low in range(0, rows, STEP):
        places = np.arange(low, min(low + STEP, rows))
        given = {}
        for name in "st":
            many = random.random(len(places)) < share
            drawn = np.where(many, 0, random.integers(1, keys, len(places)))
            given[name] = pa.table(
                {
                    "k": pa.array(drawn, pa.int32()),
                    "p": pa.array(random.integers(0, 5, len(places)), pa.int32()),
                    "x": pa.array(random.random(len(places)) * 1000),
                    "__ts": pa.array(places * EVERY, pa.int64()),
                    "__seq": pa.array(places, pa.int64()),
                }
            )
        yield given, int(places[-1]) * EVERY


def run(plan: Plan, steps: list[tuple[dict[str, pa.Table], int]]) -> tuple[float, int, str] | None:
    """Follow the query: seconds of the processor, changes, their digest; None if refused."""
    flow, digest, changes = Dataflow(plan), hashlib.sha256(), 0
    started = time.process_time()
    for given, upto in steps:
        rows = flow.advance(given, upto).get(plan.key)
        if rows is None:
            return None
        changes += rows.num_rows
        for column in rows.columns:
            digest.update(repr(column.combine_chunks().to_pylist()[-50:]).encode())
    return time.process_time() - started, changes, digest.hexdigest()


def main() -> None:
    """Measure both ways in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    pond = OraclePond(ManualClock())
    for name in "st":
        columns = "(ts TIMESTAMP, k INTEGER, p INTEGER, x DOUBLE) TIMESTAMP BY ts"
        pond.execute(f"CREATE STREAM {name} {columns}")
    for name, (wanted, rules) in QUERIES.items():
        joined = f"FROM s {WINDOW} JOIN t {WINDOW} ON s.k = t.k"
        planned = plan_query(pond.world, f"SELECT s.p, {wanted} {joined} GROUP BY s.p")
        measure(name, planned, rules, given.rows, given.repeats)


def measure(name: str, planned: Plan, rules: tuple[Rule, ...], rows: int, repeats: int) -> None:
    """Measure a query with pairs and without, and show both."""
    root, known = strip_expire(planned.root), GuessedStatistics()
    plans = {
        "pairs": replace(planned, root=find_cheapest(root, known, rules=())),
        "none": replace(planned, root=find_cheapest(rewrite(root, rules), known, rules=())),
    }
    table = []
    for keys, share in KEYS:
        steps = list(make_steps(rows, keys, share))
        found: dict[str, list[tuple[float, int, str] | None]] = {way: [] for way in plans}
        for _ in range(repeats):
            for way, plan in plans.items():
                found[way].append(run(plan, steps))
        results = {one[1:] for runs in found.values() for one in runs if one is not None}
        assert len(results) == 1, "the two ways differ"
        partners = min(rows, 100_000) * ((1 - share) ** 2 / keys + share**2)
        cells = {
            way: spread([one[0] for one in runs if one]) if all(runs) else "refused"
            for way, runs in found.items()
        }
        table.append((f"{keys:,}", f"{share:.0%}", partners, *cells.values()))
    columns = ("keys", "of the first", "partners a row", "with pairs, s", "without, s")
    show(f"{name.capitalize()} of a join over {rows:,} elements a stream", columns, table)


if __name__ == "__main__":
    main()
