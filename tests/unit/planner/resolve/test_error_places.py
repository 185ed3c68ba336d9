"""Where errors point: an expression with its brackets, and words."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding, refuse

from millpond.planner.resolve.error_places import mark_word


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("SELECT delay + carrier FROM flights", "CQL-205", "delay + carrier"),
        ("SELECT abs((carrier)) FROM flights", "CQL-205", "abs((carrier))"),
        (
            "SELECT CASE WHEN delay > 1 THEN abs(carrier) END FROM flights",
            "CQL-205",
            "abs(carrier)",
        ),
    ],
)
def test_it_is_refused_at_its_place(binding: Binding, text: str, code: str, place: str) -> None:
    assert refuse(binding, text) == (code, place)


def test_a_word_is_found_in_any_case_and_not_inside_others() -> None:
    text = "SELECT limits FROM s Limit 3"
    span = mark_word("LIMIT", text)
    assert span is not None
    assert text[span.start : span.end] == "Limit"
    assert mark_word("offset", text) is None
