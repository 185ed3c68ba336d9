"""Backups of a store that is open: whole or not there, and never more than what is new."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.runtime.spark.checkpoint import cut_back
from millpond.service.pond import Pond
from millpond.state import fail_points
from millpond.state.backup.backup import backup_store
from millpond.state.backup.kept import list_kept
from millpond.state.backup.restore import restore_store
from millpond.state.check_and_repair.check import check_store
from millpond.state.database import database
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.inbox.push_file import read_push
from millpond.state.store import Store
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SCHEMA = """
CREATE STREAM s (n BIGINT);
CREATE RELATION names (n BIGINT, name STRING);
CREATE QUERY q AS SELECT n FROM s WHERE n > 0;
"""


@pytest.fixture
def pond(tmp_path: Path) -> Pond:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        pond.execute(SCHEMA)
        pond.query("q").fetch()
        yield pond


def push(pond: Pond, *numbers: int) -> None:
    for n in numbers:
        pond.ingest("s", [{"n": n}])
        pond.execute(f"INSERT INTO names VALUES ({n}, 'x')")
    pond.catch_up()


def restored(backups: Path, to: Path, **which: int) -> list[tuple[int, int]]:
    """The values in stream and relation of a restored store, which is whole."""
    done = restore_store(backups, to, **which, cut_checkpoint=cut_back)
    assert (done.damage, done.stopped) == ([], [])
    assert check_store(to).is_whole
    with open_local(to, ManualClock()) as pond:
        assert pond.status()["problems"] == []
        rows = pond.ask("SELECT s.n, names.n FROM s JOIN names ON s.n = names.n").rows()
        assert pond.query("q").invoke().rows() == [(n,) for n, _ in rows]
        return sorted(rows)


def pairs(upto: int) -> list[tuple[int, int]]:
    return [(n, n) for n in range(1, upto + 1)]


def files(folder: Path) -> dict[str, int]:
    """Each file's inode."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_ino for path in found}


@pytest.mark.parametrize("link", [True, False], ids=["linked", "copied"])
def test_each_backup_of_an_open_store_is_restored(pond, tmp_path, link):
    kept = []
    for n in range(1, 7, 2):
        push(pond, n, n + 1)
        kept.append(backup_store(tmp_path / "store", tmp_path / "b", link))
    assert list_kept(tmp_path / "b") == kept
    for number, one in enumerate(kept):
        found = restored(tmp_path / "b", tmp_path / f"to-{number}", epoch=one.epoch)
        assert found == pairs(2 * number + 2)
    assert restored(tmp_path / "b", tmp_path / "last") == pairs(6)


def test_a_closed_store_is_backed_up_and_nothing_in_it_changes(pond, tmp_path):
    push(pond, 1, 2)
    pond.close()
    before = files(tmp_path / "store")
    backup_store(tmp_path / "store", tmp_path / "b", link=False)
    assert files(tmp_path / "store") == before
    assert restored(tmp_path / "b", tmp_path / "to") == pairs(2)


def test_the_next_backup_adds_only_what_is_new(pond, tmp_path):
    push(pond, *range(1, 20))
    first = backup_store(tmp_path / "store", tmp_path / "b", link=False)
    before = files(tmp_path / "b")
    push(pond, 20)
    second = backup_store(tmp_path / "store", tmp_path / "b", link=False)
    assert {
        name: inode for name, inode in files(tmp_path / "b").items() if name in before
    } == before
    assert first.new_bytes > first.bytes > 0
    assert second.new_bytes < first.new_bytes / 2
    again = backup_store(tmp_path / "store", tmp_path / "b", link=False)
    assert again.record == second.record
    assert len(list_kept(tmp_path / "b")) == 2


def test_links_share_the_stores_files_and_copies_do_not(pond, tmp_path):
    push(pond, 1)
    backup_store(tmp_path / "store", tmp_path / "linked")
    backup_store(tmp_path / "store", tmp_path / "copied", link=False)
    own = files(tmp_path / "store" / "segments")
    assert files(tmp_path / "linked" / "segments").items() <= own.items()
    assert not set(files(tmp_path / "copied" / "segments").values()) & set(own.values())


def test_snapshots_that_drop_the_journal_begin_the_backup_anew(pond, tmp_path, monkeypatch):
    push(pond, 1, 2)
    first = backup_store(tmp_path / "store", tmp_path / "b")
    monkeypatch.setattr(database, "_SNAPSHOT_BYTES", 0)
    monkeypatch.setattr(database, "_SNAPSHOT_SHARE", 0)
    monkeypatch.setattr("millpond.state.journal.journal._FILE_BYTES", 0)  # a file a record
    for n in range(3, 8):
        push(pond, n)
        assert pond._components.log.snapshot_if_due()
    last = backup_store(tmp_path / "store", tmp_path / "b")
    assert restored(tmp_path / "b", tmp_path / "to") == pairs(7)
    assert restored(tmp_path / "b", tmp_path / "early", epoch=first.epoch) == pairs(2)
    assert restored(tmp_path / "b", tmp_path / "last", epoch=last.epoch) == pairs(7)
    backup_store(tmp_path / "store", tmp_path / "new")
    assert restored(tmp_path / "new", tmp_path / "of-new") == pairs(7)


def test_pushes_that_are_not_in_an_epoch_are_backed_up(tmp_path):
    with Store.open(tmp_path / "store", clock=lambda: 1) as store:
        stream = store.log.next_id()
        fields = Schema((Field("n", "BIGINT"),))
        store.log.commit(EpochChange(kind="create", add=[StreamDef(stream, "s", fields)]))
        store.inbox.accept(stream, pa.table({"n": [7]}), 7, 7, 1)
        kept = backup_store(tmp_path / "store", tmp_path / "b")
    for place, epoch in enumerate((None, kept.epoch)):
        to = tmp_path / f"to-{place}"
        restore_store(tmp_path / "b", to, epoch=epoch, cut_checkpoint=cut_back)
        with Store.open(to, clock=lambda: 1) as store:
            (row,) = store.inbox.list_pending()
            assert store.problems == []
            assert read_push(store.inbox.path(row.number)).table.column("n").to_pylist() == [7]


def test_while_rows_come_and_segments_are_merged(pond, tmp_path):
    """Each backup is the store after some push, although files are removed meanwhile."""
    over = threading.Event()

    def feed() -> None:
        n = 0
        while not over.is_set():
            n += 1
            push(pond, n)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        kept = [
            backup_store(tmp_path / "store", tmp_path / "b", link=bool(number % 2))
            for number in range(8)
        ]
    finally:
        over.set()
        feeder.join(60)
    sizes = []
    for number, one in enumerate(kept[::3]):
        done = restore_store(
            tmp_path / "b", tmp_path / f"to-{number}", epoch=one.epoch, cut_checkpoint=cut_back
        )
        assert done.damage == []
        with open_local(done.to, ManualClock()) as found:
            rows = sorted(found.query("q").invoke().rows())
        assert rows == [(n,) for n in range(1, len(rows) + 1)]
        sizes.append(len(rows))
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("point", [n for n in fail_points.FAIL_POINTS if n.startswith("backup.")])
def test_killed_at(pond, tmp_path, point):
    push(pond, 1)
    first = backup_store(tmp_path / "store", tmp_path / "b")
    push(pond, 2, 3)
    pond.close()
    child = os.fork()
    if child == 0:
        fail_points.arm(point)
        with suppress(BaseException):
            backup_store(tmp_path / "store", tmp_path / "b", link=False)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    listed = list_kept(tmp_path / "b")
    assert listed[0] == first
    assert len(listed) == (2 if point == "backup.after_kept" else 1)
    assert restored(tmp_path / "b", tmp_path / "to") == pairs(3 if len(listed) == 2 else 1)
    backup_store(tmp_path / "store", tmp_path / "b")
    assert restored(tmp_path / "b", tmp_path / "again") == pairs(3)
    assert restored(tmp_path / "b", tmp_path / "first", epoch=first.epoch) == pairs(1)


def test_what_a_killed_copy_left_is_removed(pond, tmp_path):
    push(pond, 1)
    backup_store(tmp_path / "store", tmp_path / "b")
    left = tmp_path / "b" / "segments" / ".0123.arrow.part"
    left.write_bytes(b"half of it")
    push(pond, 2)
    backup_store(tmp_path / "store", tmp_path / "b")
    assert not left.exists()
    assert restored(tmp_path / "b", tmp_path / "to") == pairs(2)


def test_one_directory_is_for_one_store_and_one_backup_at_a_time(pond, tmp_path):
    push(pond, 1)
    backup_store(tmp_path / "store", tmp_path / "b")
    with open_local(tmp_path / "other", ManualClock()) as other:
        other.execute(SCHEMA)
        with pytest.raises(MillpondError, match=r"STORE-604.*of another store"):
            backup_store(tmp_path / "other", tmp_path / "b")
    restored(tmp_path / "b", tmp_path / "to")
    with pytest.raises(MillpondError, match=r"STORE-604.*of another store"):
        backup_store(tmp_path / "to", tmp_path / "b")
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "mine.txt").write_text("precious")
    with pytest.raises(MillpondError, match=r"STORE-604.*not empty"):
        backup_store(tmp_path / "store", strange)
    with pytest.raises(MillpondError, match=r"STORE-604.*in the store"):
        backup_store(tmp_path / "store", tmp_path / "store" / "backups")
    with pytest.raises(MillpondError, match="STORE-604"):
        backup_store(tmp_path / "nowhere", tmp_path / "c")
    with open(tmp_path / "b" / "LOCK") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(MillpondError, match=r"STORE-601.*another backup"):
            backup_store(tmp_path / "store", tmp_path / "b")


@pytest.mark.parametrize("damage", ["changed", "removed"])
def test_a_damaged_file_is_not_backed_up_in_silence(pond, tmp_path, damage):
    push(pond, 1)
    file = min((tmp_path / "store" / "segments").iterdir())
    if damage == "changed":
        file.write_bytes(file.read_bytes()[::-1])
    else:
        file.unlink()
    with pytest.raises(MillpondError, match="STORE-602"):
        backup_store(tmp_path / "store", tmp_path / "b", link=False)
    assert list_kept(tmp_path / "b") == []


def test_a_store_whose_journal_is_damaged_is_not_backed_up(pond, tmp_path):
    push(pond, 1)
    pond.close()
    log = min((tmp_path / "store" / "journal").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(MillpondError, match=r"STORE-602.*is damaged"):
        backup_store(tmp_path / "store", tmp_path / "b")


def test_a_record_that_is_not_committed_is_not_backed_up(pond, tmp_path):
    """The journal has it, and it may still be taken back."""
    push(pond, 1)
    components = pond._components
    with suppress(RuntimeError), components.log._database.transaction() as change:
        change.execute("INSERT INTO counter VALUES ('half', 1)")
        database_ = components.log._database
        database_._journal.append(change.statements)  # as if the process stood still here
        kept = backup_store(tmp_path / "store", tmp_path / "b")
        raise RuntimeError
    done = restore_store(tmp_path / "b", tmp_path / "to", cut_checkpoint=cut_back)
    with closing(sqlite3.connect(done.to / "pond.db")) as found:
        assert found.execute("SELECT count(*) FROM counter WHERE name = 'half'").fetchone() == (0,)
    assert kept.record == database_._journal.number
