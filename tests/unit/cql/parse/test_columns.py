"""Declared columns: types, NOT NULL, keys."""

from __future__ import annotations

import pytest
from tests.unit.cql.parse.reading import read, refuse


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM s (a STRUCT(x INT, y VARCHAR), b INT[], c DECIMAL(10, 2))",
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER NOT NULL) TIMESTAMP BY ts",
        "CREATE RELATION r (k INT, v INT, PRIMARY KEY (k, v))",
    ],
)
def test_it_is_printed_as_it_was_written(text: str) -> None:
    assert read(text) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (
            "CREATE RELATION r (k INT PRIMARY KEY, v INT)",
            "CREATE RELATION r (k INT, v INT, PRIMARY KEY (k))",
        ),
    ],
)
def test_what_is_read_is_printed_in_full(text: str, meant: str) -> None:
    assert read(text) == meant


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("CREATE STREAM s (a INT,)", ")"),
        ("CREATE STREAM s ()", ")"),
        ("CREATE STREAM s (k INT PRIMARY KEY)", "PRIMARY KEY"),
        ("CREATE RELATION r (k INT PRIMARY KEY, PRIMARY KEY (k))", "PRIMARY KEY (k)"),
        ("CREATE STREAM s (a INT DEFAULT 3)", "DEFAULT"),
    ],
)
def test_it_is_refused_at_its_place(text: str, place: str) -> None:
    assert refuse(text) == ("CQL-103", place)
