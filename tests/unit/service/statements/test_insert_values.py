"""INSERT's VALUES: each value is cast where it stands, and what does not fit is pointed at."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from millpond.catalog.objects import StreamDef
from millpond.cql import parse_statement
from millpond.engine.scalars.residual_query import Residual
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.service.statements.insert_values import values_of

TARGET = StreamDef(
    1,
    "t",
    Schema(
        (
            Field("n", "INTEGER"),
            Field("d", "DECIMAL(10,2)"),
            Field("at", "TIMESTAMP"),
            Field("say so", "VARCHAR"),
        )
    ),
)


def insert(text: str) -> list[dict[str, Any]]:
    statement: Any = parse_statement(text)
    columns = statement.columns or TARGET.schema.names
    return values_of(statement, columns, TARGET, Residual()).to_pylist()


def test_values_have_the_types_of_their_columns() -> None:
    found = insert("INSERT INTO t VALUES ('7', 1.005, '2024-01-01', 5), (1 + 1, 2, NULL, 'x')")
    assert found == [
        {"n": 7, "d": Decimal("1.01"), "at": datetime.datetime(2024, 1, 1), "say so": "5"},
        {"n": 2, "d": Decimal("2.00"), "at": None, "say so": "x"},
    ]


def test_columns_may_be_named_in_any_order() -> None:
    assert insert('INSERT INTO t ("SAY SO", N) VALUES (1, 2)') == [
        {"n": 2, "d": None, "at": None, "say so": "1"}
    ]


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ("(«'x'», 1, NULL, NULL)", "n"),
        ("(1, 1, NULL, NULL), (2, 2, «'today or so'», 'y')", "at"),
        ("(1, 1, NULL, NULL), (2, «'x'», 'never', 'y'), ('x', 0, NULL, NULL)", "d"),
        (
            ", ".join(f"({n}, 1, NULL, NULL)" for n in range(20))
            + ", («3000000000», 1, NULL, NULL)",
            "n",
        ),
        ("(1, «1 // 'a'», NULL, NULL)", "d"),
    ],
)
def test_the_first_value_that_does_not_fit_is_marked(values: str, place: str) -> None:
    plain = f"INSERT INTO t VALUES {values}".replace("«", "").replace("»", "")
    with pytest.raises(MillpondError) as failure:
        insert(plain)
    error = failure.value
    assert error.code == "CQL-205"
    assert error.primary == f'a value does not fit column "{place}" of "t"'
    assert error.span is not None
    marked = values[values.index("«") + 1 : values.index("»")]
    assert plain[error.span.start : error.span.end] == marked
