"""Aggregates of a part as estimates of the whole."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from millpond.engine.promising.scaling import scale


def test_counts_and_sums_are_scaled_and_keep_their_types():
    row = pa.table(
        {
            "n": pa.array([10], pa.int64()),
            "s": pa.array([2.5]),
            "d": pa.array([Decimal("1.10")], pa.decimal128(38, 2)),
            "a": pa.array([7.0]),
            "m": pa.array([None], pa.float64()),
        }
    )
    found = scale(row, ("count", "sum", "sum", "avg", "median"), 25, 100)
    assert found.schema == row.schema
    assert found.to_pylist() == [{"n": 40, "s": 10.0, "d": Decimal("4.40"), "a": 7.0, "m": None}]


def test_what_is_whole_stays_as_it_is():
    row = pa.table({"n": [10], "s": pa.array([None], pa.float64())})
    assert scale(row, ("count", "sum"), 100, 100) is row
    assert scale(row, ("count", "sum"), 0, 0) is row
    assert scale(row, ("count", "sum"), 1, 2).to_pylist() == [{"n": 20, "s": None}]


def test_sums_whose_rest_is_known_get_the_rest_and_not_the_mean():
    row = pa.table(
        {
            "n": pa.array([10], pa.int64()),
            "s": pa.array([100], pa.int64()),
            "d": pa.array([Decimal("1.50")], pa.decimal128(38, 2)),
            "f": pa.array([None], pa.float64()),
            "p": pa.array([3.0]),
        }
    )
    sums = ("count", "sum", "sum", "sum", "sum")
    found = scale(row, sums, 20, 100, {1: 30.0, 2: 5.0, 3: 2.0}, matched=10)
    assert found.schema == row.schema
    wanted = {"n": 50, "s": 115, "d": Decimal("4.00"), "f": None, "p": 15.0}
    assert found.to_pylist() == [wanted]
