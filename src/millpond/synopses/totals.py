"""Totals: COUNT, SUM, MIN and MAX of a bag of values, exact and merged in any order.

A total is a function of the bag alone, so it does not matter how the bag was cut into parts or in
which order their totals are merged. Sums are whole numbers of any length: of whole numbers and of
decimals' unscaled values as they are, of doubles in units of 2^-1074, the least double. So a sum of
doubles is exact, and is rounded once, where it is read (`round_sum`).

Least and greatest values are kept as 64-bit keys in the values' order (`order_keys`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.synopses.double_walks import measure_range, run_doubles
from millpond.synopses.exact_doubles import count_words
from millpond.synopses.order_keys import (
    is_time,
    is_whole,
    make_order_keys,
    view_numbers,
)
from millpond.synopses.total_walks import find_ends, sum_whole

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

#: All rows.
_ALL = slice(None)

#: The exponent of the unit of sums of doubles.
UNIT = -1074


class ColumnKind(StrEnum):
    """What is known of a column's values, beside how many are not NULL."""

    #: How many: for values of any type.
    COUNTED = "counted"
    #: Sum, least and greatest of whole numbers, decimals of up to 18 digits, times, booleans.
    WHOLE = "whole"
    #: Sum, least and greatest of doubles and floats.
    DOUBLE = "double"


def kind_of(type_: pa.DataType) -> ColumnKind:
    """Return what totals of columns of a type know."""
    if pa.types.is_floating(type_):
        return ColumnKind.DOUBLE
    return ColumnKind.WHOLE if is_whole(type_) or is_time(type_) else ColumnKind.COUNTED


class Total(NamedTuple):
    """The total of a bag of rows.

    Attributes:
        rows: How many rows.
        values: How many values that are not NULL; 0 if no column is looked at.
        sum: Of doubles, the sum of the finite ones in units of 2^-1074.
        specials: Of doubles, how many +infinity, −infinity and NaN.
        least: The key of the least value; None if there is none.
        greatest: The key of the greatest value; None if there is none.
    """

    rows: int = 0
    values: int = 0
    sum: int = 0
    specials: tuple[int, int, int] = (0, 0, 0)
    least: int | None = None
    greatest: int | None = None


NOTHING = Total()


def merge(totals: Iterable[Total]) -> Total:
    """Merge the totals of parts of a bag."""
    rows = values = sum_ = plus = minus = nan = 0
    least: int | None = None
    greatest: int | None = None
    for total in totals:
        rows += total.rows
        values += total.values
        sum_ += total.sum
        if total.specials != (0, 0, 0):
            plus, minus, nan = (
                plus + total.specials[0],
                minus + total.specials[1],
                nan + total.specials[2],
            )
        if total.least is not None and total.greatest is not None:
            least = total.least if least is None else min(least, total.least)
            greatest = total.greatest if greatest is None else max(greatest, total.greatest)
    return Total(rows, values, sum_, (plus, minus, nan), least, greatest)


class OpenColumn(NamedTuple):
    """A column of a segment, opened for its totals.

    Attributes:
        kind: What totals know of it.
        size: How many rows it has.
        numbers: Its whole numbers or doubles in their own width, arbitrary where NULL; None where
            values are only counted.
        valid: Which are not NULL; None if all are.
    """

    kind: ColumnKind
    size: int
    numbers: npt.NDArray[Any] | None
    valid: Bools | None


def open_column(column: pa.Array) -> OpenColumn:
    """Open a column; only booleans, and which values are NULL, are copied."""
    kind = kind_of(column.type)
    valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    numbers = None if kind is ColumnKind.COUNTED else view_numbers(column)
    return OpenColumn(kind, len(column), numbers, valid)


def total_of(column: OpenColumn, rows: Ints | slice = _ALL, sums: bool = True) -> Total:
    """Compute the total of a column's values in some rows.

    Args:
        column: The column.
        rows: The rows' numbers, or a range of rows.
        sums: Whether the sum is wanted; else it is left out where that saves time.
    """
    numbers, valid = column.numbers, column.valid
    if valid is not None:
        valid = valid[rows]
    size = _count(column, rows) if valid is None else len(valid)
    count = size if valid is None else int(np.count_nonzero(valid))
    if numbers is None or not count:
        return Total(size, count)
    chosen = numbers[rows] if valid is None else numbers[rows][valid]
    if column.kind is ColumnKind.WHOLE:
        whole = np.ascontiguousarray(chosen, np.int64)
        high, low, least, greatest = sum_whole(whole)
        return Total(size, count, (high << 32) + low, (0, 0, 0), least, greatest)
    doubles = np.ascontiguousarray(chosen, np.float64)
    least, greatest = find_ends(doubles)
    if not sums:
        return Total(size, count, 0, (0, 0, 0), least, greatest)
    words, base, specials = run_sums(doubles, None, np.array([count], np.int64))
    plus, minus, nan = specials[0].tolist()
    return Total(size, count, sum_of_words(words[0], base), (plus, minus, nan), least, greatest)


def _count(column: OpenColumn, rows: Ints | slice) -> int:
    return len(range(column.size)[rows]) if isinstance(rows, slice) else len(rows)


def double_keys(numbers: Doubles) -> Ints:
    """Return the doubles' keys: one for both zeros, and one for all NaNs, above all others."""
    keys: Ints = make_order_keys(pa.float64()).encode(pa.array(numbers), _NO_WEIGHTS)
    return keys


def run_sums(
    numbers: Doubles, rows: Ints | None, ends: Ints
) -> tuple[npt.NDArray[np.uint64], int, Ints]:
    """Compute running sums of doubles.

    Args:
        numbers: The doubles.
        rows: Which of them are summed; None: all.
        ends: Ascending; the i-th sum is that of the doubles before place ends[i].

    Returns:
        uint64[len(ends), n], the sums of finite doubles in units of 2^base; `base`; and
        int64[len(ends), 3], how many +infinity, −infinity and NaN.
    """
    chosen = numbers, _NO_ROWS if rows is None else rows, rows is None
    low, high = measure_range(*chosen)
    base = max(low, UNIT) // 64 * 64 if low <= high else 0
    words = np.zeros((len(ends), count_words(base, high) if low <= high else 1), np.uint64)
    specials = np.zeros((len(ends), 3), np.int64)
    run_doubles(*chosen, ends, base, words, specials)
    return words, base, specials


def sum_of_words(words: npt.NDArray[np.uint64], base: int) -> int:
    """Return the sum that words (two's complement, in units of 2^base) hold, in units of UNIT."""
    held = int.from_bytes(words.tobytes(), "little", signed=True)
    # The base is a multiple of 64 below the lowest bit; bits below UNIT are zero.
    return held << (base - UNIT) if base >= UNIT else held >> (UNIT - base)


def round_sum(total: Total) -> float:
    """Round a sum of doubles to the nearest double, ties to even; with infinities as SQL has it."""
    plus, minus, nan = total.specials
    if nan or (plus and minus):
        return float("nan")
    if plus or minus:
        return float("inf") if plus else float("-inf")
    try:
        return total.sum / (1 << -UNIT)
    except OverflowError:
        return float("inf") if total.sum > 0 else float("-inf")


_NO_WEIGHTS = _NO_ROWS = np.zeros(0, np.int64)
