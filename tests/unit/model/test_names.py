"""Names: what cannot be one, why, and that what is said of it is printable itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import MillpondError, Span
from millpond.model.names import (
    LONGEST_NAME,
    check_name,
    find_fault_of_column,
    find_fault_of_line,
    find_fault_of_name,
    name_error,
)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("flights 2026", None),
        ("日本", None),
        ("x" * LONGEST_NAME, None),
        ("x" * (LONGEST_NAME + 1), "It has 201 characters"),
        ("a/b", "elsewhere in a path"),
        ("a\\b", "elsewhere in a path"),
        (".", "elsewhere in a path"),
        ("..", "elsewhere in a path"),
        ("...", None),
        ("", "It is empty"),
        (" a", "begins or ends with a space"),
        ("17", "id of a query"),
        ("a\nb", "U[+]000A"),
        ("\u202ea", "U[+]202E"),
    ],
)
def test_names_of_things(name: str, fault: str | None) -> None:
    if fault is None:
        check_name(name)
        assert find_fault_of_name(name) is None
    else:
        with pytest.raises(MillpondError, match=f"CQL-102(.|\n)*{fault}"):
            check_name(name)


def test_columns_may_hold_what_paths_cannot() -> None:
    assert find_fault_of_column("a/b") is None
    assert find_fault_of_column("..") is None
    assert find_fault_of_column("\u202ea") is None
    assert "U+000A" in (find_fault_of_column("a\nb") or "")
    assert "U+2028" in (find_fault_of_column("a\u2028b") or "")
    assert "201 characters" in (find_fault_of_column("x" * 201) or "")


def test_a_line_may_be_longer_where_that_is_said() -> None:
    assert find_fault_of_line("x" * 300) is not None
    assert find_fault_of_line("x" * 300, 300) is None


@given(st.text(max_size=60))
def test_the_error_of_any_name_is_a_printable_line(name: str) -> None:
    error = name_error("the name", name, "It is odd.", "CREATE …", Span(0, 6))
    assert error.primary.isprintable()
    assert len(error.primary) < 300
