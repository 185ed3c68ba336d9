"""The query-data join: both loops, encodings, layers, groups, and what fails alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine.matching import match as match_module
from millpond.engine.matching.match import Matches, MatchReader, match
from millpond.engine.matching.query_stem import Leading, snapshot_queries
from millpond.engine.matching.results_structure import (
    ALL,
    CLUSTERED,
    DENSE,
    GAPS,
    LIST,
    ORDER,
    SCHEMA,
    encode,
)
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.predicates.factors import Factors, factorize
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.engine.values.value_sets import Domain, interval, points
from millpond.model.schema import Field, Schema

STREAM = Schema((Field("a", "INTEGER"), Field("b", "DOUBLE"), Field("s", "VARCHAR")))
SCALAR = ScalarEvaluator()


def factors(text: str) -> Factors:
    return factorize(sqlglot.parse_one(text, read="duckdb"), STREAM)


def stem(*texts: str) -> StemSnapshot:
    return snapshot_queries(((i, factors(t)) for i, t in enumerate(texts)), STREAM)


def elements(rows: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "a": pa.array(
                random.integers(0, 1000, rows).astype(np.int32), mask=random.random(rows) < 0.1
            ),
            "b": pa.array(random.normal(0, 10, rows)),
            "s": pa.array([f"n{i}" for i in random.integers(0, 50, rows)]),
        }
    )


def rows_of(matches: Matches) -> dict[int, list[int]]:
    reader = matches.reader()
    found = {int(s): reader.rows(int(s), 0, matches.rows).tolist() for s in reader.slots}
    for slot, rows in found.items():
        assert rows
        assert reader.count(slot) == len(rows)
    return found


def naive(table: pa.Table, queries: dict[int, Factors]) -> dict[int, list[int]]:
    """What sets and clauses select, row by row; only over `a` and `s`."""
    a = table["a"].to_pylist()
    s = [v.encode() if v is not None else None for v in table["s"].to_pylist()]
    rows = [{"a": a[i], "s": s[i]} for i in range(len(a))]
    found = {}
    for slot, query in queries.items():
        hits = [
            i
            for i, row in enumerate(rows)
            if all(row[n] in v for n, v in query.sets)
            and all(any(row[n] in v for n, v in clause) for clause in query.clauses)
        ]
        if hits:
            found[slot] = hits
    return found


def many_queries(count: int, width: int, seed: int = 3) -> dict[int, Factors]:
    """Ranges, points and clauses over two attributes."""
    random = np.random.default_rng(seed)
    queries = {}
    for slot in range(count):
        low = int(random.integers(0, 1000))
        ranged = interval(Domain.INT32, low, low + width)
        named = points(Domain.TEXT, [b"n%d" % i for i in random.integers(0, 50, 3)])
        kind = slot % 3
        if kind == 0:
            queries[slot] = Factors(sets=(("a", ranged),))
        elif kind == 1:
            queries[slot] = Factors(sets=(("a", ranged), ("s", named)))
        else:
            queries[slot] = Factors(clauses=((("a", ranged), ("s", named)),))
    return queries


@pytest.mark.parametrize("sparse_below", [0.0, 1e9], ids=["dense", "sparse"])
@pytest.mark.parametrize("rows", [1, 63, 64, 511, 512, 513, 1500])
def test_both_loops_find_the_same(
    monkeypatch: pytest.MonkeyPatch, sparse_below: float, rows: int
) -> None:
    monkeypatch.setattr(match_module, "_SPARSE_BELOW", sparse_below)
    table = elements(rows)
    queries = many_queries(90, 300)
    snapshot = snapshot_queries(queries.items(), STREAM)
    assert rows_of(match(table, snapshot, SCALAR)) == naive(table, queries)


@pytest.mark.parametrize("width", [1, 400])
def test_many_blocks_in_several_groups(width: int) -> None:
    table = elements(80)
    queries = many_queries(5000, width)
    snapshot = snapshot_queries(queries.items(), STREAM, Leading(least=10_000))
    assert len(snapshot.blocks) > match_module.GROUP
    assert rows_of(match(table, snapshot, SCALAR)) == naive(table, queries)
    led = snapshot_queries(queries.items(), STREAM)
    assert bool(led.led) == (width == 1)
    assert rows_of(match(table, led, SCALAR)) == naive(table, queries)


def test_pairs_that_outgrow_their_room_are_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_module, "_SPARSE_BELOW", 0.01)
    monkeypatch.setattr(match_module, "_SAMPLE", 1)
    table = elements(4000)
    # The only element that is watched matches nothing.
    table = table.set_column(0, "a", pa.array([-1] + [5] * 3999, pa.int32()))
    queries = {i: Factors(sets=(("a", interval(Domain.INT32, 0, 10 + i)),)) for i in range(100)}
    snapshot = snapshot_queries(queries.items(), STREAM)
    assert rows_of(match(table, snapshot, SCALAR)) == naive(table, queries)


@pytest.mark.parametrize("rows", [16_384 + 512, 16_384 + 77])
def test_a_matrix_written_past_the_caches_is_whole(rows: int) -> None:
    table = elements(rows)
    values = table["a"].to_numpy(zero_copy_only=False)
    bounds = {slot: (2 * slot - 100, 2 * slot + 400) for slot in range(512)}
    queries = [
        (slot, Factors(sets=(("a", interval(Domain.INT32, low, high)),)))
        for slot, (low, high) in bounds.items()
    ]
    matches = match(table, snapshot_queries(queries, STREAM), SCALAR)
    assert set(matches.to_table()["encoding"].to_pylist()) <= {DENSE, GAPS, LIST, CLUSTERED, ORDER}
    reader = matches.reader()
    for slot, (low, high) in bounds.items():
        want = np.flatnonzero((values >= low) & (values < high))
        assert np.array_equal(reader.rows(slot, 0, rows), want)
        assert reader.count(slot) == len(want)
        assert np.array_equal(reader.rows(slot, 0, 2 * rows), want)


def test_the_order_of_attributes_changes_no_match() -> None:
    table = elements(700)
    queries = many_queries(60, 100)
    snapshot = snapshot_queries(queries.items(), STREAM)
    plain = match(table, snapshot, SCALAR)
    for order in (["a", "s"], ["s", "a"], ["s"], ["nothing of the kind"]):
        assert rows_of(match(table, snapshot, SCALAR, order)) == rows_of(plain)
    assert set(plain.stats) == {"a", "s"}
    assert all(p.tuples_in >= p.tuples_out >= 0 for p in plain.stats.values())


def test_how_the_batch_is_cut_changes_no_match() -> None:
    table = elements(1000)
    snapshot = stem("a > 500", "s = 'n7' OR b > 3", "s LIKE '%3'", "b BETWEEN -1 AND 1")
    whole = rows_of(match(table, snapshot, SCALAR))
    cut = pa.concat_tables([table.slice(0, 333), table.slice(333, 1), table.slice(334)])
    assert rows_of(match(cut, snapshot, SCALAR)) == whole
    offset = match(table.slice(100, 500), snapshot, SCALAR)
    want = {s: [r - 100 for r in rows if 100 <= r < 600] for s, rows in whole.items()}
    assert rows_of(offset) == {s: rows for s, rows in want.items() if rows}


def test_each_slot_is_kept_the_smaller_way() -> None:
    table = pa.table({"a": pa.array(range(6400), pa.int32())})
    texts = ("a >= 0", "a < 3200", "a = 17", "TRUE", "a % 2 = 0", "a > 10000")
    result = match(table, stem(*texts), SCALAR).to_table()
    assert result.schema == SCHEMA
    kept = {r["slot"]: (r["count"], r["encoding"], len(r["data"])) for r in result.to_pylist()}
    assert kept == {
        0: (6400, ALL, 0),
        1: (3200, DENSE, 800),
        2: (1, LIST, 8),
        3: (6400, ALL, 0),
        4: (3200, DENSE, 800),
    }


def test_dense_and_listed_slots_share_a_block() -> None:
    table = elements(5000)
    queries = {}
    for slot in range(200):
        width = 3 if slot % 2 else 700
        queries[slot] = Factors(sets=(("a", interval(Domain.INT32, slot, slot + width)),))
    matches = match(table, snapshot_queries(queries.items(), STREAM), SCALAR)
    assert set(matches.to_table()["encoding"].to_pylist()) == {DENSE, GAPS, LIST}
    assert rows_of(matches) == naive(table, queries)


def test_no_elements_or_no_queries_have_no_matches() -> None:
    assert match(elements(0), stem("a > 1", "TRUE", "s LIKE '%x'"), SCALAR).to_table().num_rows == 0
    assert match(elements(5), stem(), SCALAR).to_table().num_rows == 0
    assert match(elements(5), stem("FALSE"), SCALAR).to_table().num_rows == 0


def test_what_fails_counts_only_on_what_nothing_else_takes_away() -> None:
    table = pa.table({"s": ["n1", "x", "n22", None], "a": pa.array([1, 2, 3, 4], pa.int32())})
    snapshot = stem(
        "a < 4 AND s SIMILAR TO 'n[0-9]+' AND CAST(s[2:] AS INTEGER) > 5",
        "a = 3 AND CAST(s[2:] AS INTEGER) > 5",
        "CAST(s[2:] AS INTEGER) > 5 AND length(s) > 1",
        "length(s) > 1",
        "nothing > 1",
        "CAST(s[2:] AS INTEGER) > 5 AND length(s) < 3",
    )
    matches = match(table, snapshot, SCALAR)
    assert rows_of(matches) == {0: [2], 1: [2], 2: [2], 3: [0, 2]}
    assert set(matches.failed) == {4, 5}
    assert "Could not convert string" in matches.failed[5]
    assert "nothing" in matches.failed[4]


def test_hundreds_of_others_and_one_that_fails() -> None:
    table = elements(200)
    texts = [f"length(s) + {i} > 3 AND a < {5 * i}" for i in range(150)] + [
        "CAST(s AS INTEGER) = 1"
    ]
    matches = match(table, stem(*texts), SCALAR)
    assert set(matches.failed) == {150}
    a, s = table["a"].to_pylist(), table["s"].to_pylist()
    for slot in range(150):
        want = [
            i for i in range(200) if a[i] is not None and len(s[i]) + slot > 3 and a[i] < 5 * slot
        ]
        assert matches.reader().rows(slot, 0, 200).tolist() == want


@settings(max_examples=60)
@given(
    st.lists(st.sets(st.integers(0, 199), max_size=200), max_size=6),
    st.integers(-3, 210),
    st.integers(-3, 210),
)
def test_a_reader_gives_the_rows_of_a_range(wanted: list[set[int]], low: int, high: int) -> None:
    found = {3 * slot: np.array(sorted(rows), np.int64) for slot, rows in enumerate(wanted)}
    reader = MatchReader(pa.Table.from_batches(encode(found, 200), SCHEMA))
    for slot, rows in found.items():
        assert reader.rows(slot, low, high).tolist() == [
            r for r in rows.tolist() if low <= r < high
        ]
        assert reader.count(slot) == len(rows)
    assert reader.count(1) == 0
    assert reader.rows(1, 0, 200).tolist() == []


def test_a_mapped_file_is_read_in_place(tmp_path: Path) -> None:
    table = elements(5000)
    matches = match(table, stem("a > 500", "a = 7", "TRUE", "s LIKE '%3'"), SCALAR)
    path = tmp_path / "matches.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_table(matches.to_table())
    with pa.memory_map(str(path)) as source:
        mapped = pa.ipc.open_file(source).read_all()
        reader = MatchReader(mapped)
        for slot, rows in rows_of(matches).items():
            assert reader.rows(slot, 0, 5000).tolist() == rows
            assert reader.rows(slot, 100, 103).tolist() == [r for r in rows if 100 <= r < 103]
        part = MatchReader(mapped.slice(1))
        assert len(part.slots) == 3


def test_column_names_are_found_as_declared() -> None:
    schema = Schema((Field("Amount", "INTEGER"), Field('odd "name"', "INTEGER")))
    texts = ("amount > 1", 'AMOUNT + 0 > 1 AND "odd ""name""" % 2 = 0')
    parsed = [factorize(sqlglot.parse_one(t, read="duckdb"), schema) for t in texts]
    table = pa.table(
        {
            "Amount": pa.array([1, 2, 3], pa.int32()),
            'odd "name"': pa.array([2, 2, 3], pa.int32()),
            "more": ["x", "y", "z"],
        }
    )
    matches = match(table, snapshot_queries(enumerate(parsed), schema), SCALAR)
    assert rows_of(matches) == {0: [1, 2], 1: [1]}


def test_slots_decided_in_portions_match_what_they_match_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = elements(3_000)
    texts = [f"a % {n} = 0" for n in range(2, 90)]
    texts += [f"a > {5 * n} AND a % {n} = 1" for n in range(2, 90)]
    texts += ["CAST(s AS INTEGER) = 1", "a > 900 AND CAST(s AS INTEGER) = 1", "a < 5", "TRUE"]
    at_once = match(table, stem(*texts), SCALAR)
    monkeypatch.setattr(match_module, "_MOST_UNDECIDED", 1_000)
    monkeypatch.setattr(match_module, "_MOST_BITS", 0)
    monkeypatch.setattr(match_module, "GROUP", 1)
    pieces: list[pa.RecordBatch] = []
    in_portions = match(table, stem(*texts), SCALAR, keep=pieces.append)
    assert in_portions.batches == []
    in_portions.batches.extend(pieces)
    assert rows_of(in_portions) == rows_of(at_once)
    assert in_portions.failed == at_once.failed
    assert at_once.failed.keys() == {176, 177}
    assert in_portions.matched == at_once.matched == sum(map(len, rows_of(at_once).values()))
