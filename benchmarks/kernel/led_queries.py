"""What do standing queries cost that few elements match, when there are up to a million of them?

One core joins a batch with queries `a = k`, `s = 'k'`, narrow ranges, and mixtures: equalities on
one or two attributes and a range, the constants drawn uniformly or by Zipf's law, and elements as
well. An element matches about one query, however many there are, but for the Zipf mixture, whose
matches grow. Beside it the same queries in blocks alone, in turn in the same process; both find the
same matches.

    python benchmarks/match_kernel.py --led [--rows 200000] [--queries 1000,10000,100000,1000000]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from _harness import picture, show
from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import Leading, QuerySteM, snapshot_queries
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.predicates.factors import Factors
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.engine.values.value_sets import Domain, interval, points
from millpond.model.schema import Field, Schema

SCHEMA = Schema(
    (Field("a", "INTEGER"), Field("b", "INTEGER"), Field("c", "INTEGER"), Field("s", "VARCHAR"))
)
BLOCKS = Leading(least=10**9)
SPAN = 1_000_000
#: Blocks alone are measured up to so many queries, on fewer elements where there are many.
MOST_IN_BLOCKS = 100_000

Workload = tuple[list[Factors], pa.Table]


def one(value: int) -> object:
    return points(Domain.INT32, [int(value)])


def between(low: int, width: int) -> object:
    return interval(Domain.INT32, int(low), int(low) + width)


def equalities(queries: int, rows: int, random: np.random.Generator) -> Workload:
    factors = [Factors(sets=(("a", one(k)),)) for k in random.permutation(queries)]
    return factors, pa.table({"a": random.integers(0, queries, rows).astype(np.int32)})


def names(queries: int, rows: int, random: np.random.Generator) -> Workload:
    def name(k: int) -> str:
        return f"user_{k * 7919 % 10_000_019:08d}"

    factors = [
        Factors(sets=(("s", points(Domain.TEXT, [name(k).encode()])),)) for k in range(queries)
    ]
    return factors, pa.table({"s": [name(k) for k in random.integers(0, queries, rows).tolist()]})


def narrow_ranges(queries: int, rows: int, random: np.random.Generator) -> Workload:
    width = max(1, SPAN * 1000 // queries)
    factors = [
        Factors(sets=(("a", between(low, width)),))
        for low in random.integers(0, SPAN * 1000, queries)
    ]
    return factors, pa.table({"a": random.integers(0, SPAN * 1000, rows).astype(np.int32)})


def mixture(queries: int, rows: int, random: np.random.Generator) -> Workload:
    """`a = k AND c BETWEEN …`, and every other one `AND b = j` too; constants are uniform."""
    domain = max(1, queries // 4)
    return _mixture(
        random.integers(0, domain, queries), random.integers(0, domain, rows), queries, rows, random
    )


def zipf(queries: int, rows: int, random: np.random.Generator) -> Workload:
    """The mixture with constants and elements by Zipf's law (exponent 1.1, a tenth as many)."""
    weights = 1 / np.arange(1, max(10, queries // 10) + 1) ** 1.1
    weights /= weights.sum()
    return _mixture(
        random.choice(len(weights), queries, p=weights),
        random.choice(len(weights), rows, p=weights),
        queries,
        rows,
        random,
    )


def _mixture(
    constants: np.ndarray, values: np.ndarray, queries: int, rows: int, random: np.random.Generator
) -> Workload:
    width = SPAN // 4
    lows = random.integers(0, SPAN - width, queries)
    others = random.integers(0, 100, queries)
    factors = []
    for i in range(queries):
        sets = [("a", one(constants[i]))]
        if i % 2:
            sets.append(("b", one(others[i])))
        sets.append(("c", between(lows[i], width)))
        factors.append(Factors(sets=tuple(sets)))
    table = {
        "a": values.astype(np.int32),
        "b": random.integers(0, 100, rows).astype(np.int32),
        "c": random.integers(0, SPAN, rows).astype(np.int32),
    }
    return factors, pa.table(table)


WORKLOADS: dict[str, Callable[[int, int, np.random.Generator], Workload]] = {
    "a = k": equalities,
    "s = 'k'": names,
    "narrow range": narrow_ranges,
    "mixture": mixture,
    "Zipf mixture": zipf,
}


def measure(runs: dict[str, tuple[pa.Table, StemSnapshot]], repeats: int) -> dict[str, float]:
    """Elements a second of one core's time, of each run, measured in turn; medians."""
    scalar = ScalarEvaluator()
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, (table, snapshot) in runs.items():
            begun = time.thread_time()
            match(table, snapshot, scalar)
            spent[name].append(time.thread_time() - begun)
    return {n: runs[n][0].num_rows / statistics.median(all_) for n, all_ in spent.items()}


def show_led(rows_a_batch: int, counts: list[int], workloads: list[str], repeats: int) -> None:
    """Measure the workloads with so many queries; print and draw the result."""
    scalar = ScalarEvaluator()
    rows, lines = [], {}
    for name in workloads:
        rates: list[float] = []
        for count in counts:
            random = np.random.default_rng(count)
            factors, table = WORKLOADS[name](count, rows_a_batch, random)
            stem = QuerySteM(SCHEMA)
            begun = time.thread_time()
            for slot, query in enumerate(factors):
                stem.add(slot, query)
            snapshot = stem.snapshot()
            built = time.thread_time() - begun
            led = sum(map(len, snapshot.led))
            found = match(table, snapshot, scalar).to_table()
            matches = int(np.sum(found["count"].to_numpy(), dtype=np.int64)) / rows_a_batch
            runs = {"led": (table, snapshot)}
            if count <= MOST_IN_BLOCKS:
                blocks = snapshot_queries(enumerate(factors), SCHEMA, BLOCKS)
                part = table.slice(0, min(rows_a_batch, 2_000_000_000 // count))
                same = match(part, blocks, scalar).to_table().sort_by("slot")
                assert match(part, snapshot, scalar).to_table().sort_by("slot").equals(same)
                runs["blocks"] = (part, blocks)
            measured = measure(runs, repeats)
            rate, in_blocks = measured["led"], measured.get("blocks")
            rates.append(rate)
            extra = len(factors)
            begun = time.thread_time()
            stem.add(extra, factors[0])
            stem.snapshot()
            more = time.thread_time() - begun
            held = sum(index.nbytes for index in snapshot.led) + sum(
                block.nbytes for block in snapshot.blocks
            )
            rows.append(
                [
                    name,
                    count,
                    f"{100 * led / count:.0f} %",
                    f"{matches:.2f}",
                    rate,
                    in_blocks,
                    rate / rates[0],
                    rate * matches,
                    built,
                    more * 1e3,
                    held / count,
                ]
            )
        lines[name] = (counts, rates)
    show(
        "Led queries, one core",
        [
            "queries",
            "number",
            "led",
            "matches an element",
            "elements/s",
            "in blocks",
            "of the first",
            "matches/s",
            "laid out, s",
            "one more, ms",
            "bytes a query",
        ],
        rows,
    )
    picture("led_queries", "Queries that few elements match", "queries", "elements/s", lines)
