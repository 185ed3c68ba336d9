"""Suggestions: the name that was most probably meant, spelled as it is."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millpond.planner.resolve.names import (
    MOST_COMPARED,
    did_you_mean,
    find_nearest,
    join_names,
    spell,
)

NAMES = ["Flights", "weather", "tail_number"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("flights", "Flights"),
        ("FLIHGTS", "Flights"),
        ("tailnumber", "tail_number"),
        ("tail__Number", "tail_number"),
        ("wether", "weather"),
        ("x", None),
        ("", None),
    ],
)
def test_the_nearest_name(typed: str, meant: str | None) -> None:
    assert find_nearest(typed, NAMES) == meant
    assert did_you_mean(typed, NAMES) == (meant and f'Did you mean "{meant}"?')


def test_a_name_without_underscores_wins_over_a_close_one() -> None:
    assert find_nearest("a_b_c", ["a_b_d", "abc"]) == "abc"


def test_among_very_many_names_none_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(*_: object, **__: object) -> list[str]:
        raise AssertionError("a hundred thousand names are compared one by one")

    monkeypatch.setattr("millpond.planner.resolve.names.difflib.get_close_matches", compare)
    many = [f"q{n}" for n in range(MOST_COMPARED + 1)]
    assert find_nearest("q99x", many) is None
    assert find_nearest("Q_99", many) == "q99"


def test_a_long_list_is_cut_and_counted() -> None:
    assert join_names([]) == ""
    assert join_names("abc", limit=3) == "a, b, c"
    assert join_names("abcd", limit=3) == "a, b, c, … (4 in all)"


@pytest.mark.parametrize(
    ("given", "name", "printed"),
    [
        ("flights", "Flights", "Flights"),
        ('"flights"', "Flights", "Flights"),
        ("x", "a b", '"a b"'),
        ("x", "2026", '"2026"'),
        ('"select"', "select", '"select"'),
    ],
)
def test_a_name_is_quoted_only_where_it_has_to_be(given: str, name: str, printed: str) -> None:
    quoted = given.startswith('"')
    identifier = exp.Identifier(this=given.strip('"'), quoted=quoted)
    spell(identifier, name)
    assert identifier.sql("duckdb") == printed
