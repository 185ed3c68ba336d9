"""Keys of values with parts: equal and ordered as DuckDB finds the values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millpond.model.nested_values import rank, value_keys

_NAN = float("nan")
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.list_(pa.int32()), [[1, 2], [1], [], [None], [1, None], None, [2], [1, 2], [None, 1]]),
    (pa.list_(pa.float64()), [[0.0], [-0.0], [_NAN], [float("inf")], [None], [1.0, _NAN]]),
    (
        pa.struct([("a", pa.string()), ("b", pa.list_(pa.bool_()))]),
        [
            {"a": "x", "b": None},
            {"a": "x", "b": [True]},
            {"a": None, "b": [False]},
            {"a": "é", "b": []},
            None,
            {"a": "x", "b": [True]},
        ],
    ),
    (pa.list_(pa.timestamp("us", "UTC")), [[datetime(2026, 1, 1, tzinfo=UTC)], [None], []]),
]


@pytest.mark.parametrize(("type_", "values"), VALUES, ids=str)
def test_keys_are_equal_and_ordered_as_duckdb_finds_the_values(
    type_: pa.DataType, values: list[Any]
) -> None:
    column = pa.array(values, type_)
    table = pa.table({"i": pa.array(range(len(values))), "v": column})
    connection = duckdb.connect()
    connection.register("t", table)
    pairs = connection.sql(
        "SELECT p.i, q.i, p.v < q.v, p.v IS NOT DISTINCT FROM q.v FROM t p, t q"
    ).fetchall()
    keys, ranks = value_keys(column), rank(column).to_pylist()
    for one, other, less, same in pairs:
        assert (keys[one] == keys[other]) == same
        assert (ranks[one] == ranks[other]) == same
        if less is not None:
            assert (keys[one] < keys[other], ranks[one] < ranks[other]) == (less, less)


def test_instants_no_object_stands_for_have_keys() -> None:
    far = pa.array([[2**62], [0], None], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us")))
    assert rank(far).to_pylist() == [1, 0, None]


def test_a_slice_has_the_keys_of_its_rows() -> None:
    column = pa.array([[1], [2, 3], None, [4]], pa.list_(pa.int32()))
    assert value_keys(column.slice(1, 3)) == value_keys(column)[1:]
