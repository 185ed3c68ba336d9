"""Constants that cannot become what they are used as."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding, refuse


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("SELECT * FROM flights WHERE delay > 'abc'", "CQL-205", "'abc'"),
        ("SELECT CAST('x' AS INTEGER) FROM flights", "CQL-205", "'x'"),
        ("SELECT * FROM flights WHERE ts > 'soon'", "CQL-205", "'soon'"),
        ("SELECT delay FROM flights LIMIT 'a'", "CQL-103", "'a'"),
    ],
)
def test_it_is_refused_at_its_place(binding: Binding, text: str, code: str, place: str) -> None:
    assert refuse(binding, text) == (code, place)


@pytest.mark.parametrize(
    "condition", ["delay > '3.5'", "ts > '2020-01-01'", "distance IN ('1', '2')", "carrier > 'x'"]
)
def test_strings_that_are_values_of_the_type_are_read_as_such(
    binding: Binding, condition: str
) -> None:
    assert binding(f"SELECT delay FROM flights WHERE {condition}").output.names == ("delay",)
