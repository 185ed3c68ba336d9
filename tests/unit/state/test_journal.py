"""The journal: what was acknowledged is folded again, what is damaged is said."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import MillpondError
from millpond.state.database import database as database_module
from millpond.state.database.database import Database
from millpond.state.journal import journal as journal_module
from millpond.state.journal.journal_file import list_files, read_file
from millpond.state.journal.record import decode_body, encode_record, read_record
from millpond.state.journal.snapshot import list_snapshots

VALUES = st.none() | st.integers(-(2**63), 2**63 - 1) | st.text("aä€\U0001f600'") | st.binary()


@given(rows=st.lists(st.tuples(VALUES, VALUES), max_size=3), number=st.integers(1, 2**40))
def test_a_record_is_read_as_it_was_written(rows, number):
    data = memoryview(b"before" + encode_record("3f2a9c", number, [("INSERT …", rows)]))
    found, body = read_record(data, 6, "3f2a9c")
    assert found == number
    assert decode_body(body) == [("INSERT …", [list(row) for row in rows])]
    assert read_record(data, 6, "3f2a9d") is None
    assert read_record(data[:-1], 6, "3f2a9c") is None


@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_no_changed_bit_of_a_record_passes(place, bit):
    data = bytearray(encode_record("3f2a9c", 7, [("INSERT INTO t VALUES (?)", [[b"abc"]])]))
    data[place % len(data)] ^= 1 << bit
    assert read_record(memoryview(bytes(data)), 0, "3f2a9c") is None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pond.db"


def note(database: Database, *epochs: int) -> None:
    """Transactions that can be told from each other."""
    for epoch in epochs:
        with database.transaction() as change:
            change.execute("INSERT INTO epoch VALUES (?, 'test', 0)", (epoch,))


def noted(path: Path) -> list[int]:
    with closing(Database(path)) as database:
        return [epoch for (epoch,) in database.read("SELECT epoch FROM epoch ORDER BY epoch")]


def opened(path: Path, *epochs: int) -> None:
    with closing(Database(path)) as database:
        note(database, *epochs)


def test_a_database_that_lost_its_end_is_folded_on(path, tmp_path):
    opened(path, 1)
    shutil.copy(path, tmp_path / "older")
    opened(path, 2, 3)
    shutil.copy(tmp_path / "older", path)
    assert noted(path) == [1, 2, 3]


def test_a_record_that_was_never_finished_was_never_acknowledged(path):
    opened(path, 1, 2)
    (_, file), *_ = list_files(path.parent / "journal")
    whole = file.read_bytes()
    for end in (1, 5, 30):
        file.write_bytes(whole + encode_record("3f2a9c", 3, [("…", [])])[:end])
        assert noted(path) == [1, 2]
        assert file.read_bytes() == whole
    opened(path, 3)
    assert noted(path) == [1, 2, 3]


def test_files_of_the_journal_follow_each_other(path, monkeypatch):
    monkeypatch.setattr(journal_module, "_FILE_BYTES", 300)
    opened(path, *range(1, 11))
    files = list_files(path.parent / "journal")
    assert len(files) > 2
    assert noted(path) == list(range(1, 11))
    files[1][1].unlink()
    with pytest.raises(MillpondError, match=r"(?s)STORE-602.*missing"):
        Database(path)


def test_a_snapshot_takes_the_place_of_the_journal_before_the_one_before(path, monkeypatch):
    monkeypatch.setattr(journal_module, "_FILE_BYTES", 1)
    monkeypatch.setattr(database_module, "_SNAPSHOT_BYTES", 1)
    monkeypatch.setattr(database_module, "_SNAPSHOT_SHARE", 0)
    journal = path.parent / "journal"
    with closing(Database(path)) as database:
        for epoch in range(1, 6):
            note(database, epoch)
            assert database.snapshot_if_due()
    assert [s.number for s in list_snapshots(journal)] == [4, 5]
    assert list_files(journal)[0][0] == 5
    assert noted(path) == [1, 2, 3, 4, 5]
    newest = list_snapshots(journal)[-1].path
    newest.write_bytes(newest.read_bytes()[:-1])
    with closing(Database(path)) as database:
        assert [newest.name in problem.primary for problem in database.problems] == [True]
    assert noted(path) == [1, 2, 3, 4, 5]


def test_damage_before_the_end_is_refused_and_nothing_is_changed(path):
    opened(path, 1, 2, 3)
    (first, file), *_ = list_files(path.parent / "journal")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    before = {f: f.read_bytes() for f in path.parent.rglob("*") if f.is_file()}
    for _ in range(2):
        with pytest.raises(MillpondError, match=r"(?s)STORE-602.*Record 2 is damaged; 1 whole"):
            Database(path)
    assert {f: f.read_bytes() for f in path.parent.rglob("*") if f.is_file()} == before
    assert read_file(file, first).behind == 1


def test_a_refused_store_keeps_its_write_ahead_log(path, tmp_path):
    with closing(Database(path)) as database:
        note(database, 1, 2, 3)
        killed = tmp_path / "killed"
        shutil.copytree(path.parent, killed, ignore=shutil.ignore_patterns("killed"))
    (_, file), *_ = list_files(killed / "journal")
    file.write_bytes(file.read_bytes()[:-1])
    kept = [file, killed / "pond.db", killed / "pond.db-wal"]
    before = [f.read_bytes() for f in kept]
    assert before[-1]
    with pytest.raises(MillpondError, match="Opening the store would lose"):
        Database(killed / "pond.db")
    assert [f.read_bytes() if f.exists() else None for f in kept] == before


def test_a_transaction_that_cannot_be_noted_is_taken_back(path, monkeypatch):
    with closing(Database(path)) as database:
        note(database, 1)
        with monkeypatch.context() as broken:
            broken.setattr(journal_module.os, "fdatasync", fail)
            with pytest.raises(MillpondError, match="STORE-603"):
                note(database, 2)
        assert database.read("SELECT max(epoch) FROM epoch") == [(1,)]
        note(database, 3)
    assert noted(path) == [1, 3]


def test_a_transaction_that_cannot_be_taken_back_ends_all(path, monkeypatch):
    with closing(Database(path)) as database:
        note(database, 1)
        with monkeypatch.context() as broken:
            broken.setattr(journal_module.os, "fdatasync", fail)
            broken.setattr(journal_module.os, "ftruncate", fail)
            with pytest.raises(MillpondError, match="STORE-603"):
                note(database, 2)
        with pytest.raises(MillpondError, match=r"STORE-603.*opened again"):
            note(database, 3)
        assert database.read("SELECT max(epoch) FROM epoch") == [(1,)]
    # Nobody was told of 2; that it may be there is what "cannot be taken back" means.
    assert noted(path) == [1, 2]


def fail(*_: object) -> None:
    raise OSError(5, "Input/output error")


def test_a_record_of_a_failed_commit_is_taken_back(path, monkeypatch):
    with closing(Database(path)) as database:
        note(database, 1)
        with pytest.raises(sqlite3.IntegrityError):
            note(database, 1)
        note(database, 2)
    assert noted(path) == [1, 2]


@pytest.mark.parametrize("how", ["removed", "emptied", "grown"])
def test_nothing_is_acknowledged_once_the_journal_was_taken_away(path, how):
    with closing(Database(path)) as database:
        note(database, 1)
        ((_, file),) = list_files(path.parent / "journal")
        match how:
            case "removed":
                file.unlink()
            case "emptied":
                file.write_bytes(b"")
            case "grown":
                with file.open("ab") as other:
                    other.write(b"a record of another writer")
        for _ in range(2):
            with pytest.raises(MillpondError, match=r"STORE-602.*changed by somebody else"):
                note(database, 2)
        assert database.read("SELECT epoch FROM epoch") == [(1,)]
