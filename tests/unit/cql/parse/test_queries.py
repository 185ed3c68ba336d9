"""Queries: their clauses in order, and their end."""

from __future__ import annotations

import pytest
from tests.unit.cql.parse.reading import read, refuse


@pytest.mark.parametrize(
    "text",
    [
        "SELECT v FROM s LIMIT 5 OFFSET 2",
        "SELECT v FROM s GROUP BY ALL",
        "SELECT v FROM s UNION ALL SELECT v FROM r",
        "SELECT v FROM s WHERE v = (SELECT max(v) FROM r)",
    ],
)
def test_it_is_printed_as_it_was_written(text: str) -> None:
    assert read(text) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("SELECT v FROM s;", "SELECT v FROM s"),
    ],
)
def test_what_is_read_is_printed_in_full(text: str, meant: str) -> None:
    assert read(text) == meant


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT v FROM s FOR UPDATE", "FOR"),
        ("SELECT v FROM s USING SAMPLE 3", "USING"),
    ],
)
def test_it_is_refused_at_its_place(text: str, place: str) -> None:
    assert refuse(text) == ("CQL-103", place)
