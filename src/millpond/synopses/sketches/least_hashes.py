"""The least hashes of a bag of values: how many distinct values there are.

Bar-Yossef, Jayram, Kumar, Sivakumar and Trevisan (2002); Beyer, Haas, Reinwald, Sismanis and
Gemulla (2007). Exact below `LEAST_HASHES` distinct values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millpond.model.approximation import HASHES, LEAST_HASHES

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class LeastHashes:
    """The least distinct hashes.

    Attributes:
        hashes: uint64[at most LEAST_HASHES], ascending, each once.
    """

    hashes: Hashes

    @classmethod
    def create(cls, values: npt.NDArray[np.generic]) -> LeastHashes:
        """Make the sketch of values; `values` has their hashes."""
        hashes = values.astype(np.uint64, copy=False)
        taken = 2 * LEAST_HASHES
        while taken < len(hashes):
            # What is not among the least is not sorted; copies may hide some of the least.
            least = np.unique(np.partition(hashes, taken)[:taken])
            if len(least) >= LEAST_HASHES:
                return cls(least[:LEAST_HASHES].copy())
            taken *= 8
        return cls(np.unique(hashes)[:LEAST_HASHES].copy())

    @classmethod
    def merge(cls, sketches: Iterable[LeastHashes]) -> LeastHashes:
        """Merge sketches of several bags into that of all their values."""
        parts = [sketch.hashes for sketch in sketches]
        if len(parts) == 1:
            return cls(parts[0])
        return cls.create(np.concatenate(parts) if parts else np.zeros(0, np.uint64))

    def estimate(self) -> int:
        """Estimate the number of distinct values."""
        if len(self.hashes) < LEAST_HASHES:
            return len(self.hashes)
        numerator = float((LEAST_HASHES - 1) * HASHES)
        estimate = int(np.floor(numerator / np.float64(self.hashes[-1]) + 0.5))
        return max(estimate, LEAST_HASHES)

    @property
    def nbytes(self) -> int:
        """Bytes kept."""
        return self.hashes.nbytes

    def pack(self) -> npt.NDArray[np.int64]:
        """Pack the sketch for a file; `unpack` is the inverse."""
        return self.hashes.view(np.int64)

    @classmethod
    def unpack(cls, packed: npt.NDArray[np.int64]) -> LeastHashes:
        """Read what `pack` wrote, without copying."""
        return cls(packed.view(np.uint64))
