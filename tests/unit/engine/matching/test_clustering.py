"""Like elements are put side by side where that makes matches smaller, and nowhere else."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine.matching.clustering import Clustering, rank_by_use
from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import snapshot_queries
from millpond.engine.matching.results_structure import (
    CLUSTERED,
    GAPS,
    ORDER,
    SCHEMA,
    Matches,
    MatchReader,
    least_bytes,
)
from millpond.engine.predicates.factors import Factors, factorize
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.engine.values.region_codes import CodableColumn
from millpond.engine.values.value_sets import Domain, interval
from millpond.model.bit_matrix import bits_of_rows
from millpond.model.schema import Field, Schema

SCHEMA_OF = Schema(tuple(Field(name, "INTEGER") for name in "abcde"))
SCALAR = ScalarEvaluator()
SPAN = 10_000


def elements(rows: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    columns = {
        name: pa.array(
            random.integers(0, SPAN, rows).astype(np.int32), mask=random.random(rows) < 0.02
        )
        for name in "abcde"
    }
    return pa.table(columns)


def ranges(count: int, width: float, seed: int = 1, names: str = "abcde") -> dict[int, Factors]:
    random = np.random.default_rng(seed)
    queries = {}
    for slot in range(count):
        lows = random.integers(0, int(SPAN * (1 - width)) + 1, len(names)).tolist()
        high = int(SPAN * width)
        queries[slot] = Factors(
            sets=tuple(
                (name, interval(Domain.INT32, low, low + high))
                for name, low in zip(names, lows, strict=True)
            )
        )
    return queries


def select(table: pa.Table, query: Factors) -> np.ndarray:
    """Find by NumPy what a query of ranges selects."""
    chosen = np.ones(len(table), bool)
    for name, values in query.sets:
        column = table[name].to_numpy(zero_copy_only=False)
        low, high = values.cuts
        chosen &= (column >= low) & (column < high)
    return np.flatnonzero(chosen)


def check(
    table: pa.Table, queries: dict[int, Factors], matches: Matches, whole: bool = True
) -> MatchReader:
    reader, rows, total = matches.reader(), len(table), 0
    for slot, query in queries.items():
        wanted = select(table, query)
        total += len(wanted)
        assert reader.count(slot) == len(wanted)
        assert reader.rows(slot, 0, rows).tolist() == wanted.tolist()
        low, begin, end, high = rows // 5, rows // 4, rows // 2, rows // 2 + 99
        inside = wanted[(wanted >= low) & (wanted < high)]
        assert reader.rows(slot, low, high).tolist() == inside.tolist()
        at_edges = inside[(inside < begin) | (inside >= end)]
        assert reader.open(slot).find_at_edges(low, begin, end, high).tolist() == at_edges.tolist()
    assert not whole or matches.matched == total
    return reader


@pytest.mark.parametrize("rows", [16_384, 65_536, 140_001])
def test_matches_of_ranges_take_half_the_bytes(rows: int) -> None:
    table, queries = elements(rows), ranges(600, 0.57)
    matches = match(table, snapshot_queries(queries.items(), SCHEMA_OF), SCALAR)
    kept = matches.to_table()
    encodings = kept["encoding"].to_pylist()
    assert encodings.count(ORDER) == 1
    assert encodings.count(CLUSTERED) > 500
    counts = kept["count"].to_numpy()[np.array(encodings) == CLUSTERED]
    taken = sum(len(row["data"]) for row in kept.to_pylist() if row["encoding"] == CLUSTERED)
    before = int(least_bytes(counts, rows).sum())
    assert taken < (0.5 if rows >= 65_536 else 0.75) * before
    reader = check(table, queries, matches)
    assert len(reader.slots) == sum(1 for q in queries.values() if len(select(table, q)))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(16_384, 20_000),
    st.integers(1, 5),
    st.floats(0.02, 0.99),
    st.integers(0, 1000),
    st.booleans(),
)
def test_every_query_is_read_as_it_was_matched(
    rows: int, attributes: int, width: float, seed: int, with_lists: bool
) -> None:
    table = elements(rows, seed)
    queries = ranges(200, width, seed, "abcde"[:attributes])
    if with_lists:
        narrow = ranges(100, 0.002, seed + 1, "ab")
        queries |= {1000 + slot: query for slot, query in narrow.items()}
    check(table, queries, match(table, snapshot_queries(queries.items(), SCHEMA_OF), SCALAR))


@pytest.mark.parametrize(("rows", "queries", "width"), [(16_383, 300, 0.57), (20_000, 512, 0.36)])
def test_few_elements_and_few_matches_stay_as_they_came(
    rows: int, queries: int, width: float
) -> None:
    table, wanted = elements(rows), ranges(queries, width)
    matches = match(table, snapshot_queries(wanted.items(), SCHEMA_OF), SCALAR)
    assert not {CLUSTERED, ORDER} & set(matches.to_table()["encoding"].to_pylist())
    check(table, wanted, matches)


def test_queries_that_gain_little_are_kept_otherwise() -> None:
    """Each looks at one of so many attributes that the order is of the others."""
    names, rows = [f"v{n}" for n in range(20)], 20_000
    random = np.random.default_rng(2)
    table = pa.table({n: random.integers(0, SPAN, rows).astype(np.int32) for n in names})
    values = interval(Domain.INT32, 1_000, 1_600)
    queries = {slot: Factors(sets=((names[slot % 20], values),)) for slot in range(200)}
    schema = Schema(tuple(Field(name, "INTEGER") for name in names))
    matches = match(table, snapshot_queries(queries.items(), schema), SCALAR)
    check(table, queries, matches)
    kept = [row for row in matches.to_table().to_pylist() if row["encoding"] != ORDER]
    assert {row["encoding"] for row in kept} == {CLUSTERED, GAPS}
    for row in kept:
        at_most = 0.8 if row["encoding"] == CLUSTERED else 1
        assert len(row["data"]) <= at_most * int(least_bytes(row["count"], rows))


def test_a_batch_that_gains_little_is_not_ordered_further() -> None:
    rows = 20_000
    column = CodableColumn(elements(rows)["a"], Domain.INT32)
    snapshot = snapshot_queries(ranges(100, 0.5, names="a").items(), SCHEMA_OF)
    clustering = Clustering(rows, snapshot.blocks, lambda _: column)
    clustering.begin(np.zeros((1, rows), np.int32))
    assert clustering.take(0.06) is not None
    scattered = np.stack([bits_of_rows(np.arange(first, rows, 16), rows) for first in range(3)])
    counts = np.bitwise_count(scattered).sum(axis=1)
    written = clustering.write(scattered, np.arange(3), least_bytes(counts, rows))
    assert len(written.queries) == 0
    assert clustering.take(0.06) is None


def test_what_most_queries_look_at_comes_first() -> None:
    queries = ranges(50, 0.5, names="d") | {
        100 + slot: query for slot, query in ranges(150, 0.5, names="bd").items()
    }
    either = tuple((name, interval(Domain.INT32, 5, 9)) for name in "ec")
    queries |= {300 + slot: Factors(clauses=(either,)) for slot in range(20)}
    snapshot = snapshot_queries(queries.items(), SCHEMA_OF)
    assert rank_by_use(snapshot.blocks) == ["d", "b", "c", "e"]


def test_queries_that_look_at_other_values_gain_too() -> None:
    """The first queries' constants are all below those of the last; there are two groups."""
    table = elements(65_536)
    queries = {
        slot: Factors(sets=(("a", interval(Domain.INT32, 2 * slot, SPAN)),))
        for slot in range(4_900)
    }
    matches = match(table, snapshot_queries(queries.items(), SCHEMA_OF), SCALAR)
    kept = matches.to_table()
    assert kept.num_rows == 4_900 + 1
    assert sum(len(data) for data in kept["data"].to_pylist()) < 4_900 * 65_536 / 8 / 5
    check(table, {slot: queries[slot] for slot in range(0, 4_900, 700)}, matches, whole=False)


def test_others_decide_on_rows_in_their_order() -> None:
    table = elements(20_000)
    texts = [f"a > {10 * n} AND b < {9_000 - n} AND (c + d) % 3 = {n % 3}" for n in range(40)]
    texts += [f"a > {20 * n} AND b < {5_000 - n}" for n in range(80)]
    parsed = [factorize(sqlglot.parse_one(text, read="duckdb"), SCHEMA_OF) for text in texts]
    matches = match(table, snapshot_queries(enumerate(parsed), SCHEMA_OF), SCALAR)
    assert CLUSTERED in matches.to_table()["encoding"].to_pylist()
    a, b, c, d = (table[n].to_numpy(zero_copy_only=False) for n in "abcd")
    for n in range(40):
        wanted = (a > 10 * n) & (b < 9_000 - n) & ((c + d) % 3 == n % 3)
        assert matches.reader().rows(n, 0, 20_000).tolist() == np.flatnonzero(wanted).tolist()


def test_each_order_holds_for_the_pieces_behind_it() -> None:
    table, pieces = elements(20_000), []
    for first in (0, 300):
        queries = ranges(300, 0.57, seed=first)
        shifted = {first + slot: query for slot, query in queries.items()}
        matches = match(table, snapshot_queries(shifted.items(), SCHEMA_OF), SCALAR)
        pieces += matches.batches
    together = pa.Table.from_batches(pieces, SCHEMA)
    for kept in (together, together.combine_chunks()):
        reader = MatchReader(kept)
        for first in (0, 300):
            for slot, query in ranges(300, 0.57, seed=first).items():
                rows = reader.rows(first + slot, 0, 20_000)
                assert rows.tolist() == select(table, query).tolist()
