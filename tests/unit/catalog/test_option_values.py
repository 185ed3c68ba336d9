"""Kinds of values of options: what is kept of a value, what is refused, and how the kind is put."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from millpond.catalog import option_values
from millpond.catalog.option_values import (
    LENGTH,
    LENGTH_OR_AUTO,
    MEMORY,
    MEMORY_OR_UNBOUNDED,
    PORT,
    UP_TO_A_MINUTE,
    OptionValues,
    anything,
    one_of,
    parse_memory,
)

KINDS = {name: kind for name, kind in vars(option_values).items() if isinstance(kind, OptionValues)}


def is_refused(kind: OptionValues, value: Any) -> bool:
    try:
        kind.check(value)
    except ValueError:
        return True
    return False


def test_the_words_of_a_choice_are_listed_unless_they_need_explaining() -> None:
    assert one_of("a", "b", "c").takes == "'a', 'b' or 'c'"
    assert one_of("a", "b", takes="'a' (first), 'b' (then)").takes == "'a' (first), 'b' (then)"
    assert one_of("a", "b").check("B") == "b"
    assert one_of("a", "b").schema == {"enum": ["a", "b"]}
    assert is_refused(one_of("a", "b"), "c")


@pytest.mark.parametrize(
    ("given", "kept", "size"),
    [
        ("256 MB", "256 MB", 256_000_000),
        (" 1.5kb", "1500 B", 1_500),
        ("3000 KB", "3 MB", 3_000_000),
        ("0.002 TB", "2 GB", 2_000_000_000),
    ],
)
def test_memory_is_kept_in_its_largest_whole_unit(given: str, kept: str, size: int) -> None:
    assert MEMORY.check(given) == kept
    assert parse_memory(kept) == size


def test_a_port_is_a_number_or_its_text() -> None:
    assert PORT.check(5432) == PORT.check("5432") == 5432
    for wrong in (0, 65_536, "0", "65536", "x", "5432 ", "-1", "", "٣", True, None, 5432.0):
        assert is_refused(PORT, wrong)


@pytest.mark.parametrize("wrong", ["999 B", "1e3 KB", "5000000 TB", 5, True, None, "", "1 ZB"])
def test_what_is_no_amount_of_memory(wrong: Any) -> None:
    assert is_refused(MEMORY, wrong)


def test_one_word_may_stand_for_a_value() -> None:
    assert MEMORY_OR_UNBOUNDED.check("Unbounded") == "unbounded"
    assert MEMORY_OR_UNBOUNDED.check("1 GB") == "1 GB"
    assert LENGTH_OR_AUTO.check("AUTO") == "auto"
    assert all(is_refused(LENGTH_OR_AUTO, wrong) for wrong in ("unbounded", 7, None))


def test_a_length_of_time_needs_its_unit() -> None:
    assert LENGTH.check(timedelta(minutes=90)) == LENGTH.check("90 minutes")
    with pytest.raises(ValueError, match="A number needs a unit of time"):
        LENGTH.check(90)
    assert UP_TO_A_MINUTE.check("60 s") == "1 MINUTE"
    assert all(is_refused(UP_TO_A_MINUTE, wrong) for wrong in ("0 s", "61 s"))


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_put_in_words_and_refuses_what_is_no_value(name: str) -> None:
    assert KINDS[name].takes
    assert KINDS[name].schema
    assert is_refused(KINDS[name], object())


def test_settings_that_only_python_gives_are_not_checked() -> None:
    marker = object()
    assert anything("a function").check(marker) is marker
