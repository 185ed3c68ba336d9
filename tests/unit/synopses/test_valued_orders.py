"""Rows as texts: in their order, with their values behind it."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from millpond.synopses.valued_orders import NO_VALUE, cut_values, read_values, write_rows

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


@pytest.mark.parametrize("values", VALUES, ids=lambda array: str(array.type))
def test_values_are_read_as_they_were_written(values: pa.Array) -> None:
    rows = write_rows([np.array([5, 5, -7]), np.array([0, 1, 2])], values)
    cut = cut_values(rows.cast(pa.binary()), 2)
    assert read_values(cut, values.type).to_pylist() == values.to_pylist()
    assert cut[1] == NO_VALUE


def test_texts_are_in_the_order_of_the_numbers_before_that_of_values() -> None:
    numbers = [np.array([-(2**63), -1, 0, 0, 0, 2**63 - 1]), np.array([9, 8, -3, 7, 7, 0])]
    texts = write_rows(numbers, pa.array(["z", "y", "x", "a", "b", None])).to_pylist()
    assert texts == sorted(texts)


def test_no_row_has_no_value() -> None:
    cut = cut_values(pa.array([None, None], pa.binary()), 2)
    assert cut.null_count == 2
    assert read_values(cut, pa.int64()).to_pylist() == [None, None]
    assert read_values(cut_values(pa.array([], pa.binary()), 1), pa.string()).to_pylist() == []
