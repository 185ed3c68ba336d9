"""Items of FROM: what a name means there, and what a window or a sample is for."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding, refuse


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("SELECT * FROM nothing", "CQL-201", "nothing"),
        ("SELECT * FROM late", "CQL-216", "late"),
        ("SELECT * FROM planes [ROWS 10]", "CQL-204", "[ROWS 10]"),
        ("SELECT * FROM planes SAMPLE(10)", "CQL-216", "10"),
        ("SELECT * FROM flights f, flights f", "CQL-203", "flights f"),
        ("SELECT * FROM flights f JOIN planes p USING (nope)", "CQL-202", "nope"),
    ],
)
def test_it_is_refused_at_its_place(binding: Binding, text: str, code: str, place: str) -> None:
    assert refuse(binding, text) == (code, place)


def test_columns_of_using_are_there_once(binding: Binding) -> None:
    both = binding("SELECT * FROM flights f, planes p WHERE f.tailnum = p.tailnum")
    once = binding("SELECT * FROM flights f JOIN planes p USING (tailnum)")
    assert len(both.output.names) == len(once.output.names) + 1


def test_rejects_of_a_stream_are_read_by_name(binding: Binding) -> None:
    assert binding("SELECT * FROM flights$rejects").output.names == (
        "rejected_at",
        "reason",
        "raw",
    )
