"""The door: what gives way, how far, and when it comes back."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.service.ingest.door import SHARES, Door, choose_step

SCHEMA = Schema((Field("v", "INTEGER"),))
BLOCKS = StreamDef(1, "b", SCHEMA)
SHEDS = StreamDef(2, "s", SCHEMA, overload="shed random")


class Recorded:
    """Steps as they were recorded: (action, stream, before, after)."""

    def __init__(self) -> None:
        self.steps: list[tuple[Any, ...]] = []

    def record(
        self, action: str, name: str, before: float, after: float, measured: float, why: str
    ) -> None:
        assert "bytes of pushes wait" in why
        assert measured >= 0
        self.steps.append((action, name, before, after))


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@pytest.fixture
def door(recorded: Recorded) -> Door:
    return Door(lambda: 1000, recorded)


def test_a_stream_that_blocks_is_refused_before_there_is_too_much(
    door: Door, recorded: Recorded
) -> None:
    door.enter(BLOCKS, 600, 6)
    for _ in range(2):
        with pytest.raises(MillpondError, match="POND-417"):
            door.enter(BLOCKS, 500, 5)
    assert door.waiting_bytes == 600
    assert door.is_holding_back(BLOCKS)
    assert door.refused == {1: 10}
    door.leave(600)
    door.enter(BLOCKS, 500, 5)
    assert not door.is_holding_back(BLOCKS)
    assert recorded.steps == [("hold back", "b", 0.0, 1.0), ("hold back", "b", 1.0, 0.0)]


def test_one_push_that_is_too_large_is_taken_when_nothing_waits(door: Door) -> None:
    assert door.enter(BLOCKS, 5000, 1).share == 0.0
    with pytest.raises(MillpondError, match="POND-417"):
        door.enter(BLOCKS, 1, 1)


def test_a_stream_that_sheds_climbs_and_descends(door: Door, recorded: Recorded) -> None:
    shares = []
    for waiting in (0, 500, 700, 900, 800, 550, 400, 250):
        door.leave(door.waiting_bytes)
        door.add(waiting)
        shares.append(door.enter(SHEDS, 10, 1).share)
    assert shares == [0.0, 0.5, 0.9, 1.0, 1.0, 0.5, 0.5, 0.0]
    taken = [(one, next) for one, next in itertools.pairwise(shares) if one != next]
    assert [step[2:] for step in recorded.steps] == taken


def test_what_does_not_fit_is_shed_at_once(door: Door) -> None:
    door.add(400)
    assert door.enter(SHEDS, 601, 1).share == 1.0
    assert door.step_of(SHEDS) == len(SHARES) - 1


def test_what_is_left_of_a_push_that_is_shed_whole_is_held_back_where_it_has_no_room(
    door: Door, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.service.ingest.door.LEFT_BYTES", 0)
    door.add(950)
    for kept in (40, 11, 11):
        passage = door.enter(SHEDS, 300, 3)
        assert passage.is_closed
        before = door.waiting_bytes
        if kept == 40:
            door.keep(SHEDS, passage, 300, kept, 3)
            assert door.waiting_bytes == before + kept
            continue
        with pytest.raises(MillpondError, match="POND-417"):
            door.keep(SHEDS, passage, 300, kept, 3)
        assert door.waiting_bytes == before
    assert door.refused == {SHEDS.id: 6}
    assert recorded.steps == [("shed", "s", 0.0, 1.0), ("hold back", "s", 0.0, 1.0)]
    door.leave(door.waiting_bytes)
    door.relax({SHEDS.id: SHEDS})
    assert not door.is_holding_back(SHEDS)
    assert recorded.steps[2:] == [("shed", "s", 1.0, 0.0), ("hold back", "s", 1.0, 0.0)]


@pytest.mark.parametrize("step", range(len(SHARES)))
def test_a_step_is_left_only_with_some_slack(step: int) -> None:
    least = SHARES[step][0]
    assert choose_step(step, least) == step
    if step:
        assert choose_step(step, least - 0.19) == step
        assert choose_step(step, least - 0.2) < step


def test_what_cannot_be_recorded_is_not_done(door: Door, recorded: Recorded) -> None:
    def fail(*_: Any) -> None:
        raise MillpondError("STORE-603", "the disk is full")

    recorded.record = fail  # type: ignore[method-assign]
    door.add(800)
    with pytest.raises(MillpondError, match="STORE-603"):
        door.enter(SHEDS, 10, 1)
    assert door.waiting_bytes == 800
    assert door.step_of(SHEDS) == 0


def test_steps_are_left_though_nobody_pushes_any_more(door: Door, recorded: Recorded) -> None:
    door.enter(BLOCKS, 600, 6)
    with pytest.raises(MillpondError, match="POND-417"):
        door.enter(BLOCKS, 500, 5)
    door.enter(SHEDS, 100, 1)
    streams = {stream.id: stream for stream in (BLOCKS, SHEDS)}
    door.relax(streams)
    assert (door.step_of(SHEDS), door.is_holding_back(BLOCKS)) == (1, True)
    door.leave(650)
    door.relax(streams)
    assert (door.step_of(SHEDS), door.is_holding_back(BLOCKS)) == (0, False)
    assert recorded.steps[2:] == [("shed", "s", 0.5, 0.0), ("hold back", "b", 1.0, 0.0)]


def fill_and_empty(door: Door, stream: StreamDef) -> None:
    """Let a stream shed, or be held back, and have all that waited taken."""
    door.enter(BLOCKS, 600, 6)
    if stream is SHEDS:
        door.enter(SHEDS, 10, 1)
    else:
        with pytest.raises(MillpondError, match="POND-417"):
            door.enter(BLOCKS, 500, 5)
    door.leave(600)


@pytest.mark.parametrize("stream", [SHEDS, BLOCKS])
def test_a_step_that_a_push_leaves_while_it_is_left_is_recorded_once(
    stream: StreamDef, door: Door, recorded: Recorded
) -> None:
    fill_and_empty(door, stream)
    record = recorded.record

    def push_meanwhile(*step: Any) -> None:
        recorded.record = record  # type: ignore[method-assign]
        door.enter(stream, 10, 1)
        record(*step)

    recorded.record = push_meanwhile  # type: ignore[method-assign]
    door.relax({stream.id: stream})
    assert [left for *_, left, _ in recorded.steps].count(0.0) == 1
    assert len(recorded.steps) == 2


@pytest.mark.parametrize("stream", [SHEDS, BLOCKS])
def test_a_step_that_cannot_be_recorded_is_not_left(
    stream: StreamDef, door: Door, recorded: Recorded
) -> None:
    fill_and_empty(door, stream)

    def fail(*_: Any) -> None:
        raise MillpondError("STORE-603", "the disk is full")

    recorded.record = fail  # type: ignore[method-assign]
    with pytest.raises(MillpondError, match="STORE-603"):
        door.relax({stream.id: stream})
    assert door.gives_way


def test_a_stream_that_is_to_shed_no_more_leaves_its_step(door: Door, recorded: Recorded) -> None:
    door.enter(SHEDS, 600, 6)
    door.enter(SHEDS, 10, 1)
    blocks = replace(SHEDS, overload="block")
    door.relax({SHEDS.id: blocks})
    assert door.step_of(blocks) == 0
    assert recorded.steps == [("shed", "s", 0.0, 0.5), ("shed", "s", 0.5, 0.0)]
    door.enter(SHEDS, 10, 1)
    door.relax({})
    assert door.step_of(SHEDS) == 0
