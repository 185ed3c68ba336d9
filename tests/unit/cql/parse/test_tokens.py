"""Tokens: comments go, and what never ends or belongs to no token is refused."""

from __future__ import annotations

import pytest
from tests.unit.cql.parse.reading import read, refuse

from millpond.cql.parse.tokens import is_name, tokenize


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'it''s'",
    ],
)
def test_it_is_printed_as_it_was_written(text: str) -> None:
    assert read(text) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("SELECT v -- a comment", "SELECT v"),
        ("SELECT /* one */ v /* two */ FROM s", "SELECT v FROM s"),
        ("SELECT 1_000", "SELECT 1000"),
    ],
)
def test_what_is_read_is_printed_in_full(text: str, meant: str) -> None:
    assert read(text) == meant


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT 'open", "'open"),
        ('SELECT "open', '"open'),
        ("SELECT /* no end", "/* no end"),
        ("SELECT @a FROM s", "@"),
        ("SELECT $1 FROM s", "$"),
        ("SELECT 0x1F", "0x1F"),
    ],
)
def test_what_is_no_token_is_refused(text: str, place: str) -> None:
    assert refuse(text) == ("CQL-102", place)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("a", True), ("_a1", True), ("s$rejects", True), ("1a", False), ("a b", False), ("", False)],
)
def test_names_without_quotes(text: str, is_one: bool) -> None:
    assert is_name(text) == is_one


def test_tokens_know_where_they_stand() -> None:
    tokens = tokenize("SELECT  v -- all\nFROM s")
    assert [(t.text, t.start) for t in tokens] == [("SELECT", 0), ("v", 8), ("FROM", 17), ("s", 22)]
