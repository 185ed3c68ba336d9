"""The schedule: what makes a derivation due, who comes along, and how long one may sleep."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.service.versions import segment, stream, version_of

from millpond.catalog.objects import Derived, QueryDef, RelationDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.patterns import Pattern
from millpond.model.schema import Schema
from millpond.model.time import BEGINNING, LAST
from millpond.model.windows import Range
from millpond.service.changes.derivation import Derivation
from millpond.service.changes.retry import Retries
from millpond.service.changes.schedule import HEARTBEAT_SECONDS, DerivationProgress, Schedule
from millpond.service.ingest.floors import ClockReading
from millpond.state.version import StreamClock, StreamState, Version

SECOND = 1_000_000
READING = ClockReading(0, {})
S = stream(1, "s")
R = RelationDef(2, "r", Schema(()))
QUERY = QueryDef(3, "q", "SELECT …")
LOG = stream(4, "3$changes", derived=Derived("SELECT …", query_id=3))
DERIVED = stream(5, "d", derived=Derived("SELECT …"))
ERROR = MillpondError("POND-404", "no")


def derivation(
    of: StreamDef = LOG,
    *,
    eager: int = 0,
    relations: tuple[int, ...] = (),
    monotonic: bool = False,
) -> Derivation:
    pattern = Pattern.MONOTONIC if monotonic else Pattern.WEAKEST
    plan: Any = SimpleNamespace(
        needs=["s"], relations=[], reach=lambda *_: {}, root=SimpleNamespace(pattern=pattern)
    )
    bound: Any = SimpleNamespace(streams=[SimpleNamespace(stream="s", window=Range(10 * SECOND))])
    return Derivation(of, bound, plan, frozenset([1]), frozenset(relations), eager)


@dataclass
class Pond:
    """What a schedule asks, told by the test."""

    found: list[Derivation]
    target_at: int = 0
    corrected: bool = False
    told_within: bool = False
    retries: Retries = field(default_factory=lambda: Retries(lambda: 0.0))
    blamed: list[tuple[StreamDef, MillpondError]] = field(default_factory=list)

    def schedule(self) -> Schedule:
        pond: Any = self
        return Schedule(
            pond,
            pond,
            pond,
            self.retries,
            lambda *blame: self.blamed.append(blame),
            lambda query: False,
        )

    def of(self, version: Version, stream: StreamDef) -> Derivation:
        for one in self.found:
            if one.id == stream.id:
                return one
        raise ERROR

    def list_streams(self, version: Version) -> list[StreamDef]:
        return [one.stream for one in self.found]

    def target(self, version: Version, reading: ClockReading, derivation: Derivation) -> int:
        return self.target_at

    def is_corrected(self, version: Version, derivation: Derivation) -> bool:
        return self.corrected

    switches = SimpleNamespace(find=lambda version, derivation: (None, LAST), weight=0.0)

    def read_rows(self, version: Version, relation: RelationDef) -> Any:
        return SimpleNamespace(changes_within=lambda after, upto: self.told_within)

    def segment(self, ref: Any) -> Any:
        return SimpleNamespace(ts=np.array([ref.min_ts, ref.max_ts]))


def version(
    position: int, *segments: tuple[int, int], query: QueryDef = QUERY, s: StreamDef = S
) -> Version:
    refs = tuple(segment(1, *span, id=id) for id, span in enumerate(segments, 1))
    at = StreamState(clock=StreamClock(heartbeat=position + 1))
    return version_of(s, R, query, LOG, DERIVED, states={1: StreamState(data=refs), 4: at, 5: at})


def inspect(pond: Pond, version: Version, *, wanted: bool = False) -> DerivationProgress | None:
    (one,) = pond.found
    return pond.schedule().inspect(version, READING, one.stream, wanted)


OLD = (3 * SECOND, 4 * SECOND)  # they leave a window of ten seconds at 13 and 14


def test_nothing_is_to_be_done_at_the_target() -> None:
    pond = Pond([derivation(DERIVED)], target_at=5 * SECOND)
    pond.retries.note(DERIVED.id, ERROR)
    pond.retries.retry(DERIVED.id)
    assert inspect(pond, version(5 * SECOND, OLD)) is None
    assert pond.retries.get(DERIVED.id) is None


def test_elements_after_the_position_make_it_due() -> None:
    pond = Pond([derivation()], target_at=8 * SECOND)
    new, later = (6 * SECOND, 7 * SECOND), (9 * SECOND, 9 * SECOND)
    for segments, is_due in (((OLD,), False), ((OLD, new), True), ((OLD, later), False)):
        progress = inspect(pond, version(5 * SECOND, *segments))
        assert progress is not None
        assert (progress.is_due, progress.upto) == (is_due, 8 * SECOND)


def test_an_expiration_makes_it_due_at_its_instant() -> None:
    pond = Pond([derivation()], target_at=13 * SECOND - 1)
    progress = inspect(pond, version(5 * SECOND, OLD))
    assert progress is not None
    assert (progress.is_due, progress.quiet) == (False, 13 * SECOND - 1)
    pond.target_at += 1
    progress = inspect(pond, version(5 * SECOND, OLD))
    assert progress is not None
    assert (progress.is_due, progress.quiet) == (True, 13 * SECOND - 1)


def test_an_expiration_waits_for_the_interval_unless_somebody_wants_it() -> None:
    pond = Pond([derivation(eager=2 * SECOND)], target_at=15 * SECOND - 1)
    for wanted in (False, True):
        progress = inspect(pond, version(5 * SECOND, OLD), wanted=wanted)
        assert progress is not None
        assert progress.is_due is wanted
    pond.target_at += 1
    progress = inspect(pond, version(5 * SECOND, OLD))
    assert progress is not None
    assert progress.is_due


def test_what_only_grows_never_expires() -> None:
    pond = Pond([derivation(monotonic=True)], target_at=99 * SECOND)
    progress = inspect(pond, version(5 * SECOND, OLD))
    assert progress is not None
    assert (progress.is_due, progress.quiet) == (False, 99 * SECOND)


def test_what_relations_are_told_makes_it_due() -> None:
    pond = Pond([derivation(relations=(2,))], target_at=8 * SECOND)
    for corrected, told, is_due in ((0, 0, False), (1, 0, True), (0, 1, True)):
        pond.corrected, pond.told_within = bool(corrected), bool(told)
        progress = inspect(pond, version(5 * SECOND, OLD))
        assert progress is not None
        assert progress.is_due is is_due


def test_the_first_round_of_all_is_due() -> None:
    pond = Pond([derivation()], target_at=8 * SECOND)
    progress = inspect(pond, version(BEGINNING - 1))
    assert progress is not None
    assert progress.is_due


def test_who_is_not_to_be_advanced() -> None:
    pond = Pond([derivation()], target_at=8 * SECOND)
    inactive = replace(QUERY, options={"active": False})
    suspended = replace(QUERY, suspended="it failed")
    for query in (inactive, suspended):
        assert inspect(pond, version(5 * SECOND, query=query)) is None
    pond = Pond([derivation(DERIVED)], target_at=8 * SECOND)
    pond.retries.note(DERIVED.id, ERROR)
    assert inspect(pond, version(5 * SECOND)) is None
    pond.retries.retry(DERIVED.id)
    assert inspect(pond, version(5 * SECOND)) is not None


def test_who_cannot_be_planned_is_blamed() -> None:
    pond = Pond([])
    assert pond.schedule().find_derivation(version(5), DERIVED) is None
    assert pond.blamed == [(DERIVED, ERROR)]


def progress(of: Derivation, *, upto: int = 20, is_due: bool = False, quiet: int = 20) -> Any:
    return DerivationProgress(of, StreamClock(heartbeat=6), upto, is_due, quiet)


def test_one_that_is_due_takes_its_company_along() -> None:
    log, other = derivation(), derivation(DERIVED)
    schedule, now = Pond([log, other]).schedule(), version(5)
    due, moved = schedule.divide(now, [progress(log), progress(other, is_due=True, quiet=9)])
    assert [item.derivation.id for item in due] == [LOG.id, DERIVED.id]
    assert moved == {}
    apart = derivation(DERIVED, eager=1)
    due, moved = schedule.divide(now, [progress(log), progress(apart, is_due=True)])
    assert [item.derivation.id for item in due] == [DERIVED.id]
    due, moved = schedule.divide(now, [progress(log, upto=19), progress(other, is_due=True)])
    assert [item.derivation.id for item in due] == [DERIVED.id]


def test_quiet_ones_go_on_without_being_computed() -> None:
    log, other = derivation(), derivation(DERIVED)
    pond, now = Pond([log, other]), version(5)
    schedule = pond.schedule()
    due, moved = schedule.divide(now, [progress(log), progress(other)])
    # Others wait for the heartbeat of a derived stream; of a query's log nobody does.
    assert (due, moved) == ([], {DERIVED.id: 20})
    assert schedule.complete_upto(now, LOG) == 20
    assert schedule.complete_upto(now, DERIVED) == 5
    # Where a change of one waits for its interval, the other's heartbeat waits too.
    due, moved = schedule.divide(now, [progress(log, quiet=12), progress(other)])
    assert (due, moved) == ([], {})
    assert schedule.complete_upto(now, LOG) == 20


def test_it_sleeps_until_time_alone_brings_something() -> None:
    clocked = stream(1, "s", timestamp_by=None)
    pond = Pond([derivation()], target_at=5 * SECOND)
    at = version(5 * SECOND, OLD, s=clocked)
    assert pond.schedule().wait_seconds(at, READING) == 8
    assert pond.schedule().wait_seconds(version(5 * SECOND, OLD), READING) is None
    idle = stream(1, "s", idle_after=SECOND)
    assert pond.schedule().wait_seconds(version(5 * SECOND, OLD, s=idle), READING) == 8
    pond.found = [derivation(eager=3 * SECOND)]
    assert pond.schedule().wait_seconds(at, READING) == 11
    pond.target_at = 99 * SECOND
    assert pond.schedule().wait_seconds(at, READING) == pytest.approx(0.2)
    pond.found = [derivation(monotonic=True)]
    assert pond.schedule().wait_seconds(at, READING) == 3600
    pond.found = [derivation(DERIVED, monotonic=True)]
    assert pond.schedule().wait_seconds(at, READING) == HEARTBEAT_SECONDS


def test_it_wakes_to_try_again_what_has_stopped() -> None:
    pond = Pond([])
    pond.retries.note(DERIVED.id, ERROR)
    assert pond.schedule().wait_seconds(version(5), READING) == 15
    pond.retries.retry(DERIVED.id)
    assert pond.schedule().wait_seconds(version(5), READING) == pytest.approx(0.2)


def test_an_expiration_is_looked_for_again_when_something_has_changed() -> None:
    pond = Pond([derivation()], target_at=8 * SECOND)
    schedule, before = pond.schedule(), version(5 * SECOND, OLD)
    opened = []
    real = pond.segment
    pond.segment = lambda ref: (opened.append(ref.id), real(ref))[1]  # type: ignore[method-assign]
    for _ in range(3):
        schedule.inspect(before, READING, LOG, wanted=False)
    assert opened == [1]
    schedule.inspect(version(5 * SECOND, OLD), READING, LOG, wanted=False)
    assert opened == [1, 1]
