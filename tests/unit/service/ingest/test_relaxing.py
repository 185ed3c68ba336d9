"""What gave way in a flood goes on when it is quiet, whoever looked last."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.service.conftest import components_of

from millpond.errors import MillpondError
from millpond.service.pond import Pond

SCHEMA = """
CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts WITH (overload = 'shed random');
CREATE QUERY q AS SELECT v FROM s WHERE v < 3;
"""
#: Longer than any of these tests takes: reached only by what is broken.
PATIENCE = 30.0


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def flood(pond: Pond) -> None:
    """Have much wait, and a push come meanwhile, of which half is shed."""
    pond.execute(SCHEMA)
    pond.query("q").fetch()
    parts = components_of(pond)
    parts.door.add(parts.door.limit * 6 // 10)
    pond.ingest("s", [{"ts": f"2026-01-01 00:00:0{n}", "v": n} for n in range(9)])
    assert parts.pressure.step == 4


def end_flood(pond: Pond) -> None:
    """Nothing waits any more; nobody is told."""
    parts = components_of(pond)
    parts.door.leave(parts.door.limit * 6 // 10)


def list_steps(pond: Pond) -> list[Any]:
    return pond.ask("SELECT action, before, after FROM system$actions").rows()


def test_when_it_is_quiet_the_ladder_is_left_and_followers_go_on(pond: Pond) -> None:
    flood(pond)
    parts = components_of(pond)
    assert len(pond.query("q").fetch()) == 0
    assert parts.relaxing.wait_seconds() is not None
    end_flood(pond)
    wait_until(lambda: not parts.pressure.gives_way)
    wait_until(lambda: not any(parts.advancer.lag().values()))
    steps = list_steps(pond)
    assert ("shed", 0.5, 0.0) in steps
    assert ("defer", 1.0, 0.0) in steps
    kept = pond.ask("SELECT v FROM s WHERE v < 3").rows()
    wait_until(lambda: parts.relaxing.wait_seconds() is None)
    assert [change.row for change in pond.query("q").fetch()] == kept


def test_a_step_that_could_not_be_recorded_is_left_later(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    flood(pond)
    parts = components_of(pond)
    tried: list[str] = []

    def fail(action: str, *rest: Any) -> None:
        tried.append(action)
        raise MillpondError("STORE-603", "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(parts.actions, "record", fail)
        end_flood(pond)
        wait_until(lambda: len(tried) > 1)
        assert parts.pressure.step == 4
    wait_until(lambda: not parts.pressure.gives_way)


def test_more_memory_is_room_at_once(pond: Pond) -> None:
    flood(pond)
    pond.execute("ALTER SYSTEM SET (queue_memory = '8 GB')")
    wait_until(lambda: not components_of(pond).pressure.gives_way)
    assert ("defer", 1.0, 0.0) in list_steps(pond)
