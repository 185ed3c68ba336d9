"""Derivations that have nothing new are not looked at, and what is skipped would not be due."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.unit.service.conftest import SECOND, components_of

from millpond.service.changes.schedule import Schedule
from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock

STREAMS = (
    "CREATE STREAM s (ts TIMESTAMP, x INTEGER) TIMESTAMP BY ts;"
    "CREATE STREAM other (ts TIMESTAMP, x INTEGER) TIMESTAMP BY ts;"
    "CREATE STREAM now (x INTEGER)"
)


def text(number: int, stream: str = "s") -> str:
    """A followed query that shares no log: its changes leave when its window does."""
    return f"SELECT x, COUNT(*) AS n FROM {stream} [RANGE {number + 1} SECONDS] GROUP BY x"


def push(pond: Pond, stream: str, *seconds: int) -> None:
    ts = pa.array([n * 1_000_000 for n in seconds], pa.timestamp("us"))
    pond.ingest(stream, pa.table({"ts": ts, "x": pa.array([1] * len(seconds), pa.int32())}))


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The derivations that the schedule looks at; in every round, those it skips are looked at too.

    INV-SETTLED-1: none of those is due.
    """
    seen: list[int] = []
    look, inspect_all = Schedule._look, Schedule.inspect_all

    def note(self: Schedule, version: Any, reading: Any, stream: Any, wanted: bool) -> Any:
        seen.append(stream.id)
        return look(self, version, reading, stream, wanted)

    def check(self: Schedule, version: Any, reading: Any, *rest: Any) -> Any:
        found = inspect_all(self, version, reading, *rest)
        due = {one.derivation.id for one in found if one.is_due}
        sharing = {one.derivation.sharing_key for one in found if one.is_due}
        listed = {one.derivation.id for one in found}
        for stream in self._derivations.list_streams(version):
            own = look(self, version, reading, stream, False)
            if own is not None and own.is_behind:
                assert not own.is_due or stream.id in due, stream.name
                assert own.derivation.sharing_key not in sharing or stream.id in listed
                if stream.id not in listed:
                    assert self.complete_upto(version, stream) == own.quiet, stream.name
        return found

    monkeypatch.setattr(Schedule, "_look", note)
    monkeypatch.setattr(Schedule, "inspect_all", check)
    return seen


def test_each_registration_looks_at_the_new_query_and_not_at_all(
    pond: Pond, looked: list[int]
) -> None:
    pond.execute(STREAMS)
    push(pond, "s", 1, 2)
    for number in range(20):
        pond.register(text(number), f"q{number}", follow=True)
        pond.catch_up()
    assert len(looked) <= 20 * 6


def test_a_push_to_another_stream_looks_at_its_readers_alone(pond: Pond, looked: list[int]) -> None:
    pond.execute(STREAMS)
    push(pond, "s", 1, 2)
    push(pond, "other", 1)
    for number in range(20):
        pond.register(text(number), f"q{number}", follow=True)
    pond.register(text(0, "other"), "its", follow=True)
    pond.catch_up()
    looked.clear()
    push(pond, "other", 2, 3, 4)
    pond.catch_up()
    assert 0 < len(looked) <= 6


def test_whoever_is_skipped_has_nothing_new_whatever_happens(
    pond: Pond, clock: ManualClock, looked: list[int]
) -> None:
    """Pushes, clocks, changes of queries, streams and plans; on system time the clock alone."""
    pond.execute(STREAMS)
    for number in range(6):
        pond.register(text(number), f"q{number}", follow=True, changes="from beginning")
        pond.register(text(number, "now"), f"now{number}", follow=True)
        pond.register(f"SELECT x FROM s WHERE x > {number}", f"shared{number}", follow=True)
    pond.register(
        "SELECT s.x FROM s [RANGE 5 SECONDS], other [RANGE 5 SECONDS] WHERE s.x = other.x",
        "both", follow=True,
    )  # fmt: skip
    push(pond, "s", 1, 2, 3)
    pond.ingest("now", [{"x": 1}])
    pond.catch_up()
    steps = (
        "ALTER QUERY q1 SET (active = false)",
        "HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:12'",
        "ALTER QUERY q1 SET (active = true)",
        "DROP QUERY q2",
        "ALTER STREAM s SET (delay = '1 SECOND')",
        "HEARTBEAT other AT TIMESTAMP '1970-01-01 00:00:16'",
        "ALTER QUERY q3 SET (keep_changes = 500)",
        "ALTER STREAM s RESET CLOCK TO TIMESTAMP '1970-01-01 00:00:02'",
    )
    for number, step in enumerate(steps):
        pond.execute(step)
        pond.catch_up()
        clock.advance(SECOND)
        push(pond, "s", 10 + number, 11 + number)
        push(pond, "other", 10 + number)
        pond.catch_up()
    advancer = components_of(pond).advancer
    assert advancer._failure is None
    assert not advancer.retries.has_any
    assert looked
    for number in (0, 1, 3, 4, 5):
        assert pond.query(f"q{number}").fetch().rows()
