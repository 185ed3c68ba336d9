"""From which instant on the changes of a log are of which reduction, and what they lack."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from tests.unit.service.versions import segment, stream, version_of

from millpond.catalog.objects import Derived, QueryDef, StreamDef
from millpond.catalog.tolerance import Reduction
from millpond.model.time import BEGINNING, LAST
from millpond.model.windows import Range, Unbounded
from millpond.planner.approximate.reductions import measure_given_up
from millpond.service.changes.giving_way.reducing import (
    Decision,
    Decisions,
    begin_period,
)
from millpond.state.database_tables import definition_of, definition_row
from millpond.state.version import SegmentRef, StreamClock, StreamState

TOLERANT = QueryDef(3, "q", "", {"tolerate": "window 2 seconds", "weight": 2}, 0, 0)
LOG = replace(stream(5, "q$changes"), derived=Derived("", 3))


def test_who_is_not_heavier_than_what_gives_way_is_reduced_as_far_as_it_tolerates() -> None:
    weight = 0.0
    decide = Decisions(lambda: weight)
    assert decide(TOLERANT, 7) == Decision(Reduction(), LAST)
    weight = 1.9
    assert decide(TOLERANT, 7).reduction == Reduction()
    weight = decide_weight = 2.0
    assert decide(TOLERANT, 7).reduction == Reduction(2_000_000)
    assert decide.weight == decide_weight
    # One that sleeps weighs nothing.
    weight = 1.0
    asleep = replace(TOLERANT, options={**TOLERANT.options, "active": False})
    assert decide(asleep, 7).reduction == Reduction(2_000_000)


def test_what_a_reduction_gives_up_is_a_share() -> None:
    def share(reduction: Reduction, *windows: object) -> float:
        leaves = [SimpleNamespace(window=window) for window in windows]
        return measure_given_up(reduction, SimpleNamespace(streams=leaves))  # type: ignore[arg-type]

    long, short = Range(40_000_000), Range(1_000_000)
    assert share(Reduction(), long) == 0.0
    assert share(Reduction(None, 5.0), Unbounded()) == 0.95
    assert share(Reduction(2_000_000), short, long) == 0.95
    assert share(Reduction(2_000_000, 50.0), long) == 0.975
    assert share(Reduction(2_000_000), short) == 0.0
    assert share(Reduction(2_000_000), long, Unbounded()) == 1.0


def test_periods_are_kept_as_long_as_a_page_may_reach_them() -> None:
    """Also those without any change: the query would have had some if it had been whole."""
    version = version_of(LOG)
    one = begin_period(version, LOG, 10, Reduction(2_000_000))
    assert one.derived is not None
    assert one.derived.periods == ((BEGINNING - 1, "nothing"), (10, "window 2 SECONDS"))
    two = begin_period(version, one, 20, Reduction())
    assert list_periods(two) == [BEGINNING - 1, 10, 20]

    def begin_behind(first: int, *held: SegmentRef) -> list[int]:
        """With changes from this number on."""
        clock = StreamClock(next_seq=first + len(held))
        state = StreamState(data=held, clock=clock)
        return list_periods(begin_period(version_of(LOG, states={5: state}), one, 20, Reduction()))

    kept = segment(5, 15, 17)
    assert begin_behind(0, kept) == [BEGINNING - 1, 10, 20]
    assert begin_behind(7, replace(kept, seq_runs=((0, 7),))) == [10, 20]
    assert begin_behind(7, replace(kept, seq_runs=((0, 7),), min_ts=8)) == [BEGINNING - 1, 10, 20]
    assert begin_behind(7) == [10, 20]


def list_periods(log: StreamDef) -> list[int]:
    """Behind which instants a log's periods begin."""
    assert log.derived is not None
    return [after for after, _ in log.derived.periods]


def test_periods_survive_being_stored() -> None:
    derived = replace(LOG.derived or Derived(""), periods=((1, "nothing"), (2, "sample 5 %")))
    id, kind, body = definition_row(replace(LOG, derived=derived))
    read = definition_of(id, kind, body)
    assert isinstance(read, StreamDef)
    assert read.derived == derived
    # What stores of before have.
    assert "periods" not in definition_row(LOG)[2]
