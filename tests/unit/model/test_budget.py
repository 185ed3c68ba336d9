"""Texts of budgets: what is read, and what is refused with which words."""

from __future__ import annotations

import pytest

from millpond.model.budget import Budget, parse_budget


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("0.5 seconds", Budget(microseconds=500_000)),
        ("1.5 ms", Budget(microseconds=1_500)),
        ("0.1 ms", Budget(microseconds=100)),
        ("0.000001 second", Budget(microseconds=1)),
        ("100 us", Budget(microseconds=100)),
        ("2.5 minutes", Budget(microseconds=150_000_000)),
        ("1.0 probes", Budget(probes=1.0)),
        (" 7PROBES ", Budget(probes=7.0)),
    ],
)
def test_numbers_with_and_without_decimals_are_read(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget
    assert parse_budget(str(budget)) == budget


@pytest.mark.parametrize(
    ("text", "fractions", "words"),
    [
        ("0 probes", False, "enough for one probe"),
        ("0.4 us", False, "enough for one probe"),
        ("0.0001 probes", True, "enough for one probe"),
        ("1.5 probes", False, "whole number"),
        ("0.5 probes", False, "whole number"),
        ("-1 ms", False, "Write a number"),
        ("1 hour", False, "Write a number"),
        ("nan ms", False, "Write a number"),
        ("ms", True, "Write a number"),
    ],
)
def test_what_is_no_budget_is_refused(text: str, fractions: bool, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_budget(text, fractions)
