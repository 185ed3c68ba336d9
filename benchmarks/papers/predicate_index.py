"""What data arrival rate can one core keep up with, with and without the predicate index?

PSoup, VLDB 2002, figure 9. With: grouped filters, all queries at once. Without: every query's
predicate evaluated on its own over the same batch, by NumPy comparisons. Both write the matches'
segment files; both find the same matches.

    python benchmarks/papers/predicate_index.py [--rows 200000] [--queries 1,10,100,1000,10000]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import sqlglot

from _harness import picture, seconds, show
from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import snapshot_queries
from millpond.engine.matching.results_structure import MatchReader, encode
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.predicates.factors import factorize
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.model.schema import Field, Schema
from millpond.state.arrow_file import write_arrow
from millpond.state.store import new_path
from workloads.interests import ATTRIBUTES, elements, ranges, texts

SCHEMA = Schema(tuple(Field(a, "INTEGER") for a in ATTRIBUTES))


def snapshot(queries: int) -> StemSnapshot:
    """The Query SteM of the workload's first queries."""
    predicates = [t.split(" WHERE ")[1] for t in texts(queries, "s")]
    factors = [factorize(sqlglot.parse_one(p, read="duckdb"), SCHEMA) for p in predicates]
    return snapshot_queries(list(enumerate(factors)), SCHEMA)


def without_index(table: pa.Table, bounds: np.ndarray) -> dict[int, np.ndarray]:
    """Each query's matching rows, one query after the other."""
    columns = [table[a].to_numpy() for a in ATTRIBUTES]
    found = {}
    for slot, query in enumerate(bounds):
        alive = np.ones(table.num_rows, dtype=bool)
        for values, (low, high) in zip(columns, query, strict=True):
            alive &= (values >= low) & (values <= high)
        found[slot] = np.flatnonzero(alive)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--queries", default="1,10,100,1000,10000")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    counts = [int(n) for n in options.queries.split(",")]
    table = elements(options.rows, np.random.default_rng(5))
    rows = []
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as store:
        (Path(store) / "matches").mkdir()
        for queries in counts:
            stem, bounds = snapshot(queries), ranges(queries)

            def indexed(stem: StemSnapshot = stem) -> MatchReader:
                found = match(table, stem, ScalarEvaluator.of_this_thread()).to_table()
                write_arrow(new_path(store, "matches"), found, sync=False, whole=False)
                return MatchReader(found)

            reader = indexed()
            with_index = statistics.median(seconds(indexed) for _ in range(options.repeats))
            sample = table.slice(0, max(1_000, min(options.rows, 200_000_000 // (queries * 100))))

            def plain(sample: pa.Table = sample, bounds: np.ndarray = bounds) -> None:
                pieces = encode(without_index(sample, bounds), sample.num_rows)
                found = pa.Table.from_batches(pieces)
                write_arrow(new_path(store, "matches"), found, sync=False, whole=False)

            alone = statistics.median(seconds(plain) for _ in range(options.repeats))
            for slot, expected in list(without_index(sample, bounds[:50]).items()):
                assert np.array_equal(reader.rows(slot, 0, sample.num_rows), expected)
            rate, plain_rate = options.rows / with_index, sample.num_rows / alone
            rows.append([queries, rate, plain_rate, rate / plain_rate])
    show(
        "Arrival rate with and without the predicate index",
        ["queries", "with, elements/s", "without, elements/s", "times"],
        rows,
    )
    picture(
        "predicate_index",
        "Arrival rate one core keeps up with",
        "queries",
        "elements/s",
        {
            "predicate index": (counts, [r[1] for r in rows]),
            "each predicate alone": (counts, [r[2] for r in rows]),
        },
    )


if __name__ == "__main__":
    main()
