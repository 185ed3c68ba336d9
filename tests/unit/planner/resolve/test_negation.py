"""EXCEPT ALL … BY: the attributes that both sides have."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding, refuse


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        (
            "SELECT origin FROM flights EXCEPT ALL SELECT origin FROM weather BY (nope)",
            "CQL-202",
            "nope",
        ),
        (
            "SELECT delay FROM flights EXCEPT ALL SELECT origin FROM weather BY (delay)",
            "CQL-202",
            "delay",
        ),
    ],
)
def test_it_is_refused_at_its_place(binding: Binding, text: str, code: str, place: str) -> None:
    assert refuse(binding, text) == (code, place)


def test_the_left_side_has_its_timestamps_too(binding: Binding) -> None:
    bound = binding(
        "SELECT origin, delay FROM flights EXCEPT ALL SELECT origin, wind FROM weather BY (Origin)"
    )
    assert bound.output.names == ("origin", "delay")
    left, right = bound.streams
    assert left.hidden
    assert not right.hidden
