"""Shared logs are merged, and trimmed when half of what they have may go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.service.maintenance import shared_log_maintenance
from millpond.service.pond import Pond
from millpond.state.version import SegmentRef
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_local(tmp_path / "store", clock=ManualClock(10**10)) as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts;")
        yield pond


def push(pond: Pond, first: int, count: int) -> None:
    rows = [
        {"ts": f"1970-01-01 00:{n // 60:02}:{n % 60:02}", "v": n}
        for n in range(first, first + count)
    ]
    pond.ingest("s", rows)
    pond.catch_up()
    pond.query("all").fetch("oldest")
    pond.wait_until_matched()


def segments(pond: Pond) -> tuple[SegmentRef, ...]:
    version = pond._components.log.version
    (shared,) = [s for s in version.streams.values() if s.is_shared_log]
    return version.segments(shared.id)


def test_segments_are_merged(pond: Pond) -> None:
    pond.register("SELECT v FROM s WHERE v >= 0", "all", follow=True)
    pond.register("SELECT v FROM s WHERE v % 2 = 0 OR v > 90", "computed", follow=True)
    pond.register("SELECT v FROM s WHERE v > 20", "some", follow=True)
    for first in range(0, 40, 2):
        push(pond, first, 2)
    assert len(segments(pond)) < 15
    assert [row[-1] for row in pond.query("all").fetch().rows()] == list(range(39))
    assert [row[-1] for row in pond.query("some").fetch().rows()] == list(range(21, 39))


def test_much_that_may_go_is_written_anew(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_log_maintenance, "_FEW", 20)
    pond.register("SELECT v FROM s WHERE v >= 0", "all", follow=True, keep_changes=5)
    pond.register("SELECT v FROM s WHERE v < 3", "first", follow=True, keep_changes=5)
    push(pond, 0, 30)
    assert sum(s.rows for s in segments(pond)) == 5 + 3
    assert [row[-1] for row in pond.query("all").fetch("oldest").rows()] == list(range(24, 29))
    assert [row[-1] for row in pond.query("first").fetch().rows()] == [0, 1, 2]
    version = pond._components.log.version
    log = version.change_log(pond.query("all").id)
    assert log is not None
    # The last of those that went came at second 23.
    assert version.clock(log.id).kept_from == 23_000_001


def test_a_round_without_news_looks_at_no_change_log(pond: Pond) -> None:
    for n in range(20):
        pond.register(f"SELECT v FROM s WHERE v >= {n}", f"q{n}" if n else "all", follow=True)
    push(pond, 0, 3)
    maintenance = pond._components.maintenance
    maintenance.stop()
    maintenance.stopping = False
    while maintenance.step():
        pass
    version = pond._components.log.version
    logs = {id for id, s in version.streams.items() if s.is_change_log and not s.is_shared_log}
    assert len(logs) == 20
    assert not logs & set(maintenance._up_to_date)  # nothing was done for any of them
    assert maintenance._list_unsettled(version) == []
    pond.ingest("s", [{"ts": "1970-01-01 00:01:00", "v": 60}])
    pond.catch_up()
    assert not logs & set(maintenance._list_unsettled(pond._components.log.version))


def test_what_is_kept_follows_the_definitions(pond: Pond) -> None:
    held = shared_log_maintenance._Held()
    for n in range(3):
        name = f"q{n}" if n else "all"
        pond.register(f"SELECT v FROM s WHERE v >= {n}", name, follow=True, keep_changes=4 + n)
    push(pond, 0, 10)

    def kept() -> list[tuple[int, int]]:
        version = pond._components.log.version
        (shared,) = [s for s in version.streams.values() if s.is_shared_log]
        keeping = held.find_kept(version, shared)
        return list(zip(keeping.logs.tolist(), keeping.floors.tolist(), strict=True))

    newest = [9, 8, 7]  # the last instant is not final yet
    logs = [id for id, _ in kept()]
    assert logs == sorted(logs)
    assert [floor for _, floor in kept()] == [n - k for n, k in zip(newest, (4, 5, 6), strict=True)]
    pond.query("q1").alter(keep_changes=2)
    assert [floor for _, floor in kept()] == [5, 6, 1]
    pond.query("q2").unregister()
    assert [id for id, _ in kept()] == logs[:2]
