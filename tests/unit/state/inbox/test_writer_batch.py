"""Batches of writers in the inbox: all parts or none, and each batch once, however late it is."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.inbox.inbox import KEY_LIFETIME, AcceptedPush, PushProgress
from millpond.state.inbox.writer_batch import WriterBatch
from millpond.state.store import Store


def accept(store: Store, a: SimpleNamespace, batch: WriterBatch, parts: int = 2) -> AcceptedPush:
    if found := store.inbox.find_batch(7, batch):
        return found
    receipt = {"accepted": 3 * parts, "rejected": 0, "rejects": []}
    progress = [PushProgress(50, 40 + n) for n in range(parts)]
    return store.inbox.accept_parts(
        7, parts, [a.rows] * parts, lambda: progress, 60, batch.key, None, receipt
    )


def pending(store: Store) -> list[tuple[int, int]]:
    return [(row.number, row.heartbeat) for row in store.inbox.list_pending()]


def collect(store: Store) -> None:
    numbers = [row.number for row in store.inbox.list_pending()]
    store.log.commit(EpochChange(kind="batch", inbox_done=numbers))
    store.inbox.collect(max(numbers))


def test_a_batch_is_one_push_for_each_part_and_counts_once(store: Store, a: Any) -> None:
    first = accept(store, a, WriterBatch("w", 0))
    assert (first.number, first.duplicate) == (2, False)
    assert pending(store) == [(1, 40), (2, 41)]
    again = accept(store, a, WriterBatch("w", 0), parts=5)
    assert (again.number, again.duplicate, again.receipt["accepted"]) == (2, True, 6)
    assert not accept(store, a, WriterBatch("other", 0)).duplicate
    assert not accept(store, a, WriterBatch("w", 1)).duplicate


def test_the_last_batch_of_a_writer_is_known_for_ever(tmp_path: Path, a: Any) -> None:
    now = [0]
    store = Store.open(tmp_path / "pond", clock=lambda: now[0])
    for number in (8, 9, 10):
        accept(store, a, WriterBatch("w", number))
    accept(store, a, WriterBatch("once", None))
    collect(store)
    now[0] += KEY_LIFETIME + 1
    store.inbox.accept(7, a.rows, 50, 45, 60)
    collect(store)
    store.close()
    store = Store.open(tmp_path / "pond", clock=lambda: now[0])
    assert accept(store, a, WriterBatch("w", 10)).receipt["accepted"] == 6
    # The receipts of earlier ones are forgotten, and that they came is not.
    for number in (9, 0):
        earlier = accept(store, a, WriterBatch("w", number))
        assert (earlier.duplicate, earlier.receipt["accepted"]) == (True, 0)
    assert not accept(store, a, WriterBatch("once", None)).duplicate
    assert not accept(store, a, WriterBatch("w", 11)).duplicate
    store.close()


def test_a_gap_is_refused(store: Store, a: Any) -> None:
    accept(store, a, WriterBatch("w", 3))
    with pytest.raises(MillpondError, match=r"(?s)DATA-504.*up to 3.*batch 5"):
        accept(store, a, WriterBatch("w", 5))
    # Neither another writer, of which this one's name is the beginning, nor another stream's.
    assert not accept(store, a, WriterBatch("w2", 5)).duplicate
    assert store.inbox.find_batch(8, WriterBatch("w", 5)) is None


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_if_one_part_cannot_be_written_none_is(
    store: Store, a: Any, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    count = [0]
    real = os.fsync

    def fsync(descriptor: int) -> None:
        count[0] += 1
        if count[0] == failing:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(MillpondError, match="STORE-603"):
        accept(store, a, WriterBatch("w", 0))
    monkeypatch.undo()
    assert pending(store) == []
    assert [f for f in (store.directory / "inbox").iterdir() if f.is_file()] == []
    assert not accept(store, a, WriterBatch("w", 0)).duplicate


def test_pushes_beside_a_batch_that_is_written(store: Store, a: Any) -> None:
    """A push that comes while parts are written neither commits a part nor is lost."""
    others: list[threading.Thread] = []

    def tables() -> Any:
        for _ in range(3):
            yield a.rows
            push = threading.Thread(target=store.inbox.accept, args=(8, a.rows, 1, 1, 1))
            push.start()
            others.append(push)
            assert all(row.stream_id != 7 for row in store.inbox.list_pending())

    receipt: dict[str, Any] = {}
    batch = store.inbox.accept_parts(
        7, 3, tables(), lambda: [PushProgress(1, 1)] * 3, 1, "k", None, receipt
    )
    for push in others:
        push.join(60)
    assert batch.number == 3
    assert [row.stream_id for row in store.inbox.list_pending()] == [7, 7, 7, 8, 8, 8]


@pytest.mark.parametrize(
    ("writer", "number"), [("", 1), ("a\nb", 1), ("x" * 201, 1), ("w", -1), ("w", 10**18)]
)
def test_what_is_no_batch_is_refused(writer: str, number: int) -> None:
    with pytest.raises(MillpondError, match="DATA-501"):
        WriterBatch(writer, number)
