"""A histogram of numbers whose buckets are as wide as their values are large: quantiles.

A value's bucket is the value rounded to six binary digits, so the bucket of a quantile is the
quantile rounded, with a relative error of at most 1/64, however many values there are. Between 1
and a million there are 640 buckets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LogHistogram:
    """The buckets that are not empty.

    Attributes:
        values: float64, ascending: the rounded value of each bucket; NaN is greater than all.
        counts: int64: how many values each bucket has, at least 1.
    """

    values: Doubles
    counts: Ints

    @classmethod
    def create(cls, values: npt.NDArray[np.generic]) -> LogHistogram:
        """Make the sketch of values; `values` has them rounded."""
        rounded, counts = np.unique(values.astype(np.float64, copy=False), return_counts=True)
        return cls(rounded, counts.astype(np.int64, copy=False))

    @classmethod
    def merge(cls, sketches: Iterable[LogHistogram]) -> LogHistogram:
        """Merge sketches of several bags into that of all their values."""
        parts = list(sketches)
        if len(parts) == 1:
            return parts[0]
        values = np.concatenate([part.values for part in parts] or [np.zeros(0)])
        counts = np.concatenate([part.counts for part in parts] or [np.zeros(0, np.int64)])
        rounded, places = np.unique(values, return_inverse=True)
        total = np.zeros(len(rounded), np.int64)
        np.add.at(total, places, counts)
        return cls(rounded, total)

    def estimate(self, share: float) -> float | None:
        """Estimate a quantile, as `quantile_disc` counts; None of no values."""
        total = int(self.counts.sum())
        if not total:
            return None
        # DuckDB's discrete quantile: the first value with at least that share up to it.
        rank = max(1, total - int(np.floor(total - share * total)))
        return float(self.values[np.cumsum(self.counts).searchsorted(rank)])

    @property
    def nbytes(self) -> int:
        """Bytes kept."""
        return self.values.nbytes + self.counts.nbytes

    def pack(self) -> npt.NDArray[np.int64]:
        """Pack the sketch for a file; `unpack` is the inverse."""
        return np.concatenate([self.values.view(np.int64), self.counts])

    @classmethod
    def unpack(cls, packed: npt.NDArray[np.int64]) -> LogHistogram:
        """Read what `pack` wrote, without copying."""
        half = len(packed) // 2
        return cls(packed[:half].view(np.float64), packed[half:])
