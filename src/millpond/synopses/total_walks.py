"""The walks of totals: sums and ends of values, in one pass."""

from __future__ import annotations

import numpy as np
from numba import int64, types

from millpond.model.compiled import READ_F64, READ_I64, compiled
from millpond.synopses.wide_integers import bits_of

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


@compiled(types.UniTuple(int64, 2)(READ_F64))
def find_ends(values):  # type: ignore[no-untyped-def]
    """Find the keys of the least and the greatest double, as `order_keys` makes them."""
    least, greatest = int64(_GREATEST), int64(_LEAST)
    for i in range(len(values)):
        value = values[i]
        if value != value:
            value = np.nan  # all NaNs are one
        elif value == 0.0:
            value = 0.0  # both zeros are one
        bits = int64(bits_of(value))
        key = bits ^ ((bits >> 63) & int64(0x7FFFFFFFFFFFFFFF))
        least = min(least, key)
        greatest = max(greatest, key)
    return least, greatest
