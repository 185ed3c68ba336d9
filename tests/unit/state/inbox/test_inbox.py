"""The inbox: acknowledged means durable, in order, once."""

import errno
import os
import threading

import pytest

from millpond.errors import MillpondError
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.inbox import inbox as inbox_module
from millpond.state.inbox.inbox import KEY_LIFETIME, InboxRow
from millpond.state.inbox.push_file import read_push
from millpond.state.store import Store


def files(store):
    return sorted(file.name for file in (store.directory / "inbox").iterdir())


def reopened(store):
    directory = store.directory
    store.close()
    return Store.open(directory)


def push(store, a, key=None, fingerprint=None, stream=7, **rest):
    return store.inbox.accept(stream, a.rows, 50, 45, 60, key, fingerprint, **rest)


def test_a_push_is_a_visible_file_that_says_all_a_reader_needs(store, a):
    accepted = push(store, a)
    assert (accepted.number, accepted.duplicate, accepted.receipt) == (1, False, {})
    assert files(store) == ["000000000001.arrow"]
    read = read_push(store.inbox.path(1))
    assert (read.number, read.stream_id, read.arrived_at) == (1, 7, 60)
    assert read.table.replace_schema_metadata(None).equals(a.rows)


def test_pending_is_what_no_epoch_holds(store, a):
    for stream in (7, 8, 7):
        push(store, a, stream=stream)
    length = store.inbox.path(1).stat().st_size
    assert store.inbox.list_pending()[0] == InboxRow(1, 7, 3, 50, 45, 60, length)
    assert [row.number for row in store.inbox.list_pending(7)] == [1, 3]
    store.log.commit(EpochChange(kind="batch", inbox_done=[1, 2]))
    assert [row.number for row in store.inbox.list_pending()] == [3]


def test_a_push_does_not_wait_while_an_epoch_is_decided(store, a):
    done = threading.Event()

    def accept():
        push(store, a)
        done.set()

    def change(version):
        threading.Thread(target=accept).start()
        assert done.wait(30), "the push waits for the epoch"
        return EpochChange(kind="batch")

    store.log.commit(change)
    assert store.log.version.epoch == 1
    assert [row.number for row in store.inbox.list_pending()] == [1]


def test_numbers_rise_across_restarts_even_when_all_was_collected(store, a):
    for _ in range(3):
        push(store, a)
    store.log.commit(EpochChange(kind="batch", inbox_done=[1, 2, 3]))
    assert store.inbox.collect(upto=2) == [1, 2]
    assert files(store) == ["000000000003.arrow"]
    assert store.inbox.collect(upto=3) == [3]
    assert store.inbox.collect(upto=3) == []
    again = reopened(store)
    assert again.inbox.last_number() == 3
    assert push(again, a).number == 4
    again.close()


def test_only_what_is_done_is_collected(store, a):
    push(store, a)
    push(store, a)
    store.log.commit(EpochChange(kind="batch", inbox_done=[2]))
    assert store.inbox.collect(upto=2) == [2]
    assert files(store) == ["000000000001.arrow"]


def test_the_same_key_gives_the_first_receipt_and_writes_nothing(store, a):
    push(store, a, "k", "f", receipt={"accepted": 3})
    for _ in range(2):
        again = push(store, a, "k", "f", receipt={"accepted": 99})
        assert (again.number, again.duplicate, again.receipt) == (1, True, {"accepted": 3})
        assert files(store) == ["000000000001.arrow"]
        store = reopened(store)
    other_stream = push(store, a, "k", "f", stream=8)
    assert (other_stream.number, other_stream.duplicate) == (2, False)
    store.close()


def test_a_key_is_remembered_after_its_rows_are_collected(store, a):
    push(store, a, "k", "f")
    store.log.commit(EpochChange(kind="batch", inbox_done=[1]))
    store.inbox.collect(upto=1)
    assert files(store) == []
    assert push(store, a, "k", "f").duplicate
    assert reopened(store).problems == []


def test_a_key_is_forgotten_after_a_day(tmp_path, a):
    now = [0]
    store = Store.open(tmp_path / "pond", clock=lambda: now[0])
    for number, key in ((1, "old"), (2, "young")):
        push(store, a, key, "f")
        store.log.commit(EpochChange(kind="batch", inbox_done=[number]))
        store.inbox.collect(upto=number)
        now[0] += KEY_LIFETIME
    now[0] -= KEY_LIFETIME
    push(store, a)
    store.log.commit(EpochChange(kind="batch", inbox_done=[3]))
    now[0] += 1
    store.inbox.collect(upto=3)
    assert push(store, a, "young", "f").duplicate
    assert not push(store, a, "old", "f").duplicate
    store.close()


def test_a_key_used_for_other_rows_is_refused(store, a):
    push(store, a, "k", "f")
    with pytest.raises(MillpondError) as caught:
        push(store, a, "k", "another")
    assert caught.value.code == "DATA-503"
    assert '"k"' in caught.value.primary
    assert store.inbox.last_number() == 1


@pytest.mark.parametrize("call", ["write", "fsync", "open"])
def test_a_full_disk_accepts_nothing_and_the_next_push_is_fine(store, a, monkeypatch, call):
    def fail(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(MillpondError, match="STORE-603"):
        push(store, a, "k", "f")
    monkeypatch.undo()
    assert files(store) == []
    assert store.inbox.list_pending() == []
    assert push(store, a, "k", "f").number == 2
    assert files(store) == ["000000000002.arrow"]


def test_a_transaction_that_fails_accepts_nothing(store, a, monkeypatch):
    def fail():
        raise MillpondError("STORE-603", "full")

    monkeypatch.setattr(store.inbox._database, "transaction", fail)
    with pytest.raises(MillpondError, match="STORE-603"):
        push(store, a)
    monkeypatch.undo()
    assert files(store) == []
    assert push(store, a).number == 2


def test_what_cannot_be_named_is_acknowledged_and_named_before_the_next(store, a, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(inbox_module.Path, "rename", fail)
    assert push(store, a).number == 1
    assert files(store) == [".000000000001.tmp"]
    monkeypatch.undo()
    push(store, a)
    assert files(store) == ["000000000001.arrow", "000000000002.arrow"]


def test_opening_finishes_what_was_acknowledged_and_removes_the_rest(store, a):
    for _ in range(3):
        push(store, a)
    directory = store.directory / "inbox"
    store.inbox.path(2).rename(directory / ".000000000002.tmp")
    (directory / ".000000000004.tmp").write_bytes(b"torn")
    (directory / "000000000009.arrow").write_bytes(b"nobody's")
    again = reopened(store)
    assert again.problems == []
    assert files(again) == [f"00000000000{n}.arrow" for n in (1, 2, 3)]
    assert push(again, a).number == 4
    again.close()


def test_opening_names_what_is_missing_and_what_is_torn(store, a):
    for _ in range(3):
        push(store, a)
    store.inbox.path(1).unlink()
    store.inbox.path(2).write_bytes(b"torn")
    again = reopened(store)
    assert [p.code for p in again.problems] == ["STORE-602", "STORE-602"]
    assert "000000000001.arrow" in again.problems[0].primary
    assert "000000000002.arrow" in again.problems[1].primary
    again.close()


def in_threads(count, work):
    failures = []

    def run(which):
        try:
            work(which)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return failures


def test_many_clients_at_once_each_get_a_number_and_share_commits(store, a, monkeypatch):
    commits, numbers = [], []
    commit = store.inbox._commit
    monkeypatch.setattr(
        store.inbox, "_commit", lambda group: (commits.append(len(group)), commit(group))
    )

    def client(_):
        for _ in range(10):
            numbers.append(push(store, a).number)

    assert in_threads(8, client) == []
    assert sorted(numbers) == list(range(1, 81))
    assert sum(commits) == 80
    assert [row.number for row in store.inbox.list_pending()] == sorted(numbers)
    assert len(files(store)) == 80


def test_one_key_from_many_clients_at_once_is_one_push(store, a):
    seen = []
    assert in_threads(8, lambda _: seen.append(push(store, a, "k", "f"))) == []
    assert sorted(accepted.duplicate for accepted in seen) == [False] + [True] * 7
    assert {accepted.number for accepted in seen} == {1}


def test_a_push_that_fails_holds_nobody_up(store, a, monkeypatch):
    write, written = store.inbox._write, []

    def every_third_fails(push, table):
        if push.number % 3 == 0:
            raise MillpondError("STORE-603", "full")
        written.append(push.number)
        return write(push, table)

    monkeypatch.setattr(store.inbox, "_write", every_third_fails)
    failures = in_threads(8, lambda _: [push(store, a), push(store, a, "k" + str(_))])
    assert all(isinstance(failure, MillpondError) for failure in failures)
    assert [row.number for row in store.inbox.list_pending()] == sorted(written)
