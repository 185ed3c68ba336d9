"""What a query tolerates: clauses in any order, each once, and the text that is kept."""

from __future__ import annotations

import pytest

from millpond.catalog.tolerance import (
    NO_REDUCTION,
    Reduction,
    Tolerance,
    parse_reduction,
    parse_tolerance,
)

MINUTE = 60_000_000


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (" Nothing ", Tolerance()),
        ("window 10 minutes", Tolerance(Reduction(10 * MINUTE))),
        ("sample 05.0%", Tolerance(Reduction(None, 5.0))),
        ("false positives 1 %", Tolerance(Reduction(false_positives=1.0))),
        ("error 2 %, sample 5 %", Tolerance(Reduction(None, 5.0), 2.0, 95.0)),
        (
            "ERROR 2 % AT 99.5 %, window 1 hour, SAMPLE 0.5 %",
            Tolerance(Reduction(60 * MINUTE, 0.5), 2.0, 99.5),
        ),
    ],
)
def test_a_tolerance_is_read_and_its_text_means_the_same(text: str, meant: Tolerance) -> None:
    assert parse_tolerance(text) == meant
    assert parse_tolerance(str(meant)) == meant
    assert bool(meant) == ("nothing" not in text.lower())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("window 0 s", "A window is longer than nothing"),
        ("sample 100 %", "less than 100 %"),
        ("sample 0.00001 %", "at least 0.0001 %"),
        ("error 2 %", "An error needs a sample"),
        ("sample 5 %, error 0 %", "Error and confidence are more than 0 %"),
        ("sample 5 %, error 2 % at 100 %", "less than 100 %"),
        ("sample 5 %, sample 6 %", "has it twice"),
        ("window 1 s, window 2 s", "has it twice"),
        ("memory 5 %", "It has no clause 'memory 5 %'"),
        ("", "It has no clause ''"),
    ],
)
def test_what_is_no_tolerance(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_tolerance(text)


def test_a_reduction_is_kept_as_text() -> None:
    reduction = Reduction(90 * 1_000_000, 12.5)
    assert parse_reduction(str(reduction)) == reduction
    assert parse_reduction(str(NO_REDUCTION)) == NO_REDUCTION
    assert not NO_REDUCTION
    assert Reduction(None, 5.0)
