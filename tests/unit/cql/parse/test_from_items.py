"""Items of FROM: names with windows, samples, queries in brackets, and names as queries."""

from __future__ import annotations

import pytest
from tests.unit.cql.parse.reading import read, refuse


@pytest.mark.parametrize(
    "text",
    [
        "SELECT v FROM s SAMPLE(10)",
        "SELECT v FROM s [ROWS 3], r",
        "ISTREAM(SELECT v FROM s [NOW])",
    ],
)
def test_it_is_printed_as_it_was_written(text: str) -> None:
    assert read(text) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("s UNION r", "SELECT * FROM s UNION SELECT * FROM r"),
        ("ISTREAM(s [NOW])", "ISTREAM(SELECT * FROM s [NOW])"),
        ("SELECT * FROM ISTREAM(SELECT v FROM s)", "SELECT * FROM (ISTREAM(SELECT v FROM s))"),
        (
            "SELECT v FROM s CROSS JOIN LATERAL (SELECT 1) x",
            "SELECT v FROM s CROSS JOIN (SELECT 1) AS x",
        ),
    ],
)
def test_what_is_read_is_printed_in_full(text: str, meant: str) -> None:
    assert read(text) == meant


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT * FROM 'a.csv'", "'a.csv'"),
        ("SELECT * FROM read_csv('a.csv')", "read_csv"),
        ("SELECT * FROM generate_series(1, 3)", "generate_series"),
        ("SELECT v FROM s TABLESAMPLE 10%", "TABLESAMPLE"),
    ],
)
def test_it_is_refused_at_its_place(text: str, place: str) -> None:
    assert refuse(text) == ("CQL-103", place)
