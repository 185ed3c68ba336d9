"""Constraints of streams, as they are read."""

from __future__ import annotations

import pytest

from millpond.cql import parse_script
from millpond.errors import MillpondError
from millpond.model.constraints import CLUSTERED, FOREIGN_KEY, ORDERED, UNIQUE, Constraint


def read(text: str) -> tuple[Constraint, ...]:
    (statement,) = parse_script(f"CREATE STREAM s (a INT, b INT, c INT, {text})")
    return tuple(statement.constraints)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "CONSTRAINT x CLUSTERED BY (a, b) WITHIN 5 ROWS",
            Constraint("x", CLUSTERED, ("a", "b"), None, 5, None),
        ),
        ("CONSTRAINT x CLUSTERED BY (a)", Constraint("x", CLUSTERED, ("a",), None, 0, None)),
        (
            "CONSTRAINT x ORDERED BY (a) WITHIN INTERVAL 3 SECONDS",
            Constraint("x", ORDERED, ("a",), None, None, 3_000_000),
        ),
        (
            "CONSTRAINT x FOREIGN KEY (a) REFERENCES r WITHIN 1 ROW",
            Constraint("x", FOREIGN_KEY, ("a",), "r", 1, None),
        ),
        ("CONSTRAINT x UNIQUE (a)", Constraint("x", UNIQUE, ("a",))),
        ("UNIQUE (a, C)", Constraint("unique_a_c", UNIQUE, ("a", "C"))),
    ],
)
def test_forms(text: str, wanted: Constraint) -> None:
    assert read(text) == (wanted,)


@pytest.mark.parametrize("column", ["unique", "constraint"])
def test_columns_may_be_called_so(column: str) -> None:
    (statement,) = parse_script(f"CREATE STREAM s (a INT, {column} INT)")
    assert statement.constraints == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CONSTRAINT x ORDERED BY (a, b)", "an order of several columns"),
        ("CONSTRAINT x CLUSTERED BY (a) WITHIN ROWS", "the length of WITHIN"),
        ("CONSTRAINT x CLUSTERED BY (a) WITHIN -1 ROWS", "behind WITHIN is below zero"),
        ("CONSTRAINT x CLUSTERED BY (a) WITHIN -INTERVAL 1 SECOND", "behind WITHIN is below zero"),
        ("UNIQUE (a, A)", 'names column "A" twice'),
        ("CONSTRAINT x FOREIGN KEY (a)", "expected REFERENCES"),
        ("CONSTRAINT x CLUSTERED BY a", "expected"),
    ],
)
def test_what_is_no_constraint_is_refused_at_its_place(text: str, said: str) -> None:
    with pytest.raises(MillpondError, match=said) as caught:
        read(text)
    assert caught.value.code == "CQL-103"
