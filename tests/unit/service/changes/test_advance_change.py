"""The epoch of a round: whose position moves, which changes it has, and which job came too late."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.service.versions import SCHEMA, segment, stream, version_of

from millpond.catalog.objects import RelationDef
from millpond.errors import MillpondError
from millpond.runtime.advance_job import AdvanceJob, AdvanceResult
from millpond.runtime.batch_tasks import BuiltSegment
from millpond.service.changes.advance_change import make_change
from millpond.service.changes.advance_jobs import Runnable
from millpond.state.arrow_file import FileMeta
from millpond.state.version import DATA, WAITING, StreamClock, StreamState, Version

CLOCK = StreamClock(heartbeat=50, next_seq=7, high=40)
LOG = stream(5, "q$changes")


def job(upto: int = 89) -> AdvanceJob:
    return AdvanceJob("/store", "life", "group", 49, 3, upto, 8, {}, {}, {}, ())


def member(id: int, *relations: int, position: int = 49) -> Runnable:
    derivation: Any = SimpleNamespace(id=id, relations=frozenset(relations), leaves=None)
    return Runnable(derivation, replace(CLOCK, heartbeat=position + 1), 89, 89)


def built(id: int = 5, kind: str = DATA, rows: int = 3, max_ts: int = 60) -> BuiltSegment:
    file = FileMeta(Path("/store/segments/a.arrow"), rows, 100, "sum")
    return BuiltSegment(id, kind, file, 55, max_ts)


def now(clock: StreamClock = CLOCK, **others: Any) -> Version:
    return version_of(LOG, states={5: StreamState(clock=clock)}, **others)


class Told:
    """Relations of which some were told of an instant since a job was planned."""

    def __init__(self, *told: int) -> None:
        self.told = told

    def was_told(self, version: Version, id: int, epoch: int, upto: int) -> bool:
        return id in self.told


NOBODY: Any = Told()


def test_changes_and_the_position_behind_them_are_one_epoch() -> None:
    result = AdvanceResult(built=(built(),))
    change, overtaken = make_change(now(), [([member(5)], job(), result)], NOBODY)
    clock = change.clocks[5]
    assert (clock.heartbeat, clock.relations_epoch) == (90, 8)
    assert (clock.next_seq, clock.high) == (10, 60)
    assert [s.seq_runs for s in change.segments] == [((0, 7),)]
    assert overtaken == []


def test_a_derivation_may_be_done_only_up_to_an_earlier_instant() -> None:
    result = AdvanceResult(reached={5: 70})
    change, _ = make_change(now(), [([member(5)], job(), result)], NOBODY)
    assert change.clocks[5].heartbeat == 71


@pytest.mark.parametrize(
    ("version", "failures"),
    [
        (version_of(), {}),  # it was dropped
        (now(replace(CLOCK, heartbeat=70)), {}),  # somebody else moved it
        (now(), {5: MillpondError("POND-404", "it cannot be evaluated")}),
    ],
)
def test_what_does_not_move_gets_no_changes(version: Version, failures: dict[int, Any]) -> None:
    result = AdvanceResult(built=(built(),), failures=failures)
    change, _ = make_change(version, [([member(5)], job(), result)], NOBODY)
    assert not change.clocks
    assert not change.segments


@pytest.mark.parametrize("unchanged", [True, False])
def test_what_waits_takes_the_place_of_what_waited(unchanged: bool) -> None:
    waited = replace(segment(5, 1, 2, id=33), kind=WAITING)
    version = version_of(LOG, states={5: StreamState(waiting=(waited,), clock=CLOCK)})
    pieces = () if unchanged else (built(kind=WAITING),)
    result = AdvanceResult(pieces, unchanged=frozenset({5} if unchanged else ()))
    change, _ = make_change(version, [([member(5)], job(), result)], NOBODY)
    assert list(change.expired) == ([] if unchanged else [33])
    assert change.clocks[5].next_seq == 7  # it is no change
    assert len(change.segments) == len(pieces)


@pytest.mark.parametrize("non_retroactive", [True, False])
def test_a_job_that_did_not_see_an_update_is_planned_again(non_retroactive: bool) -> None:
    relation = RelationDef(9, "r", SCHEMA, non_retroactive=non_retroactive)
    version = version_of(LOG, relation, states={5: StreamState(clock=CLOCK)})
    late = job()
    told: Any = Told(9)
    gained = [([member(5, 9)], late, AdvanceResult(built=(built(),)))]
    change, overtaken = make_change(version, gained, told)
    assert overtaken == ([late] if non_retroactive else [])
    assert (5 in change.clocks) is not non_retroactive
