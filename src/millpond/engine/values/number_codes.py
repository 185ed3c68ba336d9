"""Codes numbers: finds the regions of integers and of doubles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import float64, int32, int64, njit, types, uint64

from millpond.engine.values.buckets import (
    AHEAD,
    FAR_CUTS,
    buckets_for,
    search,
    shift_for,
    starts_of,
)
from millpond.engine.values.prefetch import prefetch
from millpond.engine.values.value_sets import INT64_MAX, float_key
from millpond.model.compiled import I32, I64, READ_F64, READ_I32, READ_I64, compiled
from millpond.model.kept_property import kept_property

Codes = npt.NDArray[np.int32]


@njit(inline="always")
def _bucket_of_integer(value: Any, least: Any, shift: Any, last: Any) -> Any:
    if value < least:
        return int64(0)
    bucket = (uint64(value) - uint64(least)) >> uint64(shift)
    return int64(last) if bucket > uint64(last) else int64(bucket)


@njit(inline="always")
def _bucket_of_float(value: Any, least: Any, scale: Any, last: Any) -> Any:
    place = (value - least) * scale
    if not (place > 0.0):
        return int64(0)
    return int64(last) if place >= float64(last) else int64(place)


#: With fewer cuts than this every value is compared with every cut, many values at a time.
_FEW_CUTS = 24
#: Values that are compared with one cut after another while they are in the nearest cache.
_NEAR = 1024


@njit(inline="always")
def _count_cuts(values: Any, cuts: Any, codes: Any) -> None:
    """Write how many cuts are at or below each value; none is at or below NaN."""
    for first in range(0, len(values), _NEAR):
        near = values[first : first + _NEAR]
        counts = codes[first : first + _NEAR]
        counts[:] = 0
        for cut in cuts:
            for i in range(len(near)):
                counts[i] += int32(near[i] >= cut)


@compiled(types.void(READ_I64, READ_I64, READ_I32, int64, int64, I32))
def _code_integers(
    values: Any, cuts: Any, starts: Any, least: Any, shift: Any, codes: Codes
) -> None:  # pragma: no cover - compiled
    if len(cuts) < _FEW_CUTS:
        _count_cuts(values, cuts, codes)
        return
    last = int64(len(starts) - 2)
    if len(cuts) < FAR_CUTS:
        for i in range(len(values)):
            value = values[i]
            bucket = _bucket_of_integer(value, least, shift, last)
            codes[i] = search(cuts, starts[bucket], starts[bucket + 1], value)
        return
    lows = np.empty(AHEAD, np.int64)
    highs = np.empty(AHEAD, np.int64)
    for t in range(0, len(values), AHEAD):
        step = min(AHEAD, len(values) - t)
        for i in range(step):
            lows[i] = _bucket_of_integer(values[t + i], least, shift, last)
            prefetch(starts, lows[i])
        for i in range(step):
            bucket = uint64(lows[i])
            lows[i] = int64(starts[bucket])
            highs[i] = int64(starts[bucket + uint64(1)])
            prefetch(cuts, lows[i])
        for i in range(step):
            codes[t + i] = search(cuts, lows[i], highs[i], values[t + i])


@compiled(types.void(READ_F64, READ_F64, READ_I32, float64, float64, int64, I32))
def _code_floats(
    values: Any, cuts: Any, starts: Any, least: Any, scale: Any, of_nan: Any, codes: Codes
) -> None:  # pragma: no cover - compiled
    if len(cuts) < _FEW_CUTS:
        _count_cuts(values, cuts, codes)
        for i in range(len(values)):
            if values[i] != values[i]:
                codes[i] = of_nan
        return
    last = int64(len(starts) - 2)
    for i in range(len(values)):
        value = values[i]
        if value != value:
            codes[i] = of_nan
            continue
        bucket = _bucket_of_float(value, least, scale, last)
        codes[i] = search(cuts, starts[bucket], starts[bucket + 1], value)


@dataclass(frozen=True)
class IntegerCoder:
    """Codes columns on the axis of integers. `cuts` ascend strictly."""

    cuts: npt.NDArray[np.int64]

    @kept_property
    def _index(self) -> tuple[int, int, npt.NDArray[np.int32]]:
        if len(self.cuts) == 0:
            return 0, 0, np.zeros(2, np.int32)
        least, greatest = int(self.cuts[0]), int(self.cuts[-1])
        buckets = buckets_for(len(self.cuts))
        shift = shift_for(greatest - least, buckets)
        places = (self.cuts.view(np.uint64) - np.uint64(least % 2**64)) >> np.uint64(shift)
        return least, shift, starts_of(places.astype(np.int64), buckets)

    def code(self, values: npt.NDArray[np.int64], codes: Codes) -> None:
        """Write every value's region to `codes`."""
        least, shift, starts = self._index
        _code_integers(values, self.cuts, starts, least, shift, codes)


def keys_of_floats(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the places of doubles on their axis, as `float_key` does of one.

    >>> keys_of_floats(np.array([-0.0, 0.0, 5e-324, -5e-324]))
    array([ 0,  0,  1, -1])
    """
    bits = values.view(np.int64)
    keys = np.where(bits >= 0, bits, -(bits & INT64_MAX))
    return np.where(np.isnan(values), np.int64(float_key(math.nan)), keys)


@dataclass(frozen=True)
class FloatCoder:
    """Codes columns of doubles. `keys` are cuts on the axis of doubles, strictly ascending."""

    keys: npt.NDArray[np.int64]

    @kept_property
    def _index(
        self,
    ) -> tuple[npt.NDArray[np.float64], float, float, npt.NDArray[np.int32]]:
        negative = self.keys < 0
        bits = np.where(negative, -self.keys, self.keys) | np.where(
            negative, np.int64(-(2**63)), np.int64(0)
        )
        cuts = bits.view(np.float64)
        # At most the last cut is NaN. Only NaN reaches it, and NaN is coded separately.
        cuts = np.ascontiguousarray(cuts[~np.isnan(cuts)])
        finite = cuts[np.isfinite(cuts)]
        if len(finite) == 0:
            return cuts, 0.0, 0.0, np.array([0, len(cuts)], np.int32)
        buckets = buckets_for(len(cuts))
        least = float(finite[0])
        span = float(finite[-1]) - least
        scale = (buckets - 1) / span if span > 0 and math.isfinite(span) else 0.0
        if not math.isfinite(scale):
            scale = 0.0
        places = np.empty(len(cuts), np.int64)
        _places_of_floats(cuts, least, scale, buckets - 1, places)
        return cuts, least, scale, starts_of(places, buckets)

    def code(self, values: npt.NDArray[np.float64], codes: Codes) -> None:
        """Write every value's region to `codes`."""
        cuts, least, scale, starts = self._index
        _code_floats(values, cuts, starts, least, scale, len(self.keys), codes)


@compiled(types.void(READ_F64, float64, float64, int64, I64))
def _places_of_floats(
    cuts: Any, least: Any, scale: Any, last: Any, out: Any
) -> None:  # pragma: no cover - compiled
    for i in range(len(cuts)):
        out[i] = _bucket_of_float(cuts[i], least, scale, last)
