"""A derivation: with whom it shares a dataflow, how its steps lie, where its changes begin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.service.versions import stream, version_of

from millpond.catalog.objects import Derived, StreamDef
from millpond.model.patterns import Pattern
from millpond.model.time import BEGINNING
from millpond.service.changes.derivation import Derivation, find_start
from millpond.state.version import StreamClock, StreamState

LOG = stream(4, "3$changes", derived=Derived("SELECT …", query_id=3))
DERIVED = stream(5, "d", derived=Derived("SELECT …"))
LOOK: Any = SimpleNamespace(columns=["ts", "priority"], kind="join")
ESTIMATE: Any = SimpleNamespace(columns=["v"], kind="aggregate")


def derivation(of: StreamDef = LOG, *, relations: tuple[int, ...] = (), **more: Any) -> Derivation:
    plan: Any = SimpleNamespace(
        schema=pa.schema([("v", pa.int32())]),
        reach=lambda at, answers=False: {"s": at - 10, "t": None},
        root=SimpleNamespace(pattern=more.pop("pattern", Pattern.WEAKEST)),
    )
    bound: Any = SimpleNamespace(streams=[], summaries=more.pop("summaries", []))
    return Derivation(of, bound, plan, frozenset([1]), frozenset(relations), **more)


def test_what_is_as_patient_and_reads_the_same_shares_a_dataflow() -> None:
    assert derivation(LOG).sharing_key == derivation(DERIVED).sharing_key
    others = [derivation(relations=(2,)), derivation(eager_expiration=5), derivation(line=8)]
    assert derivation().sharing_key not in {other.sharing_key for other in others}


@pytest.mark.parametrize(
    ("made", "records"),
    [
        (derivation(LOG), False),
        (derivation(LOG, relations=(2,)), True),
        (derivation(DERIVED), True),
    ],
)
def test_whose_position_is_recorded_without_changes(made: Derivation, records: bool) -> None:
    assert made.must_record_position is records


def test_steps_end_at_lines() -> None:
    stepping = derivation(line=10)
    assert [stepping.end_step(at) for at in (-11, -1, 0, 9, 10)] == [-11, -1, 9, 9, 19]
    assert derivation().end_step(13) == 13


def test_a_look_adds_its_priority_and_does_not_expire() -> None:
    assert derivation().schema.names == ["v"]
    assert derivation(look=LOOK).schema.names == ["v", "priority"]
    assert derivation().moves_by_itself
    assert not derivation(look=LOOK).moves_by_itself
    assert derivation(look=ESTIMATE).moves_by_itself
    assert not derivation(pattern=Pattern.MONOTONIC).moves_by_itself


def test_a_look_reaches_as_far_back_as_its_summaries() -> None:
    assert derivation().reach(100) == {"s": 90, "t": None}
    summary = SimpleNamespace(granularity=60_000_000, rate=2, depth=3)
    looking = derivation(look=LOOK, line=1_000_000, summaries=[summary])
    low = looking.reach(10**12)["s"]
    assert looking.reach(10**12)["t"] is None
    assert low is not None
    assert 10**12 - low >= 60_000_000 + 1_000_000
    assert looking.reach(10**12 + 5)["s"] == low + 5


@pytest.mark.parametrize(
    ("kept_from", "reaches", "after", "begins"),
    [
        (BEGINNING, 10, 7, 7),  # everything is kept
        (100, 0, 7, 99),  # the first kept instant is the first delivered one
        (100, 10, 7, 109),  # and the window of the first instant has to be there
        (100, 10, 500, 500),
        (100, None, 7, 99),  # a window without an end has what there is
    ],
)
def test_changes_begin_where_what_they_need_is_kept(
    kept_from: int, reaches: int | None, after: int, begins: int
) -> None:
    state = StreamState(clock=StreamClock(kept_from=kept_from))
    version = version_of(stream(1, "s"), states={1: state})
    bound: Any = SimpleNamespace(streams=[SimpleNamespace(stream="s", rejects=False)])
    plan: Any = SimpleNamespace(
        reach=lambda at, answers=False: {"s": None if reaches is None else at + 1 - reaches}
    )
    assert find_start(version, bound, plan, after) == begins
