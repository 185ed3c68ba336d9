"""The bag that varies with time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.structures.bag import Bag

ROWS: list[tuple[float | None, list[str] | None]] = [
    (1.5, ["a"]),
    (None, None),
    (float("nan"), ["a", "b"]),
    (1.5, []),
    (-2.0, None),
    (1.5, ["a"]),
]
TYPES = (pa.float64(), pa.list_(pa.string()))


def delta(rows: list[tuple[float | None, list[str] | None]], at: int) -> Delta:
    columns = [pa.array([row[i] for row in rows], type_) for i, type_ in enumerate(TYPES)]
    batch = pa.RecordBatch.from_arrays(columns, schema=positional_schema(TYPES))
    return Delta.of(batch, np.full(len(rows), at, np.int64))


def filled(parts: list[list[tuple[float | None, list[str] | None]]], *, in_order: bool) -> str:
    bag = Bag(positional_schema(TYPES), in_arrival_order=in_order)
    bag.take_in(delta([(7.0, None)], 1), 1)
    for part in parts:
        bag.take_in(delta(part, 2), 2)
    bag.take_in(delta([(-9.0, None)], 3), 3)
    return repr(bag.at(3).to_pylist())


@pytest.mark.parametrize("cut", range(1, len(ROWS)))
def test_no_cut_and_no_order_of_arrival_shows(cut: int) -> None:
    """INV-BAG-1."""
    expected = filled([ROWS], in_order=False)
    assert filled([ROWS[cut:], ROWS[:cut]], in_order=False) == expected
    assert filled([ROWS[::-1][:cut], ROWS[::-1][cut:]], in_order=False) == expected


def test_rows_may_keep_the_order_in_which_they_came() -> None:
    bag = filled([ROWS[:2], ROWS[2:]], in_order=True)
    expected = [(7.0, None), *ROWS, (-9.0, None)]
    assert bag == repr([{"c0": value, "c1": values} for value, values in expected])


def test_a_row_leaves_with_its_interval() -> None:
    bag = Bag(positional_schema(TYPES), in_arrival_order=False)
    bag.take_in(delta([(2.0, None), (1.0, None)], 1), 1)
    gone = delta([(2.0, None)], 4)
    bag.take_in(Delta.of(gone.rows, gone.at, None, np.array([-1])), 4)
    assert [row["c0"] for row in bag.at(3).to_pylist()] == [1.0, 2.0]
    assert [row["c0"] for row in bag.at(4).to_pylist()] == [1.0]
