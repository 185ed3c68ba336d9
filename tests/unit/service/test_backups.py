"""Backups in the background: told of, one at a time, cancelled, and failing with a reason."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.runtime.spark.checkpoint import cut_back
from millpond.service import backups
from millpond.service.pond import Pond
from millpond.state.backup import backup as backup_module
from millpond.state.backup.kept import list_kept
from millpond.state.backup.progress import BackupProgress
from millpond.state.backup.restore import restore_store
from millpond.testing.local_runtime import open_local


def fill(pond: Pond) -> Pond:
    pond.execute("CREATE STREAM s (n BIGINT)")
    for n in range(3):
        pond.ingest("s", [{"n": n}])
        pond.catch_up()
    return pond


def wait(pond: Pond, number: int) -> dict[str, Any]:
    until = time.monotonic() + 60
    while pond.backup(number)["state"] == "running":
        assert time.monotonic() < until
        time.sleep(0.01)
    return pond.backup(number)


class Held:
    """A backup that stands still at its second file until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.released, put, calls = threading.Event(), threading.Event(), [], []
        put.append(backup_module.put_file)

        def put_slowly(*args: Any, **named: Any) -> Any:
            calls.append(args)
            if len(calls) == 2:
                self.reached.set()
                assert self.released.wait(60)
            return put[0](*args, **named)

        monkeypatch.setattr(backup_module, "put_file", put_slowly)


def test_a_backup_is_cancelled_and_the_next_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_local(tmp_path / "store") as pond:
        fill(pond)
        held = Held(monkeypatch)
        number = pond.begin_backup(tmp_path / "kept", copy=True)["backup"]
        assert held.reached.wait(60)
        told = pond.backup(number)
        assert (told["state"], told["files"], told["ended_at"]) == ("running", 1, None)
        assert told["of"] > 2
        with pytest.raises(MillpondError, match="POND-401"):
            pond.begin_backup(tmp_path / "other")
        threading.Timer(0.2, held.released.set).start()
        told = pond.cancel_backup(number)
        assert (told["state"], told["files"]) == ("cancelled", 2)
        assert list_kept(tmp_path / "kept") == []
        assert pond.cancel_backup(number) == told
        number = pond.begin_backup(tmp_path / "kept", copy=True)["backup"]
        told = wait(pond, number)
        assert (told["state"], told["files"]) == ("done", told["of"])
        assert [b["state"] for b in pond.backups()] == ["done", "cancelled"]
    restore_store(tmp_path / "kept", tmp_path / "again", cut_checkpoint=cut_back)
    with open_local(tmp_path / "again") as again:
        assert sorted(again.ask("SELECT n FROM s").table["n"].to_pylist()) == [0, 1, 2]


def test_a_pond_that_closes_ends_its_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_local(tmp_path / "other") as pond:
        fill(pond)
        held = Held(monkeypatch)
        number = pond.begin_backup(tmp_path / "kept", copy=True)["backup"]
        assert held.reached.wait(60)
        threading.Timer(0.2, held.released.set).start()
    assert pond.backup(number)["state"] == "cancelled"


def test_a_failure_is_told_and_only_the_last_backups_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "_MOST_TOLD", 2)
    with open_local(tmp_path / "store") as pond:
        inside = wait(pond, pond.begin_backup(tmp_path / "store" / "kept")["backup"])
        assert (inside["state"], inside["error"]["code"]) == ("failed", "STORE-604")
        empty = wait(pond, pond.begin_backup(tmp_path / "kept")["backup"])
        assert "has nothing to back up yet" in empty["error"]["message"]
        fill(pond)

        def fail(*_: Any, **__: Any) -> None:
            raise ValueError("unforeseen")

        with monkeypatch.context() as patched:
            patched.setattr(backups, "backup_store", fail)
            unforeseen = wait(pond, pond.begin_backup(tmp_path / "kept")["backup"])
        assert unforeseen["error"]["code"] == "INTERNAL-901"
        assert "unforeseen" in unforeseen["error"]["detail"]
        assert wait(pond, pond.begin_backup(tmp_path / "kept")["backup"])["state"] == "done"
        assert [b["backup"] for b in pond.backups()] == [4, 3]
        with pytest.raises(MillpondError, match="SERVE-704"):
            pond.backup(1)


def test_progress_is_counted_and_checked() -> None:
    progress = BackupProgress()
    progress.check()
    progress.cancel()
    with pytest.raises(backups.BackupCancelledError):
        progress.check()
