"""The sequencer: batches are one epoch each, and arrival is numbered by splits."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.service.conftest import rows

from millpond.errors import MillpondError
from millpond.runtime.protocol import INBOX
from millpond.service.ingest.sequencer import source_key
from millpond.service.pond import Pond
from millpond.state.epoch.epoch_change import StaleChange


def test_a_batch_that_could_not_be_committed_leaves_no_files(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes again and again while the disk is full."""
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.register("SELECT v FROM s WHERE v >= 0")
    store = pond._components._store.directory

    def full(change: object) -> None:
        raise MillpondError("STORE-603", "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(pond._components.log, "commit", full)
        for attempt in (
            lambda: pond.ingest("s", [*rows(1), {"v": 1}]),
            pond._components.runtime.wake_inbox,
        ):
            with pytest.raises(MillpondError, match="STORE-603"):
                attempt()
            for kind in ("segments", "rejects", "matches"):
                assert list((store / kind).iterdir()) == []
    pond._components.runtime.wake_inbox()
    assert len(pond.ask("SELECT v FROM s")) == 1
    assert len(pond.ask("SELECT * FROM s$rejects")) == 1


def test_a_push_is_in_one_epoch(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.ingest("s", rows(1))
    plan = pond._components.sequencer.plan(INBOX, None)
    with pytest.raises(StaleChange):
        pond._components.sequencer.commit(INBOX, 1, plan, [], [1])
    assert len(pond.ask("SELECT v FROM s")) == 1


def test_a_batch_of_a_source_is_in_one_epoch(pond: Pond, tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_text("1970-01-01 00:00:05,1\n")
    pond.execute(
        "CREATE STREAM f (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts"
        f" USING csv OPTIONS (path '{file}')"
    )
    stream = pond.streams()[0]
    source = source_key(stream)
    assert pond._components.sequencer.is_committed(source, 0)
    plan = pond._components.sequencer.plan(source, [stream.id])
    with pytest.raises(StaleChange):
        pond._components.sequencer.commit(source, 0, plan, [])
    pond._components.sequencer.release(plan)
    pond._components.sequencer.release(plan)
    assert pond._components.floors.capture().floors == {}


def test_a_plan_is_of_the_streams_there_are(pond: Pond) -> None:
    assert pond._components.sequencer.plan("stream:99", [99]).streams == {}
    pond.execute("CREATE STREAM s (v INTEGER); CREATE STREAM t (v INTEGER)")
    assert pond._components.sequencer.plan(INBOX, None).streams == {}, "nothing waits for an epoch"
