"""References: each column has one source, by the scopes that SQL looks through."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding, refuse


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("SELECT nope FROM flights", "CQL-202", "nope"),
        ("SELECT f.nope FROM flights f", "CQL-202", "f.nope"),
        ("SELECT x.delay FROM flights f", "CQL-202", "x.delay"),
        ("SELECT origin FROM flights, weather", "CQL-203", "origin"),
        (
            "WITH a AS (SELECT carrier FROM flights) SELECT carrier FROM a, a b",
            "CQL-203",
            "carrier",
        ),
    ],
)
def test_it_is_refused_at_its_place(binding: Binding, text: str, code: str, place: str) -> None:
    assert refuse(binding, text) == (code, place)


@pytest.mark.parametrize(
    ("text", "slices"),
    [
        ("SELECT Carrier FROM flights", [("carrier",)]),
        ("SELECT origin FROM flights JOIN weather USING (origin)", [("origin",), ("origin",)]),
        ("SELECT delay AS d FROM flights ORDER BY d", [("delay",)]),
        ("SELECT carrier FROM (SELECT carrier, delay FROM flights) t", [("carrier", "delay")]),
    ],
)
def test_a_slice_has_the_columns_that_are_read(
    binding: Binding, text: str, slices: list[tuple[str, ...]]
) -> None:
    assert [leaf.columns for leaf in binding(text).streams] == slices


def test_an_inner_select_sees_the_columns_of_the_outer_one(binding: Binding) -> None:
    inner = "SELECT max(wind) FROM weather w WHERE w.origin = f.origin"
    bound = binding(f"SELECT ({inner}) AS m FROM flights f")
    assert {leaf.stream: leaf.columns for leaf in bound.streams} == {
        "weather": ("origin", "wind"),
        "flights": ("origin",),
    }
