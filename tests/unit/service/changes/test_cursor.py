"""Cursors: which texts name a place in which changes."""

from __future__ import annotations

import pytest

from millpond.errors import MillpondError
from millpond.service.changes.cursor import (
    OLDEST,
    cursor_prefix,
    not_kept_error,
    parse_cursor,
    trimmed_error,
)

PREFIX = cursor_prefix("3f2a9c", 17)


@pytest.mark.parametrize(("text", "number"), [("3f2a9c.17.42", 42), ("42", 42), (7, 7), (0, 0)])
def test_a_cursor_of_these_changes_or_a_bare_number_is_a_place(
    text: str | int, number: int
) -> None:
    assert parse_cursor(text, PREFIX, "q") == number


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3f2a9c.18.42", "of another query"),
        ("000000.17.42", "of another store"),
        ("3f2a9c.17.x", "came with the changes"),
        ("3f2a9c.42", "came with the changes"),
        ("1.2.3.4", "came with the changes"),
        ("", "came with the changes"),
        ("-1", "came with the changes"),
        ("9" * 19, "came with the changes"),
    ],
)
def test_every_other_text_is_refused_and_told_where_to_go_on(text: str, words: str) -> None:
    with pytest.raises(MillpondError, match="POND-412") as refused:
        parse_cursor(text, PREFIX, "q")
    assert words in (refused.value.detail or "")
    assert f"AFTER '{OLDEST}'" in (refused.value.hint or "")


def test_what_is_not_kept_names_what_is() -> None:
    assert "Changes 6 to 9 are kept" in (trimmed_error("q", 5, 9).detail or "")
    assert "The oldest cursor available is 5" in (not_kept_error("q", 3, 5, 9).detail or "")
    assert "ahead of its changes" in not_kept_error("q", 10, 5, 9).primary
