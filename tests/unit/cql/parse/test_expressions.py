"""Expressions: members of JSON, casts, and what is no part of an expression."""

from __future__ import annotations

import pytest
from tests.unit.cql.parse.reading import read, refuse


@pytest.mark.parametrize(
    "text",
    [
        "SELECT v = ANY(SELECT v FROM r) FROM s",
        "SELECT INTERVAL '3' DAYS",
        "SELECT CAST(v AS DECIMAL(40, 2)) FROM s",
    ],
)
def test_it_is_printed_as_it_was_written(text: str) -> None:
    assert read(text) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (
            "SELECT j -> 'a' ->> 'b' FROM s",
            "SELECT json_extract_string(json_extract(j, 'a'), 'b') FROM s",
        ),
        ("SELECT CAST(x AS ARRAY<INT>) FROM s", "SELECT CAST(x AS INT[]) FROM s"),
    ],
)
def test_what_is_read_is_printed_in_full(text: str, meant: str) -> None:
    assert read(text) == meant


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT -> FROM s", "FROM"),
        ("SELECT v FROM s WHERE", ""),
    ],
)
def test_it_is_refused_at_its_place(text: str, place: str) -> None:
    assert refuse(text) == ("CQL-103", place)
