"""Rows as texts: in their order, with their values behind it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.synopses.order_keys import Ints
from millpond.synopses.valued_orders import OrderTerm, RowOrder, ValuedKeys, write_rows

VALUES = [
    pa.array([3, None, -(2**63)], pa.int64()),
    pa.array([True, None, False]),
    pa.array(["", None, "é\0b"]),
    pa.array([Decimal("-12345678901234567890.12"), None, Decimal("0.01")], pa.decimal128(30, 2)),
    pa.array([2**64 - 1, None, 0], pa.uint64()),
    pa.array([float("inf"), None, -0.5]),
    pa.array([1, None, -1], pa.timestamp("us")),
    pa.array([0.5, None, -0.25], pa.float32()),
    pa.array([b"\0\0", None, b"\xff\xff"], pa.binary()),
]
#: Values that order rows, the least first.
ASCENDING = [
    pa.array([-(2**31), 0, 7], pa.int32()),
    pa.array([-0.5, 0.0, float("inf"), float("nan")]),
    pa.array(["", "\0", "\0\0", "\0a", "\1", "a", "a\0", "a\0\0", "a\1", "aa", "é"]),
    pa.array([b"", b"\0", b"\0\xff", b"\1", b"\xfe", b"\xff", b"\xff\0", b"\xff\xff"], pa.binary()),
    pa.array(
        [Decimal(-(2**64) - 1), Decimal(-1), Decimal(0), Decimal(2**63), Decimal(2**64)],
        pa.decimal128(38, 0),
    ),
]


def label(order: list[list[int]], values: pa.Array) -> tuple[ValuedKeys, Ints]:
    rows_by = RowOrder((), len(order))
    keys = ValuedKeys(rows_by, values.type)
    rows = write_rows(rows_by.write([], [np.array(numbers) for numbers in order]), values)
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


@pytest.mark.parametrize("nulls_first", [False, True])
@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize("by", ASCENDING, ids=lambda array: str(array.type))
def test_rows_are_in_the_order_of_values_before_that_of_numbers(
    by: pa.Array, falling: bool, nulls_first: bool
) -> None:
    """Whatever stands behind: each value has a row with a small number and one with a great one."""
    order = RowOrder((OrderTerm(by.type, falling, nulls_first),), 1)
    ranks: list[int | None] = [*sorted(range(len(by)), reverse=falling)]
    ranks.insert(0 if nulls_first else len(by), None)
    twice = by.take(pa.array([rank for rank in ranks for _ in range(2)], pa.int64()))
    stamps = np.array([-(2**63), 2**63 - 1] * len(ranks))
    check(order, [twice], stamps)


@pytest.mark.parametrize("falling", [False, True])
def test_the_first_column_orders_before_the_others(falling: bool) -> None:
    """Also where it is a text that begins another, or whose end looks like what stands behind."""
    texts = sorted(["", "\0", "a", "a\0", "a\0\0", "aa", "\x7f", "é"], reverse=falling)
    terms = (OrderTerm(pa.string(), falling), OrderTerm(pa.binary(), not falling))
    more = sorted([b"", b"\0", b"\0\xff", b"\xff", b"\xff\xff"], reverse=not falling)
    columns = [[one for one in texts for _ in more], more * len(texts)]
    arrays = [pa.array(c, term.of) for c, term in zip(columns, terms, strict=True)]
    check(RowOrder(terms, 1), arrays, -np.arange(len(columns[0])))


def check(order: RowOrder, columns: list[pa.Array], stamps: Ints) -> None:
    """Check that rows, which are in order, are written and labelled so, and read again."""
    values: list[Any] = [["z", None, "", "\0\0", "\xff"][i % 5] for i in range(len(stamps))]
    rows = write_rows(order.write(columns, [stamps]), pa.array(values))
    assert rows.to_pylist() == sorted(set(rows.to_pylist()))
    keys = ValuedKeys(order, pa.string())
    labels = keys.encode(rows, np.ones(len(rows), np.int64))
    assert labels.tolist() == sorted(set(labels.tolist()))
    assert keys.decode(labels, None).to_pylist() == values


def test_nothing_is_read_of_no_rows() -> None:
    keys, labels = label([[]], pa.array([], pa.string()))
    assert keys.decode(labels, None).to_pylist() == []
