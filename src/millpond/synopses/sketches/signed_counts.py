"""A count sketch of one row: how often a value occurs (Charikar, Chen and Farach-Colton 2002).

Each value adds its sign, which its hash says, to one of `BUCKETS` counters. The counter of a value,
times its sign, is how often it occurs, up to what the other values of the counter add: on average
nothing, with a variance of at most the sum of the squared counts over the number of counters. So by
Chebyshev's inequality it is within 2 % of the root of that sum with a probability of 96 %.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millpond.model.approximation import BUCKETS, HASHES

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SignedCounts:
    """The counters that are not 0.

    Attributes:
        buckets: int64, ascending: the numbers of the counters.
        counts: int64: what each has, not 0.
    """

    buckets: Ints
    counts: Ints

    @classmethod
    def create(cls, values: npt.NDArray[np.generic]) -> SignedCounts:
        """Make the sketch of values; `values` has their hashes."""
        hashes = values.astype(np.uint64, copy=False)
        signs = np.where(hashes >= np.uint64(HASHES // 2), 1, -1)
        return cls._add_up((hashes % np.uint64(BUCKETS)).astype(np.int64), signs)

    @classmethod
    def merge(cls, sketches: Iterable[SignedCounts]) -> SignedCounts:
        """Merge sketches of several bags into that of all their values."""
        parts = list(sketches)
        if len(parts) == 1:
            return parts[0]
        nothing = [np.zeros(0, np.int64)]
        buckets = np.concatenate([part.buckets for part in parts] or nothing)
        return cls._add_up(buckets, np.concatenate([part.counts for part in parts] or nothing))

    @classmethod
    def _add_up(cls, buckets: Ints, counts: npt.NDArray[np.int_]) -> SignedCounts:
        found, places = np.unique(buckets, return_inverse=True)
        total = np.zeros(len(found), np.int64)
        np.add.at(total, places, counts)
        kept = total != 0
        return cls(found[kept], total[kept])

    def estimate(self, hash_: int) -> int:
        """Estimate how often the value with a hash occurs."""
        bucket = hash_ % BUCKETS
        place = int(self.buckets.searchsorted(bucket))
        if place == len(self.buckets) or self.buckets[place] != bucket:
            return 0
        sign = 1 if hash_ >= HASHES // 2 else -1
        return max(0, sign * int(self.counts[place]))

    @property
    def nbytes(self) -> int:
        """Bytes kept."""
        return self.buckets.nbytes + self.counts.nbytes

    def pack(self) -> Ints:
        """Pack the sketch for a file; `unpack` is the inverse."""
        return np.concatenate([self.buckets, self.counts])

    @classmethod
    def unpack(cls, packed: Ints) -> SignedCounts:
        """Read what `pack` wrote, without copying."""
        half = len(packed) // 2
        return cls(packed[:half], packed[half:])
