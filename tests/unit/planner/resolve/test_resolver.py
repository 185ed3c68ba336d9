"""Subqueries, set operations and WITH: each is resolved where it stands."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding, refuse


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        (
            "SELECT delay FROM flights UNION SELECT origin, dest FROM flights",
            "CQL-219",
            "SELECT origin, dest FROM flights",
        ),
        ("SELECT t.y FROM (SELECT carrier FROM flights) AS t(x)", "CQL-202", "t.y"),
    ],
)
def test_it_is_refused_at_its_place(binding: Binding, text: str, code: str, place: str) -> None:
    assert refuse(binding, text) == (code, place)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT t.x FROM (SELECT carrier FROM flights) AS t(x)", ("x",)),
        ("WITH a AS (SELECT carrier AS c FROM flights) SELECT c FROM a", ("c",)),
        ("SELECT carrier FROM flights UNION SELECT model FROM planes", ("carrier",)),
        ("SELECT * FROM flights f SEMI JOIN weather w ON f.origin = w.origin", None),
    ],
)
def test_the_answer_has_the_columns_of_the_query(
    binding: Binding, text: str, columns: tuple[str, ...] | None
) -> None:
    every = binding("SELECT * FROM flights").output.names
    assert binding(text).output.names == (every if columns is None else columns)
