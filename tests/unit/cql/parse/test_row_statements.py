"""INSERT, UPDATE, DELETE and HEARTBEAT."""

from __future__ import annotations

import pytest
from tests.unit.cql.parse.reading import read, refuse


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO s (a, b) VALUES (1, NULL), (2, 'x')",
        "INSERT INTO r SELECT a FROM s",
        "UPDATE r SET a = 1, b = a + 1 WHERE k = 3",
        "DELETE FROM r WHERE k = 3",
        "HEARTBEAT s AT TIMESTAMP '2020-01-01 00:00:00'",
    ],
)
def test_it_is_printed_as_it_was_written(text: str) -> None:
    assert read(text) == text


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("INSERT s VALUES (1)", "s"),
        ("INSERT INTO r VALUES (1) ON CONFLICT DO NOTHING", "ON"),
        ("UPDATE r SET a = 1, a = 2", "a"),
        ("DELETE r", "r"),
        ("HEARTBEAT s", ""),
        ("HEARTBEAT s AT TIMESTAMP 'yesterday'", "'yesterday'"),
    ],
)
def test_it_is_refused_at_its_place(text: str, place: str) -> None:
    assert refuse(text) == ("CQL-103", place)


def test_every_row_has_as_many_values_as_there_are_columns() -> None:
    assert refuse("INSERT INTO s (a, b) VALUES (1)") == ("CQL-217", "(1)")
