"""What does a longer state of a tuple cost? CACQ's figure 4.

CACQ gives each tuple a bit for each query, also for those that do not read it, and its throughput
falls as the state grows from 15 to 3,000 bits with five queries. Here a batch has bits for blocks
of 512 queries: the five queries are spread over more and more blocks, whose other queries are on
another attribute and no element satisfies them.

    python benchmarks/papers/tuple_state.py [--rows 200000] [--repeats 5]
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import pyarrow as pa

from _harness import picture, show
from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import Leading, snapshot_queries
from millpond.engine.predicates.factors import Factors
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.engine.values.value_sets import Domain, interval
from millpond.model.schema import Field, Schema

SCHEMA = Schema(tuple(Field(name, "INTEGER") for name in "ab"))
BITS = (15, 100, 512, 1_000, 2_000, 3_000, 10_000)
#: All queries are in blocks: none leads an element to itself.
BLOCKS = Leading(least=10**9)


def spread_out(bits: int) -> list[Factors]:
    """Five queries on a that elements satisfy, among others on b that none satisfies."""
    others = [
        Factors(sets=(("b", interval(Domain.INT32, 1_000 + i, 1_000 + i)),)) for i in range(bits)
    ]
    for number in range(5):
        low = 10 * number
        wanted = Factors(sets=(("a", interval(Domain.INT32, low, low + 30)),))
        others[number * (bits - 1) // 4] = wanted
    return others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    random = np.random.default_rng(4)
    values = {name: random.integers(0, 100, options.rows).astype(np.int32) for name in "ab"}
    table, scalar = pa.table(values), ScalarEvaluator()
    snapshots = {
        bits: snapshot_queries(enumerate(spread_out(bits)), SCHEMA, BLOCKS) for bits in BITS
    }
    found: dict[int, int] = {}
    spent: dict[int, list[float]] = {bits: [] for bits in BITS}
    for _ in range(options.repeats + 1):  # in turns; the first of each compiles
        for bits, snapshot in snapshots.items():
            begun = time.thread_time()
            matches = match(table, snapshot, scalar).to_table()
            spent[bits].append(time.thread_time() - begun)
            found[bits] = int(np.sum(matches["count"].to_numpy(), dtype=np.int64))
    assert len(set(found.values())) == 1, found
    rates = [options.rows / statistics.median(spent[bits][1:]) for bits in BITS]
    rows = [[bits, rate, rate / rates[0]] for bits, rate in zip(BITS, rates, strict=True)]
    show("Tuple state (CACQ figure 4)", ["bits", "elements/s", "of the first"], rows)
    picture(
        "tuple_state", "State of a tuple (CACQ, 4)", "bits", "elements/s", {"here": (BITS, rates)}
    )


if __name__ == "__main__":
    main()
