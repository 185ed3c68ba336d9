"""What a join keeps: how long, and what it takes over of another."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.purging import Purging
from millpond.operators.source import StreamSource
from millpond.operators.structures.rows_by_key import RowsByKey

NODES = StreamSource("s", ("k",), (pa.int64(),)), StreamSource("t", ("k",), (pa.int64(),))


def delta(keys: list[int | None], life: int) -> Delta:
    """Rows of these keys, of which the n-th comes at n."""
    rows = pa.RecordBatch.from_arrays([pa.array(keys, pa.int64())], schema=NODES[0].schema)
    at = np.arange(len(keys), dtype=np.int64)
    return Delta(rows, at, at + life, np.ones(len(keys), np.int64))


def make_rows(left: list[int | None], right: list[int | None], life: int = 10) -> RowsByKey:
    rows = RowsByKey(NODES, ((0,), (0,)), False)
    new = rows.begin_step([delta(left, life), delta(right, life)], DuckDBScalars())
    for side, (some, numbers) in zip(rows.sides, new, strict=True):
        side.build(some, numbers, len(rows.keys))
    return rows


def list_keys(rows: RowsByKey, side: int) -> list[tuple[int, int]]:
    """The keys of a side as it has them, and as their numbers say, in order of the rows."""
    held = rows.sides[side]
    keys = held.rows.pick(np.arange(len(held))).column(0)
    numbers = rows.keys.find([keys])
    assert numbers.tolist() == held.numbers().tolist()
    return keys.to_pylist()


def test_rows_leave_so_long_after_their_instants() -> None:
    purging = Purging()
    purging.set_intervals([0])
    rows = make_rows([1, 2, None, 4], [2])
    assert rows.size() == 4
    rows.set_lengths((3, 1))
    rows.compact(1, purging)
    assert (list_keys(rows, 0), list_keys(rows, 1)) == ([1, 2, 4], [])
    rows.compact(4, purging)
    assert list_keys(rows, 0) == [4]


def test_the_keys_of_rows_that_are_taken_over_have_their_numbers_here() -> None:
    rows, others = make_rows([5, 6], [7]), make_rows([8, 6, 9, 5], [1, 2])
    rows.take_side(0, others)
    assert (list_keys(rows, 0), list_keys(rows, 1)) == ([8, 6, 9, 5], [7])
    found = rows.sides[0].probe(delta([9, 5], 10), rows.keys.find([pa.array([9, 5], pa.int64())]))
    assert [part.tolist() for part in found] == [[0, 1], [2, 3]]
