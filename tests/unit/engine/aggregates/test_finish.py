"""Values of aggregates from totals: those that DuckDB gives."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millpond.engine.aggregates.finish import finish
from millpond.planner.aggregates import AVG, COUNT, MAX, MIN, SUM, ColumnAggregate
from millpond.synopses.totals import NOTHING, open_column, total_of

COLUMNS = {
    "whole": pa.array([3, None, -7, 2**62, 2**62, 5], pa.int64()),
    "small": pa.array([1, 2, None], pa.int32()),
    "decimal": pa.array([Decimal("1.25"), Decimal("-3.50"), None], pa.decimal128(10, 2)),
    "double": pa.array([1.5, -0.25, None], pa.float64()),
    "nothing": pa.array([None, None], pa.int64()),
}


@pytest.mark.parametrize("function", [COUNT, SUM, AVG, MIN, MAX])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_value_is_the_one_duckdb_gives(name: str, function: str) -> None:
    rows = pa.table({"v": COLUMNS[name]})
    (expected,) = duckdb.sql(f"SELECT {function}(v) FROM rows").fetchall()[0]
    total = total_of(open_column(COLUMNS[name]))
    assert rows.num_rows == total.rows
    found = finish(ColumnAggregate(function, "v"), total, COLUMNS[name].type)
    assert found.to_pylist() == [expected]


@pytest.mark.parametrize(("function", "value"), [(COUNT, 0), (SUM, None), (AVG, None), (MIN, None)])
def test_of_no_rows(function: str, value: Any) -> None:
    call = ColumnAggregate(function, "v")
    assert finish(call, NOTHING, pa.int64()).to_pylist() == [value]


def test_rows_are_counted_whatever_they_hold() -> None:
    total = total_of(open_column(COLUMNS["nothing"]))
    assert finish(ColumnAggregate(COUNT, None), total, None).to_pylist() == [2]
    assert finish(ColumnAggregate(COUNT, "v"), total, pa.int64()).to_pylist() == [0]
