"""What a crash, or damage, leaves in the inbox, and what opening the store makes of it."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import xxhash

from millpond.state.inbox.push_file import hidden_path, torn_path, visible_path
from millpond.state.inbox.recover_inbox import RecoveredInbox, recover_inbox


@pytest.fixture
def inbox(tmp_path: Path) -> SimpleNamespace:
    """A directory with files, and the rows that SQLite has: number, done, checksum."""
    rows: list[tuple[int, int, str]] = []

    def push(number: int, path=visible_path, row: bool = True, done: int = 0) -> Path:
        file = path(tmp_path, number)
        file.write_bytes(b"rows %d" % number)
        if row:
            rows.append((number, done, xxhash.xxh3_64(file.read_bytes()).hexdigest()))
        return file

    def recover() -> RecoveredInbox:
        database = SimpleNamespace(read=lambda sql: sorted(rows))
        return recover_inbox(database, tmp_path)  # type: ignore[arg-type]

    return SimpleNamespace(directory=tmp_path, push=push, recover=recover)


def test_whole_pushes_stay_as_they_are(inbox):
    files = [inbox.push(1), inbox.push(2, done=1)]
    assert inbox.recover() == RecoveredInbox()
    assert all(file.exists() for file in files)


def test_an_acknowledged_push_gets_its_name(inbox):
    hidden = inbox.push(1, hidden_path)
    assert inbox.recover() == RecoveredInbox()
    assert not hidden.exists()
    assert visible_path(inbox.directory, 1).read_bytes() == b"rows 1"


def test_files_of_pushes_nobody_acknowledged_are_set_aside(inbox):
    inbox.push(1, hidden_path, row=False)
    inbox.push(2, row=False)
    found = inbox.recover()
    assert found.orphans == ["inbox/.000000000001.tmp", "inbox/000000000002.arrow"]
    assert not found.lost


def test_a_second_copy_of_a_visible_push_is_set_aside(inbox):
    inbox.push(1)
    inbox.push(1, hidden_path, row=False)
    assert inbox.recover().orphans == ["inbox/.000000000001.tmp"]


def test_a_missing_file_is_a_lost_push(inbox):
    inbox.push(1).unlink()
    found = inbox.recover()
    assert found.lost == {1}
    assert [problem.code for problem in found.problems] == ["STORE-602"]


def test_a_missing_file_of_a_push_in_an_epoch_is_no_loss(inbox):
    inbox.push(1, done=1).unlink()
    assert inbox.recover() == RecoveredInbox()


def test_a_torn_file_is_moved_where_no_reader_looks(inbox):
    file = inbox.push(1)
    file.write_bytes(b"rows ?")
    found = inbox.recover()
    assert found.lost == {1}
    assert [problem.code for problem in found.problems] == ["STORE-602"]
    assert not file.exists()
    assert torn_path(inbox.directory, 1).read_bytes() == b"rows ?"
