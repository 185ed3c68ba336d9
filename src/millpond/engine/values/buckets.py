"""Buckets: where to begin to look for a value among sorted cuts.

A binary search over thousands of cuts misses the branch predictor at every step, so the range of
the cuts is divided into equal buckets first, several to a cut, and the search is confined to the
cuts of the value's bucket: usually none or one. The bucket of a value is a monotone function of
it, and is computed for the cuts by the same instructions, so rounding cannot put a value on the
wrong side of a cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

#: Buckets per cut: enough that most buckets hold none.
_BUCKETS_PER_CUT = 8
#: Buckets that fit the second-level cache. More cuts than that have a bucket each.
_MANY_BUCKETS = 1 << 16
#: Cuts that do not fit the second-level cache: coders ask memory for them ahead.
FAR_CUTS = 1 << 15
#: How many values a coder asks memory for together.
AHEAD = 32


def shift_for(span: int, buckets: int) -> int:
    """Return the least shift that brings `span` below `buckets`."""
    return max(0, span.bit_length() - buckets.bit_length() + 1)


def buckets_for(cuts: int) -> int:
    """Choose the number of buckets for the range of so many cuts: a power of two."""
    wanted = max(256, min(cuts * _BUCKETS_PER_CUT, _MANY_BUCKETS), cuts)
    return 1 << (wanted - 1).bit_length()


def starts_of(buckets_of_cuts: npt.NDArray[np.int64], buckets: int) -> npt.NDArray[np.int32]:
    """For each bucket, and one past the last, count the cuts in the buckets before it."""
    edges = np.arange(buckets + 1)
    return np.searchsorted(buckets_of_cuts, edges, "left").astype(np.int32)


@njit(inline="always")
def search(cuts: Any, low: Any, high: Any, value: Any) -> Any:
    """Count the cuts at or below a value; the count is known to be from `low` to `high`."""
    while low < high:
        middle = (low + high) >> 1
        if cuts[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low
