"""Rows as texts: in their order, with their values behind it."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from millpond.synopses.order_keys import Ints
from millpond.synopses.valued_orders import ValuedKeys, write_rows

VALUES = [
    pa.array([3, None, -(2**63)], pa.int64()),
    pa.array([True, None, False]),
    pa.array(["", None, "é\0b"]),
    pa.array([Decimal("-12345678901234567890.12"), None, Decimal("0.01")], pa.decimal128(30, 2)),
    pa.array([2**64 - 1, None, 0], pa.uint64()),
    pa.array([float("inf"), None, -0.5]),
    pa.array([1, None, -1], pa.timestamp("us")),
    pa.array([0.5, None, -0.25], pa.float32()),
]


def label(order: list[list[int]], values: pa.Array) -> tuple[ValuedKeys, Ints]:
    keys = ValuedKeys(len(order), values.type)
    rows = write_rows([np.array(numbers) for numbers in order], values)
    return keys, keys.encode(rows, np.ones(len(values), np.int64))


@pytest.mark.parametrize("values", VALUES, ids=lambda array: str(array.type))
def test_values_are_read_as_they_were_written(values: pa.Array) -> None:
    keys, labels = label([[5, 5, -7], [0, 1, 2]], values)
    assert keys.decode(labels, None).to_pylist() == values.to_pylist()
    backwards = keys.decode(labels[::-1].copy(), np.array([True, True, False]))
    assert backwards.to_pylist() == [values[2].as_py(), None, None]


@pytest.mark.parametrize("values", VALUES, ids=lambda array: str(array.type))
def test_equal_values_have_equal_texts(values: pa.Array) -> None:
    keys, labels = label([[1, 2, 3, 4, 5, 6]], pa.concat_arrays([values, values]))
    texts = keys.cut_values(labels, None).to_pylist()
    assert texts[:3] == texts[3:]
    assert len(set(texts)) == 3
    assert texts[1] is None


def test_keys_are_in_the_order_of_the_numbers_before_that_of_values() -> None:
    numbers = [[-(2**63), -1, 0, 0, 0, 2**63 - 1], [9, 8, -3, 7, 8, 0]]
    _, labels = label(numbers, pa.array(["z", "y", None, "a", "", None]))
    assert labels.tolist() == sorted(set(labels.tolist()))


def test_nothing_is_read_of_no_rows() -> None:
    keys, labels = label([[]], pa.array([], pa.string()))
    assert keys.decode(labels, None).to_pylist() == []
