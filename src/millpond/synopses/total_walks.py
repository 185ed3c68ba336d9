"""The walks of totals: sums and ends of values, in one pass."""

from __future__ import annotations

import numpy as np
from numba import int64, njit, types

from millpond.model.compiled import I64, READ_F64, READ_I64, compiled
from millpond.synopses.wide_integers import bits_of

_READ_I64_2D = types.Array(types.int64, 2, "C", readonly=True)
_GREATEST = np.iinfo(np.int64).max
_LEAST = np.iinfo(np.int64).min


@compiled(types.UniTuple(int64, 4)(READ_I64))
def sum_whole(values):  # type: ignore[no-untyped-def]
    """Add up at most 2^31 whole numbers; return high, low, least, greatest.

    The sum is high * 2^32 + low.
    """
    high, low, least, greatest = int64(0), int64(0), int64(_GREATEST), int64(_LEAST)
    for i in range(len(values)):
        value = values[i]
        high += value >> 32
        low += value & int64(0xFFFFFFFF)
        least = min(least, value)
        greatest = max(greatest, value)
    return high, low, least, greatest


@compiled(
    types.void(READ_I64, READ_I64, types.boolean, int64, types.Array(types.int64, 2, "C"), I64, I64)
)
def block_whole(numbers, rows, every, block, sums, least, greatest):  # type: ignore[no-untyped-def]
    """Fill the running sums before each block of values (as high, low), and each block's ends.

    The values are the numbers in some rows, or in every one.
    """
    size = len(numbers) if every else len(rows)
    high, low = int64(0), int64(0)
    for b in range(len(least)):
        first, last = int64(_GREATEST), int64(_LEAST)
        for i in range(b * block, min((b + 1) * block, size)):
            value = numbers[i] if every else numbers[rows[i]]
            high += value >> 32
            low += value & int64(0xFFFFFFFF)
            first = min(first, value)
            last = max(last, value)
        sums[b + 1, 0], sums[b + 1, 1] = high, low
        least[b], greatest[b] = first, last


@compiled(
    types.UniTuple(int64, 4)(READ_I64, READ_I64, _READ_I64_2D, READ_I64, READ_I64, int64, int64)
)
def extend_whole(numbers, rows, sums, least, greatest, first, last):  # type: ignore[no-untyped-def]
    """As `sum_whole`, of some rows' numbers and of the blocks from `first` to before `last`."""
    high, low, smallest, largest = int64(0), int64(0), int64(_GREATEST), int64(_LEAST)
    for i in range(len(rows)):
        value = numbers[rows[i]]
        high += value >> 32
        low += value & int64(0xFFFFFFFF)
        smallest = min(smallest, value)
        largest = max(largest, value)
    if first < last:
        high += sums[last, 0] - sums[first, 0]
        low += sums[last, 1] - sums[first, 1]
    for b in range(first, last):
        smallest = min(smallest, least[b])
        largest = max(largest, greatest[b])
    return high, low, smallest, largest


@njit(inline="always")
def _key_of(value):  # type: ignore[no-untyped-def]
    """Make a double's key, as `order_keys` does."""
    if value != value:
        value = np.nan  # all NaNs are one
    elif value == 0.0:
        value = 0.0  # both zeros are one
    bits = int64(bits_of(value))
    return bits ^ ((bits >> 63) & int64(0x7FFFFFFFFFFFFFFF))


@compiled(types.void(READ_F64, READ_I64, types.boolean, int64, I64, I64))
def block_ends(numbers, rows, every, block, least, greatest):  # type: ignore[no-untyped-def]
    """Fill the keys of the least and the greatest double of each block, as `block_whole`."""
    size = len(numbers) if every else len(rows)
    for b in range(len(least)):
        first, last = int64(_GREATEST), int64(_LEAST)
        for i in range(b * block, min((b + 1) * block, size)):
            key = _key_of(numbers[i] if every else numbers[rows[i]])
            first = min(first, key)
            last = max(last, key)
        least[b], greatest[b] = first, last


@compiled(types.UniTuple(int64, 2)(READ_F64))
def find_ends(values):  # type: ignore[no-untyped-def]
    """Find the keys of the least and the greatest double, as `order_keys` makes them."""
    least, greatest = int64(_GREATEST), int64(_LEAST)
    for i in range(len(values)):
        key = _key_of(values[i])
        least = min(least, key)
        greatest = max(greatest, key)
    return least, greatest


@compiled(types.UniTuple(int64, 2)(READ_F64, READ_I64, READ_I64, READ_I64, int64, int64))
def extend_ends(numbers, rows, least, greatest, first, last):  # type: ignore[no-untyped-def]
    """As `find_ends`, of some rows' numbers and of the blocks from `first` to before `last`."""
    smallest, largest = int64(_GREATEST), int64(_LEAST)
    for i in range(len(rows)):
        key = _key_of(numbers[rows[i]])
        smallest = min(smallest, key)
        largest = max(largest, key)
    for b in range(first, last):
        smallest = min(smallest, least[b])
        largest = max(largest, greatest[b])
    return smallest, largest
