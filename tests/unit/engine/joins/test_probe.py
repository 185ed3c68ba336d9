"""Probing: what NumPy and DuckDB say joins, the kernel finds, each pair once."""

from __future__ import annotations

from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine.joins.arrangement import SortedRun, build, shard_range, sort_by
from millpond.engine.joins.keys import (
    Axis,
    agree,
    axis_of,
    code_column,
    combine_columns,
    mix_numbers,
)
from millpond.engine.joins.probe import expand, probe
from millpond.model.schema import arrow_type

_SMALL = st.integers(-3, 3)
_ROWS = st.lists(st.tuples(st.one_of(st.none(), _SMALL), st.integers(0, 9)), max_size=30)

_VALUES = {
    "BOOLEAN": st.booleans(),
    "TINYINT": _SMALL,
    "INTEGER": st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1]),
    "BIGINT": st.sampled_from([-(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1]),
    "FLOAT": st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
    "DOUBLE": st.sampled_from([0.0, -0.0, 1.0, -1.5, 2.0**53, float("nan"), float("-inf")]),
    "VARCHAR": st.sampled_from(["", "a", "a\0", "\0", "longer than a word", "longer than a worD"]),
    "DATE": st.dates(),
    "TIMESTAMP": st.datetimes(),
    "DECIMAL(10,2)": st.decimals(-9, 9, places=2),
    "DECIMAL(18,2)": st.decimals(-9, 9, places=2),
    "DECIMAL(38,2)": st.decimals(-(10**30), 10**30, places=2),
}


_COMPARED = [(a, b) for a in _VALUES for b in _VALUES if axis_of(a, b) is not None]


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": "1"})


@pytest.mark.parametrize(("left", "right"), _COMPARED)
@settings(max_examples=25)
@given(data=st.data())
def test_equal_numbers_are_what_duckdb_calls_equal(
    duck: duckdb.DuckDBPyConnection, left: str, right: str, data: st.DataObject
) -> None:
    axis = axis_of(left, right)
    assert axis is not None
    tables = []
    for type_ in (left, right):
        values = data.draw(st.lists(st.one_of(st.none(), _VALUES[type_]), max_size=6))
        tables.append(pa.table({"v": pa.array(values, arrow_type(type_))}))
    sides = [code_column(t["v"], axis) for t in tables]
    for name, table in zip("lr", tables, strict=True):
        places = pa.array(range(len(table)), pa.int64())
        duck.register(name, table.append_column("i", places))
    equal, less = (
        set(duck.execute(f"SELECT l.i, r.i FROM l, r WHERE l.v {op} r.v").fetchall())
        for op in ("=", "<")
    )
    found_equal, found_less = set(), set()
    keys = [combine_columns([side])[0] for side in sides]
    for i in range(len(tables[0])):
        for j in range(len(tables[1])):
            nulls = [s.nulls is not None and s.nulls[k] for s, k in zip(sides, (i, j), strict=True)]
            if any(nulls):
                continue
            if keys[0][i] == keys[1][j]:
                found_equal.add((i, j))
            if sides[0].numbers[i] < sides[1].numbers[j]:
                found_less.add((i, j))
    assert found_equal == equal
    if axis.is_ordered:
        assert found_less == less
    if equal:
        ours, theirs = (pa.array([p[k] for p in sorted(equal)]) for k in (0, 1))
        assert agree(tables[0]["v"].take(ours), tables[1]["v"].take(theirs)).all()


def test_values_that_differ_do_not_agree() -> None:
    assert agree(pa.array(["a", "b", None]), pa.array(["a", "c", None])).tolist() == [
        True,
        False,
        False,
    ]


def _run(rows: list[tuple[int | None, int]], shard: tuple[int, int] = (0, 1)) -> SortedRun:
    side = code_column(pa.array([k for k, _ in rows], pa.int64()), Axis.INTEGER)
    keys, nulls = combine_columns([side])
    return build(keys, np.array([t for _, t in rows], np.int64), nulls, shard)


@given(_ROWS, _ROWS, st.integers(-3, 3), st.integers(-3, 3), st.integers(1, 3))
def test_a_band_beside_equality(
    left: list[tuple[int | None, int]],
    right: list[tuple[int | None, int]],
    below: int,
    above: int,
    shards: int,
) -> None:
    expected = sorted(
        (i, j)
        for i, (k, t) in enumerate(left)
        for j, (q, u) in enumerate(right)
        if k is not None and k == q and t + below <= u <= t + above
    )
    pairs: list[tuple[int, int]] = []
    for number in range(shards):
        batch, run = _run(left, (number, shards)), _run(right, (number, shards))
        found = probe(batch, batch.order + below, batch.order + above, run)
        a, b = expand(batch, found, run)
        assert found.pairs == len(a)
        pairs += zip(a.tolist(), b.tolist(), strict=True)
    assert sorted(pairs) == expected


@given(st.lists(st.integers(-5, 5), max_size=30), st.lists(st.integers(-5, 5), max_size=30))
def test_order_alone_with_bounds_in_any_order(left: list[int], right: list[int]) -> None:
    numbers = np.array(left, np.int64)
    batch = build(None, np.zeros(len(left), np.int64))
    run = build(None, np.array(right, np.int64))
    found = probe(batch, numbers[batch.place], None, run)
    a, b = expand(batch, found, run)
    assert sorted(zip(a.tolist(), b.tolist(), strict=True)) == sorted(
        (i, j) for i, x in enumerate(left) for j, y in enumerate(right) if y >= x
    )


@given(st.lists(st.integers(0, 2**64 - 1), max_size=50))
def test_sorting_is_stable(values: list[int]) -> None:
    array = np.array(values, np.uint64)
    places = np.arange(len(values), dtype=np.uint32)
    sort_by(array, places)
    assert places.tolist() == np.argsort(array, kind="stable").tolist()


def test_a_run_is_read_back_from_its_table() -> None:
    run = _run([(1, 5), (1, 3), (2, 4), (None, 1)])
    again = SortedRun.of_table(run.to_table())
    assert again.place.tolist() == run.place.tolist()
    assert again.order.tolist() == run.order.tolist()
    assert sorted(run.place.tolist()) == [0, 1, 2]


def test_shards_are_ranges_of_keys() -> None:
    keys = mix_numbers(np.arange(1000))
    spans = [shard_range(n, 7) for n in range(7)]
    assert spans[0][0] == 0
    assert spans[-1][1] == 2**64 - 1
    assert all(a[1] + 1 == b[0] for a, b in pairwise(spans))
    inside = [int(((keys >= low) & (keys <= high)).sum()) for low, high in map(np.uint64, spans)]
    assert sum(inside) == len(keys)
