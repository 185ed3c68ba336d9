"""Notes: what is allowed, but probably not what the user means."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.planner.conftest import StaticNames, stream
from tests.unit.planner.refusing import Binding

from millpond.catalog.objects import SourceDef, StreamDef
from millpond.planner.explain.notes import find_notes, find_silences

PUSHED = stream(8, "pushed", "ts TIMESTAMP, v INTEGER")


def test_a_window_over_arrivals_of_a_stream_with_times_is_noted(
    binding: Binding, names: StaticNames
) -> None:
    names.put(StreamDef(9, "plain", PUSHED.schema))
    text = "SELECT v FROM plain [RANGE 1 MINUTE]"
    (note,) = find_notes(binding(f"{text} UNION ALL {text}"), names.find)
    assert "TIMESTAMP BY ts would take the times" in note


@pytest.mark.parametrize(
    "text", ["SELECT delay FROM flights [RANGE 1 MINUTE]", "SELECT v FROM plain [ROWS 3]"]
)
def test_other_windows_are_not(binding: Binding, names: StaticNames, text: str) -> None:
    names.put(StreamDef(9, "plain", PUSHED.schema))
    assert find_notes(binding(text), names.find) == []


def test_a_pushed_stream_that_may_fall_silent_is_noted() -> None:
    others = [
        replace(PUSHED, idle_after=5),
        replace(PUSHED, timestamp_by=None),
        replace(PUSHED, source=SourceDef("csv", {"path": "x"})),
    ]
    assert find_silences(others) == []
    (note,) = find_silences([PUSHED, *others])
    assert note.startswith("pushed is pushed")
