"""Batches of other systems: what tasks sent counts when the batch comes, once, and all of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.service.conftest import SECOND, OpenPond, rows, values

from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.runtime.batch_tasks import build
from millpond.runtime.chunks import Chunk
from millpond.runtime.protocol import INBOX
from millpond.service.pond import Pond
from millpond.state.inbox.push_file import read_push, visible_path


@pytest.fixture
def s(pond: Pond) -> Pond:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    return pond


def everything(pond: Pond) -> list[int]:
    pond.catch_up()
    return values(pond.ask("SELECT v FROM s"))


def test_parts_count_with_their_batch_and_once(s: Pond, open_pond: OpenPond) -> None:
    assert s.stage("s", "a", [{"ts": "1970-01-01 00:00:10", "v": 1}]) == 1
    s.stage("s", "b", [{"ts": "1970-01-01 00:00:05", "v": 2}, {"ts": "never", "v": 3}])
    s.stage("s", "lost", [{"ts": "1970-01-01 00:00:05", "v": 99}])  # a task that ran twice
    assert everything(s) == []
    s = open_pond()
    receipt = s.ingest_batch("s", "job", 0, ["a", "b"])
    # The rows of b are not late for those of a: all are judged by the heartbeat before the batch.
    assert (receipt.accepted, receipt.rejected, receipt.duplicate) == (2, 1, False)
    assert receipt.rejects == [
        {"row": 2, "reason": "column \"ts\": 'never' is not a TIMESTAMP"},
    ]
    assert everything(s) == [1, 2]
    s.stage("s", "c", [{"ts": "1970-01-01 00:00:11", "v": 1}])
    again = s.ingest_batch("s", "job", 0, ["c", "c"])  # cut otherwise
    assert (again.accepted, again.rejected, again.duplicate) == (2, 1, True)
    assert everything(open_pond()) == [1, 2]


def test_a_batch_whose_parts_are_gone_is_refused_and_can_come_again(s: Pond) -> None:
    s.stage("s", "a", rows(1))
    s.stage("s", "b", rows(2))
    s.unstage("s", ["b"])
    with pytest.raises(MillpondError, match=r'DATA-504: the part "b"'):
        s.ingest_batch("s", "job", 0, ["a", "b"])
    assert s._components.floors.capture().floors == {}
    s.stage("s", "b", rows(2))
    assert s.ingest_batch("s", "job", 0, ["a", "b"]).accepted == 2
    with pytest.raises(MillpondError, match=r"(?s)DATA-504.*this is batch 2"):
        s.ingest_batch("s", "job", 2, [])
    assert s.ingest_batch("s", "job", 1, []).accepted == 0
    assert s.ingest_batch("s", "job", 2, []).accepted == 0


def test_a_batch_that_is_written_once(s: Pond) -> None:
    s.stage("s", "a", rows(1))
    assert s.ingest_batch("s", "x", None, ["a"]).accepted == 1
    assert s.ingest_batch("s", "x", None, ["a"]).duplicate


def commit(pond: Pond, numbers: Sequence[int]) -> None:
    """One epoch of these pushes alone."""
    folder = pond._components._store.directory / "inbox"
    plan = pond._components.sequencer.plan(INBOX, None)
    chunks = []
    for number in numbers:
        pushed = read_push(visible_path(folder, number))
        chunks.append(Chunk(pushed.stream_id, (number,), pushed.table, pushed.arrived_at))
    pond._components.sequencer.commit(INBOX, 0, plan, list(build(chunks, plan)), list(numbers))


@pytest.mark.parametrize("order", [[1, 2, 3], [3, 1, 2], [2, 3, 1]], ids=str)
def test_no_instant_is_final_before_all_parts_are_visible(s: Pond, order: list[int]) -> None:
    s._components.runtime.wake_inbox = lambda: None  # type: ignore[method-assign]
    s._components.batches._wake = lambda: None
    for part, at in (("a", 30), ("b", 10), ("c", 20)):
        s.stage("s", part, rows(at))
    s.ingest_batch("s", "job", 0, ["a", "b", "c"])

    def heartbeat() -> int:
        moment = s._components.floors.capture()
        version = s._components.log.version
        return s._components.sequencer.heartbeat(version, s.streams()[0], moment)

    for number in order:
        assert heartbeat() == BEGINNING
        commit(s, [number])
    assert heartbeat() == 30 * SECOND


def test_a_stream_with_a_source_takes_no_parts(s: Pond) -> None:
    s.execute("CREATE STREAM d AS SELECT v FROM s")
    with pytest.raises(MillpondError, match="POND-407"):
        s.stage("d", "a", rows(1))
    with pytest.raises(MillpondError, match="POND-407"):
        s.ingest_batch("d", "job", 0, [])
    with pytest.raises(MillpondError, match="CQL-201"):
        s.stage("nobody", "a", rows(1))
