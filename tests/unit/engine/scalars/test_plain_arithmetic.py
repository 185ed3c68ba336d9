"""Plain arithmetic is what DuckDB says it is, or is left to DuckDB."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.engine.scalars.plain_arithmetic import evaluate_arithmetic
from millpond.errors import MillpondError

COLUMNS = [
    (pa.int32(), st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)),
    (pa.float64(), st.floats() | st.sampled_from([-0.0, 2.5, math.nan, math.inf, 1e308])),
    (pa.int32(), st.integers(-9, 9)),
    (pa.int64(), st.integers(-9, 9)),
    (pa.float64(), st.floats(-9, 9)),
    (pa.int8(), st.integers(-9, 9)),
]


@settings(max_examples=200)
@given(st.data())
def test_it_is_what_duckdb_says(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 4))
    arrays = [
        pa.array(data.draw(st.lists(st.none() | v, min_size=length, max_size=length)), t)
        for t, v in COLUMNS
    ]
    rows = pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(COLUMNS))])
    side = st.integers(0, len(COLUMNS) - 1).map("c{}".format)
    number = st.integers(0, 9) | st.integers(0, 999_999_999)
    left, right = data.draw(st.tuples(side, side | number) | st.tuples(number, side))
    sql = f"{left} {data.draw(st.sampled_from('+-*'))} {right}"
    found = evaluate_arithmetic(data.draw(st.sampled_from([sql, f"({sql})"])), rows)
    if found is not None:
        (wanted,) = DuckDBScalars()._ask(rows, [sql])
        assert found.type == wanted.type
        assert repr(found.to_pylist()) == repr(wanted.to_pylist())


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("c0 * 2", [2, -14, None]),
        ("100 - c0", [99, 107, None]),
        ("c0 + c1", [2_000_000_000, -8, None]),
        ("(c2 * 3)", [4.5, -0.0, None]),
        ("c3 * 10", [math.inf, math.nan, -math.inf]),
    ],
)
def test_it_is_computed_here(sql: str, values: list[object]) -> None:
    found = evaluate_arithmetic(sql, ROWS)
    assert found is not None
    assert repr(found.to_pylist()) == repr(values)
    assert repr(DuckDBScalars()._ask(ROWS, [sql])[0].to_pylist()) == repr(values)


@pytest.mark.parametrize(
    "sql", ["c0 / 2", "c0 * 1.5", "1 + 2", "c0 * -1", "c0 * 3000000000", "c0 + c2", "c9 * 2"]
)
def test_the_rest_is_left_to_duckdb(sql: str) -> None:
    assert evaluate_arithmetic(sql, ROWS) is None


def test_numbers_out_of_range_are_left_to_duckdb_which_fails() -> None:
    assert evaluate_arithmetic("c1 * 2", ROWS) is None
    with pytest.raises(MillpondError, match="could not be evaluated"):
        DuckDBScalars().compute(ROWS, ["c1 * 2"])


ROWS = pa.RecordBatch.from_arrays(
    [
        pa.array([1, -7, None], pa.int32()),
        pa.array([1_999_999_999, -1, None], pa.int32()),
        pa.array([1.5, -0.0, None], pa.float64()),
        pa.array([1e308, math.nan, -math.inf], pa.float64()),
    ],
    names=["c0", "c1", "c2", "c3"],
)
