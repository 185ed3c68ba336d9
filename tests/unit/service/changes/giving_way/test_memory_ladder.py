"""What gives way when state grows is recorded once, up and down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millpond.catalog.objects import QueryDef
from millpond.errors import MillpondError
from millpond.service.changes.giving_way.memory_ladder import MemoryLadder

BEYOND = MillpondError("POND-405", "no room", detail="state_limit allows 5 bytes")
OTHER = MillpondError("POND-404", "it could not be evaluated")


class Pond:
    """Stands for the pond's parts that the ladder reads, and for what keeps its steps."""

    def __init__(self) -> None:
        self.state: dict[str, tuple[float, int, int]] = {}
        self.steps: list[tuple[Any, ...]] = []
        self.is_full = False
        self.ladder = MemoryLadder(self, self, lambda version: 100)  # type: ignore[arg-type]
        self.streams: dict[int, Any] = {7: "q", 8: "r"}
        self.options: list[dict[str, Any]] = []
        self.settings: dict[str, str] = {}
        self.is_behind = False

    def list_weighed_state(self, version: object) -> dict[str, tuple[float, int, int]]:
        return self.state

    def version(self) -> Any:
        """A version with queries that tolerate something, of these weights."""
        queries = [QueryDef(n, "", "", o, 0, 0) for n, o in enumerate(self.options)]
        logs = [SimpleNamespace(is_change_log=True, query=query) for query in queries]
        return SimpleNamespace(
            streams={**self.streams, **dict(enumerate(logs, 100))} if logs else self.streams,
            name_of=str,
            query_of=lambda stream: stream.query,
            settings=self.settings,
        )

    def record(
        self, action: str, name: str, before: float, after: float, measured: float, why: str
    ) -> None:
        if self.is_full:
            raise MillpondError("STORE-603", "the disk is full")
        self.steps.append((action, name, before, after, measured))

    def look(self, failures: dict[int, MillpondError] | None = None) -> list[tuple[Any, ...]]:
        self.ladder.look(self.version(), failures or {}, self.is_behind)
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


def tolerant(*weights: float) -> list[dict[str, Any]]:
    return [{"tolerate": "window 1 second", "weight": weight} for weight in weights]


def steps_of(pond: Pond, *totals: int) -> list[tuple[Any, ...]]:
    """The steps of REDUCE at looks that find so many bytes of state."""
    found = []
    for total in totals:
        pond.state = {"a": (1.0, total, 0)}
        found += [(total, *step[2:4]) for step in pond.look() if step[0] == "reduce"]
    return found


def test_the_lighter_half_is_reduced_first_and_then_all() -> None:
    pond = Pond()
    pond.streams, pond.options = {}, [*tolerant(1, 2, 4, 9), {"weight": 50}]
    pond.settings = {"state_limit": "1 KB"}
    assert steps_of(pond, 499, 500, 600, 700, 999) == [(500, 0.0, 2.0), (700, 2.0, 9.0)]
    assert pond.ladder.fill == 0.999
    assert pond.ladder.shortage is None


def test_without_a_limit_the_room_is_four_times_the_memory() -> None:
    pond = Pond()
    pond.streams, pond.options = {}, tolerant(1)
    assert steps_of(pond, 199, 279, 280) == [(280, 0.0, 1.0)]


def test_a_reduction_is_kept_while_whole_queries_would_need_the_room() -> None:
    """State became a tenth by the step; what would be there without is ten times what is there."""
    pond = Pond()
    pond.streams, pond.options = {}, tolerant(1, 2)
    pond.settings = {"state_limit": "1 KB"}
    assert steps_of(pond, 800) == [(800, 0.0, 2.0)]
    assert steps_of(pond, *[80] * 20) == []
    assert steps_of(pond, 50, 41, 39) == [(50, 2.0, 1.0), (39, 1.0, 0.0)]
    assert steps_of(pond, 80, 499) == []


def test_a_step_that_cannot_be_recorded_is_not_taken() -> None:
    pond = Pond()
    pond.streams, pond.options = {}, tolerant(1)
    pond.is_full = True
    assert steps_of(pond, 300) == []
    assert pond.ladder.reduced_weight == 0
    pond.is_full = False
    assert steps_of(pond, 300) == [(300, 0.0, 1.0)]
    assert pond.ladder.reduced_weight == 1


def test_pushes_are_held_back_near_the_limit_while_followers_are_behind() -> None:
    pond = Pond()
    pond.streams, pond.settings = {}, {"state_limit": "1 KB"}
    pond.state = {"a": (1.0, 850, 50)}
    pond.look()
    assert pond.ladder.shortage is None
    pond.is_behind = True
    pond.look()
    assert pond.ladder.shortage == "900 of 1,000 bytes of state are taken"
    pond.ladder.rest(pond.version())
    assert pond.ladder.shortage is None
    pond.state = {"a": (1.0, 899, 0)}
    pond.look()
    assert pond.ladder.shortage is None
    pond.settings, pond.state = {}, {"a": (1.0, 10**9, 0)}
    pond.look()
    assert pond.ladder.shortage is None


def test_steps_are_left_while_followers_rest_if_there_is_more_room() -> None:
    pond = Pond()
    pond.streams, pond.options = {}, tolerant(1)
    assert steps_of(pond, 300) == [(300, 0.0, 1.0)]
    pond.ladder.rest(pond.version())
    assert pond.ladder.reduced_weight == 1.0
    pond.settings = {"state_limit": "1 MB"}
    pond.ladder.rest(pond.version())
    assert pond.ladder.reduced_weight == 0.0
