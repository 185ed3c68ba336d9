"""State lies in files and comes back, whatever it consists of."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millpond.engine.dataflow.state_memory import (
    measure_state,
    move_into_files,
    move_into_memory,
)
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.structures.expiration_queues import FifoQueue, PartitionedQueue
from millpond.state.scratch_folder import ScratchFolder
from millpond.synopses.mapped_memory import allocate_like, choose_like, find_home, keep_like


class Holder:
    """Stands for an operator; state is shared and nested, as operators have it."""

    def __init__(self) -> None:
        self.array = np.arange(10_000)
        self.same = self.array
        self.frozen = np.arange(2_000.0)
        self.frozen.flags.writeable = False
        self.table = np.arange(3_000, dtype=np.uint64).reshape(-1, 3)
        texts = pa.array([f"text {i}" if i % 7 else None for i in range(5_000)])
        self.rows = pa.RecordBatch.from_arrays([texts, pa.array(range(5_000))], ["c0", "c1"])
        self.nested = {1: [self.rows.slice(100, 900)], 2: [texts.dictionary_encode()]}
        self.numbers = {f"key {i}": i for i in range(1_000)}
        self.small = np.arange(3)


@pytest.fixture
def home(tmp_path: Path) -> ScratchFolder:
    return ScratchFolder(tmp_path)


def assert_same(moved: Holder) -> None:
    first = Holder()
    assert np.array_equal(moved.array, first.array)
    assert moved.same is moved.array
    assert not moved.frozen.flags.writeable
    assert moved.array.flags.writeable
    assert np.array_equal(moved.table, first.table)
    assert moved.rows.equals(first.rows)
    assert moved.nested[1][0].equals(first.nested[1][0])
    assert moved.nested[2][0].equals(first.nested[2][0])
    assert moved.numbers == first.numbers


def test_state_is_the_same_in_files_and_back_in_memory(home: ScratchFolder, tmp_path: Path) -> None:
    given = Holder()
    before = measure_state(given)
    assert before.files == 0
    # The array that two names share counts once; the dict counts too.
    assert 80_000 + 16_000 + 24_000 < before.memory < 500_000
    partly = move_into_files(given, home, only_rows=True)
    assert_same(partly)
    assert find_home(partly.array) is None
    assert find_home(partly.rows) is home
    moved = move_into_files(partly, home)
    assert_same(moved)
    size = measure_state(moved)
    assert size.files > 200_000
    assert size.memory < 200_000  # the dict
    assert find_home(moved.array) is home
    assert find_home(moved.nested[1][0]) is home
    assert find_home(moved.small) is None
    assert move_into_files(moved, home) is moved
    assert list(tmp_path.iterdir()) == []
    moved.array[5] = 77
    assert moved.same[5] == 77
    moved.array[5] = 5
    back = move_into_memory(moved)
    del moved, partly, given
    gc.collect()
    assert_same(back)
    assert measure_state(back).files == 0


def test_what_is_made_of_state_in_files_lies_there(home: ScratchFolder) -> None:
    moved = move_into_files(Holder(), home)
    grown = allocate_like(moved.array, 20_000, -1)
    assert find_home(grown) is home
    assert (grown == -1).all()
    assert find_home(allocate_like(moved.array, 10)) is None  # not worth a file
    assert find_home(allocate_like(moved.small, 20_000)) is None
    chosen = choose_like(moved.array, moved.array % 3 == 0)
    assert find_home(chosen) is home
    assert chosen.tolist() == list(range(0, 10_000, 3))
    rows = keep_like(moved.rows, moved.rows.filter(pa.array([True, False] * 2_500)))
    assert find_home(rows) is home
    assert rows.column(1).to_pylist() == list(range(0, 5_000, 2))
    address = grown.__array_interface__["data"][0]
    del grown
    gc.collect()
    # What lies in memory where a file was mapped before is not taken for the file.
    assert all(
        find_home(array) is None or array.__array_interface__["data"][0] != address
        for array in [np.zeros(20_000) for _ in range(50)]
    )


def test_state_stays_in_memory_when_the_disk_has_no_room(
    home: ScratchFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLPOND_DISK_FLOOR", "999999g")
    given = Holder()
    assert move_into_files(given, home) is given
    monkeypatch.delenv("MILLPOND_DISK_FLOOR")
    moved = move_into_files(given, home)
    monkeypatch.setenv("MILLPOND_DISK_FLOOR", "999999g")
    assert find_home(allocate_like(moved.array, 20_000)) is None


@pytest.mark.parametrize("queue", [FifoQueue, lambda: PartitionedQueue(2)])
def test_rows_that_wait_for_their_expiration_are_cold(queue: object, home: ScratchFolder) -> None:
    """Partitions by expiration lie in files one by one, and leave when they are due."""
    waiting = queue()  # type: ignore[operator]
    schema = positional_schema([pa.int64()])
    for first in range(0, 200_000, 10_000):
        at = np.arange(first, first + 10_000)
        until = at + 100_000 if isinstance(waiting, FifoQueue) else at + 100_000 + at * 7919 % 5_000
        rows = pa.RecordBatch.from_arrays([pa.array(at)], schema=schema)
        waiting.add(Delta.of(rows, at, until))
        waiting = move_into_files(waiting, home)
    size = measure_state(waiting)
    assert size.files > 5_000_000
    assert size.memory < 500_000
    assert sum(map(len, waiting.take_due(149_999))) > 0
    left = measure_state(waiting)
    assert left.files < size.files * 0.95
    taken = waiting.take_due(1 << 40)
    assert sum(map(len, taken)) + 50_000 > 190_000
    assert measure_state(waiting).files == 0
