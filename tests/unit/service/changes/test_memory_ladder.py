"""What gives way when state grows is recorded once, up and down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.changes.memory_ladder import MemoryLadder

BEYOND = MillpondError("POND-405", "no room", detail="state_limit allows 5 bytes")
OTHER = MillpondError("POND-404", "it could not be evaluated")


class Pond:
    """Stands for the pond's parts that the ladder reads, and for what keeps its steps."""

    def __init__(self) -> None:
        self.state: dict[str, tuple[float, int, int]] = {}
        self.steps: list[tuple[Any, ...]] = []
        self.is_full = False
        self.ladder = MemoryLadder(self, self, lambda version: 100)  # type: ignore[arg-type]
        self.streams = {7: "q", 8: "r"}

    def list_weighed_state(self, version: object) -> dict[str, tuple[float, int, int]]:
        return self.state

    def record(
        self, action: str, name: str, before: float, after: float, measured: float, why: str
    ) -> None:
        if self.is_full:
            raise MillpondError("STORE-603", "the disk is full")
        self.steps.append((action, name, before, after, measured))

    def look(self, failures: dict[int, MillpondError] | None = None) -> list[tuple[Any, ...]]:
        version: Any = SimpleNamespace(streams=self.streams, name_of=str)
        self.ladder.look(version, failures or {})
        found, self.steps = self.steps, []
        return found


def test_the_weight_up_to_which_state_lies_in_files_is_recorded_when_it_changes() -> None:
    pond = Pond()
    assert pond.look() == []
    pond.state = {"a": (1.0, 60, 40), "b": (5.0, 50, 0)}
    assert pond.look() == [("spill", "", 0.0, 1.0, 1.5)]
    assert pond.look() == []
    pond.state["b"] = (5.0, 30, 20)
    assert pond.look() == [("spill", "", 1.0, 5.0, 1.5)]
    pond.state = {"a": (1.0, 20, 0)}
    assert pond.look() == [("spill", "", 5.0, 0.0, 0.2)]


def test_suspensions_are_recorded_with_the_query_and_other_failures_are_not() -> None:
    pond = Pond()
    assert pond.look({7: BEYOND, 8: OTHER, 9: BEYOND}) == [("suspend", "q", 0.0, 1.0, 0.0)]
    assert pond.look({7: BEYOND}) == []
    del pond.streams[7]  # dropped
    assert pond.look() == [("suspend", "q", 1.0, 0.0, 0.0)]
    assert pond.look() == []


@pytest.mark.parametrize("failures", [{}, {7: BEYOND}], ids=["spilled", "suspended"])
def test_a_step_that_cannot_be_written_is_recorded_later(failures: dict[int, Any]) -> None:
    pond = Pond()
    pond.is_full = True
    pond.state = {} if failures else {"a": (1.0, 60, 40)}
    assert pond.look(failures) == []
    pond.is_full = False
    assert len(pond.look(failures)) == 1
