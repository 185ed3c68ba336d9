"""Count sketches: how often each value occurs, in little memory, for = and IN.

Charikar, Chen, Farach-Colton: *Finding frequent items in data streams*, as promising tuples
(section 3.2) use it. A value has a bucket; a bucket has some rows of counters; a row adds +1 or −1
to one of its counters for every element. The estimate is the median over the rows. All counters are
sums over elements, so add and subtract are exact, and no order of arrival or cut shows.

Buckets are the paper's value buckets (section 3.1): a value is disturbed by those of its own bucket
only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import int64, njit, types, uint64

from millpond.model.compiled import F64, I64, READ_I64, compiled
from millpond.synopses.summaries.protocol import Cells, Estimates, Numbers, SummedCells

#: Value buckets of a cell, and rows of a bucket.
BUCKETS, ROWS = 16, 5
#: A row is off by more than 2.3 standard deviations once in 5.3 times at most (Chebyshev). The
#: median of five rows is off only if three of them are, which happens once in 20 times at most.
_DEVIATIONS = 2.3


@dataclass(frozen=True)
class CountSketch(SummedCells):
    """Count sketches whose rows have `columns` counters, a power of two."""

    columns: int

    @classmethod
    def of_width(cls, width: int) -> CountSketch:
        """The largest one of at most so many numbers a cell.

        >>> CountSketch.of_width(3_000)
        CountSketch(columns=32)
        """
        columns = max((width - 1) // (BUCKETS * ROWS), 1)
        return cls(1 << (columns.bit_length() - 1))

    @property
    def width(self) -> int:
        return 1 + BUCKETS * ROWS * self.columns

    def summarize(self, cells: Cells, which: Numbers, codes: Numbers, arrivals: Numbers) -> None:
        _summarize(cells.reshape(-1), which, codes, self.width, self.columns)

    def count(self, cells: Cells, codes: Numbers) -> Estimates:
        out = np.empty(len(cells) * len(codes), np.float64)
        _estimate(np.ascontiguousarray(cells).reshape(-1), codes, self.width, self.columns, out)
        return out.reshape(len(cells), len(codes))

    def count_between(self, cells: Cells, low: Numbers, high: Numbers) -> Estimates:
        raise NotImplementedError("a count sketch knows no order")

    def error(self, cells: Cells, codes: Numbers) -> Estimates:
        """2.3 · √(F₂ / columns), where F₂ is the bucket's own estimate, the value included."""
        deviation = np.sqrt(self._second_moments(cells) / self.columns)
        return np.asarray(_DEVIATIONS * deviation[:, _buckets(codes)], np.float64)

    def error_between(self, cells: Cells, low: Numbers, high: Numbers) -> Estimates:
        raise NotImplementedError("a count sketch knows no order")

    def confidence(self, cells: Cells) -> Estimates:
        """1 − the standard deviation of an estimate as a share of the elements.

        The paper takes the variance of the items. While a stream behaves as before, the share
        stays; it rises when some values become frequent. That each element is there once is no
        variance, so a cell of few elements is as sure as a cell of none.
        """
        total = cells[:, 0].astype(np.float64)
        excess = np.maximum(self._second_moments(cells).sum(axis=1) - total, 0)
        spread = np.sqrt(excess / (BUCKETS * self.columns))
        return np.asarray(np.clip(1 - spread / np.maximum(total, 1), 0, 1), np.float64)

    def _second_moments(self, cells: Cells) -> Estimates:
        """Estimate Σ count² of each bucket's values: float64[cells, buckets]."""
        counters = cells[:, 1:].reshape(len(cells), BUCKETS, ROWS, self.columns)
        squares = (counters.astype(np.float64) ** 2).sum(axis=3)
        return np.asarray(np.median(squares, axis=2), np.float64)


def _buckets(codes: Numbers) -> Numbers:
    out = np.empty(len(codes), np.int64)
    _place(codes, out)
    return out


@njit(inline="always")
def _mix(x: Any) -> Any:
    x = (x ^ (x >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> uint64(27))) * uint64(0x94D049BB133111EB)
    return x ^ (x >> uint64(31))


@compiled(types.void(READ_I64, I64))
def _place(codes: Any, out: Any) -> None:  # pragma: no cover - compiled
    for i in range(len(codes)):
        mixed = _mix(uint64(codes[i]) + uint64(0x9E3779B97F4A7C15))
        out[i] = int64(mixed % uint64(BUCKETS))


@compiled(types.void(I64, READ_I64, READ_I64, types.int64, types.int64))
def _summarize(cells: Any, which: Any, codes: Any, width: Any, columns: Any) -> None:
    # pragma: no cover - compiled
    for i in range(len(codes)):
        mixed = _mix(uint64(codes[i]) + uint64(0x9E3779B97F4A7C15))
        start = which[i] * width
        cells[start] += 1
        start += 1 + int64(mixed % uint64(BUCKETS)) * ROWS * columns
        for row in range(ROWS):
            mixed = _mix(mixed + uint64(0x9E3779B97F4A7C15))
            at = start + row * columns + int64((mixed >> uint64(1)) & uint64(columns - 1))
            cells[at] += 1 if mixed & uint64(1) else -1


@compiled(types.void(READ_I64, READ_I64, types.int64, types.int64, F64))
def _estimate(cells: Any, codes: Any, width: Any, columns: Any, out: Any) -> None:
    # pragma: no cover - compiled
    count = len(cells) // width
    found = np.empty(ROWS, np.int64)
    places = np.empty(ROWS, np.int64)
    signs = np.empty(ROWS, np.int64)
    for i in range(len(codes)):
        mixed = _mix(uint64(codes[i]) + uint64(0x9E3779B97F4A7C15))
        start = 1 + int64(mixed % uint64(BUCKETS)) * ROWS * columns
        for row in range(ROWS):
            mixed = _mix(mixed + uint64(0x9E3779B97F4A7C15))
            places[row] = start + row * columns + int64((mixed >> uint64(1)) & uint64(columns - 1))
            signs[row] = 1 if mixed & uint64(1) else -1
        for cell in range(count):
            for row in range(ROWS):
                value = signs[row] * cells[cell * width + places[row]]
                at = row
                while at > 0 and found[at - 1] > value:
                    found[at] = found[at - 1]
                    at -= 1
                found[at] = value
            out[cell * len(codes) + i] = max(found[ROWS // 2], 0)
