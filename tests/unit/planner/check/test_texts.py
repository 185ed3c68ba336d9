"""Comparisons of a text with a value of another type."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding, refuse


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("SELECT * FROM flights WHERE carrier = 5", "CQL-205", "5"),
        ("SELECT 1 AS a FROM flights f, planes p WHERE f.carrier = p.seats", "CQL-205", "p.seats"),
    ],
)
def test_it_is_refused_at_its_place(binding: Binding, text: str, code: str, place: str) -> None:
    assert refuse(binding, text) == (code, place)


@pytest.mark.parametrize("condition", ["carrier = '5'", "carrier = origin", "distance = 5"])
def test_values_of_one_type_are_compared(binding: Binding, condition: str) -> None:
    assert len(binding(f"SELECT ts FROM flights WHERE {condition}").streams) == 1
