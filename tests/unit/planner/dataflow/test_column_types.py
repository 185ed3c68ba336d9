"""Types of a dataflow's columns: those that DuckDB gives."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millpond.planner.dataflow.column_types import (
    find_answer_columns,
    find_expression_types,
    type_names,
)

SCHEMA = pa.schema([("c0", pa.int32()), ("c1", pa.string()), ("c2", pa.timestamp("us"))])


def test_columns_of_an_answer_have_duckdbs_names_and_types() -> None:
    sql = "SELECT a + 1 AS x, upper(b), count(*) OVER () AS n FROM t"
    found = find_answer_columns(sql, [("t", ["a", "b", "c"])], [SCHEMA])
    assert found == [("x", pa.int32()), ("upper(b)", pa.string()), ("n", pa.int64())]


@pytest.mark.parametrize(
    ("sql", "type"),
    [
        ("c0 / 2", pa.float64()),
        ("c0 > 3", pa.bool_()),
        ("c2 - INTERVAL 1 DAY -- a remark", pa.timestamp("us")),
        ("[c0]", pa.list_(pa.field("l", pa.int32()))),
        ("repeat(c1, 10)", pa.string()),
    ],
)
def test_expressions_have_the_types_of_their_values(sql: str, type: pa.DataType) -> None:
    assert find_expression_types([sql], SCHEMA) == (type,)


def test_types_have_duckdbs_names() -> None:
    assert type_names(SCHEMA.types) == ["INTEGER", "VARCHAR", "TIMESTAMP"]
