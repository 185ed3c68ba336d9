"""What the expression of a computed column may be made of."""

from __future__ import annotations

import pytest

from millpond.cql import parse_statement
from millpond.cql.tree.statements import CreateStream
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.service.definitions.computed_columns import check_computed_columns

KEY = ("k", "VARCHAR", None)


def check(*columns: tuple[str, str, str | None]) -> None:
    declared = [f"{n} {t}" + (f" AS ({e})" if e is not None else "") for n, t, e in columns]
    statement = parse_statement(f"CREATE STREAM s ({', '.join(declared)})")
    assert isinstance(statement, CreateStream)
    fields = tuple(Field(name, type_, computed=computed) for name, type_, computed in columns)
    check_computed_columns(statement, Schema(fields))


@pytest.mark.parametrize(
    "columns",
    [
        [("b", "INTEGER", "a + 1"), ("a", "INTEGER", None)],
        [("a", "INTEGER", None), ("b", "INTEGER", "a + 1"), ("c", "INTEGER", "B * 2")],
        [("p", "STRUCT(x INTEGER)", None), ("x", "INTEGER", "p.x")],
        [("a", "VARCHAR", None), ("b", "TIMESTAMPTZ", "strptime(a, '%d.%m.%Y')")],
    ],
)
def test_columns_before_it_may_be_used(columns: list[tuple[str, str, str | None]]) -> None:
    check(*columns)


@pytest.mark.parametrize(
    ("columns", "code", "place"),
    [
        ([("a", "INTEGER", "a"), KEY], "CQL-202", "a INTEGER AS (a)"),
        ([("b", "INTEGER", "c"), ("c", "INTEGER", "1"), KEY], "CQL-202", "b INTEGER AS (c)"),
        ([("a", "INTEGER", "z.p"), KEY], "CQL-202", "a INTEGER AS (z.p)"),
        ([("a", "INTEGER", "count(*)"), KEY], "CQL-206", "a INTEGER AS (count(*))"),
        ([("a", "INTEGER", "random()"), KEY], "CQL-213", "a INTEGER AS (random())"),
        ([("a", "INTEGER", "my_own(1)"), KEY], "CQL-212", "a INTEGER AS (my_own(1))"),
    ],
)
def test_what_it_may_not_be_made_of_is_said_at_the_column(
    columns: list[tuple[str, str, str | None]], code: str, place: str
) -> None:
    with pytest.raises(MillpondError) as caught:
        check(*columns)
    error = caught.value
    assert error.code == code
    assert error.text is not None
    assert error.span is not None
    assert error.text[error.span.start : error.span.end] == place


def test_a_stream_has_a_column_that_is_given() -> None:
    with pytest.raises(MillpondError, match='CQL-103: every column of "s" is computed'):
        check(("a", "INTEGER", "1"))
