"""A pattern's texts have the outline and the constants that `templates` finds."""

from __future__ import annotations

import random
import re

import pytest

from millpond.planner.bind.text_outline import CONSTANT, number_kind, outline_text
from millpond.planner.bind.text_pattern import make_pattern

BETWEEN = ["a", "x1", " ", "=", "-", "<", "(", ")", ", ", "1-", "2.", ".", "$", "é", '"', "٣", "\n"]
BETWEEN += ["_9", " AND b < ", "4a", "'"]
CONSTANTS = ["7", "17", "0042", "123456789", "1234567890", "0.5", "12345678.123456789", "'a'", "''"]
CONSTANTS += ["'it''s'", "'7'", "'x 1.5 y'", "'é'", "1e5", "1.", ".5", "12345678901234567890", "٣"]


def pattern_of(text: str, lifted: set[int] | None = None) -> re.Pattern[str] | None:
    pieces = CONSTANT.split(text)
    kinds = ["'" if c[0] == "'" else number_kind(c) for c in pieces[1::2]]
    return make_pattern(pieces, kinds, set(range(len(kinds))) if lifted is None else lifted)


def drawn(rng: random.Random, like: str | None = None) -> str:
    """A text of pieces; or one that differs from another in few of them."""
    if like is None:
        return "".join(rng.choice(BETWEEN + CONSTANTS) for _ in range(rng.randrange(12)))
    pieces = re.split(r"('(?:[^']|'')*'|[\d.]+)", like)
    for place in range(1, len(pieces), 2):
        if rng.random() < 0.6:
            pieces[place] = rng.choice(CONSTANTS)
    return "".join(pieces)


@pytest.mark.parametrize("seed", range(20))
def test_what_matches_has_theoutline_text_and_the_constants(seed: int) -> None:
    rng = random.Random(seed)
    matched = 0
    for _ in range(400):
        text = drawn(rng)
        pattern = pattern_of(text)
        if pattern is None:
            continue
        outline, _ = outline_text(text)
        for _ in range(20):
            other = drawn(rng, like=text)
            match = pattern.fullmatch(other)
            if match is not None:
                assert outline_text(other) == (outline, list(match.groups())), (text, other)
                matched += other != text
    assert matched > 20


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("a = 1", "a = 1234567890"),
        ("a = 1", "a = 1.5"),
        ("a = 1", "a = -1"),
        ("a = 1", "a = ٣"),
        ("a = 1", "a = 1 "),
        ("a = 1234567890", "a = 1234567890123456789"),
        ("a = 0.5", "a = 123456789.5"),
        ("a = 'x'", "a = 'it''s'"),
        ("a = 'x'", "a = '\ud800'"),
        ("a = 'x'", f"a = '{'x' * 1_001}'"),
    ],
)
def test_other_kinds_of_constants_do_not_match(text: str, other: str) -> None:
    pattern = pattern_of(text)
    assert pattern is not None
    assert pattern.fullmatch(text)
    assert not pattern.fullmatch(other)


@pytest.mark.parametrize(
    "text", ["a = '5", '"it\'s" = 5', "'a'5", "a = 123456789012345678901", f"{'a' * 10_000} = 5"]
)
def test_where_it_cannot_be_shown_there_is_no_pattern(text: str) -> None:
    assert pattern_of(text) is None


def test_constants_that_are_not_lifted_stay() -> None:
    pattern = pattern_of("a = 1 AND b = 2", {1})
    assert pattern is not None
    match = pattern.fullmatch("a = 1 AND b = 3")
    assert match is not None
    assert match.groups() == ("3",)
    assert pattern.fullmatch("a = 2 AND b = 2") is None


def test_a_text_of_very_many_constants_has_no_pattern() -> None:
    assert pattern_of(", ".join(["1"] * 50)) is not None
    assert pattern_of(", ".join(["1"] * 51)) is None
