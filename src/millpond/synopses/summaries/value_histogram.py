"""Histograms of values: how many elements lie between two values.

Bars are wide in proportion to the value: every power of two has as many. Where a value belongs
follows from the value alone, so histograms of any cells can be added and subtracted, and no range
has to be known before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millpond.synopses.summaries.protocol import Cells, Estimates, Numbers, SummedCells

#: Powers of two that have bars of their own: 2^-32 to 2^63. Smaller values are in the bar of 0;
#: greater ones, infinity and NaN in the last bar, as −infinity is in the first.
_LEAST, _MOST = -32, 63
_OCTAVES = _MOST - _LEAST + 1
#: Beyond the edge of any bar: greater numbers and NaN count as this where lengths are compared.
_BEYOND = 1e100


@dataclass(frozen=True)
class ValueHistogram(SummedCells):
    """Histograms with 2^`bits` bars for each power of two.

    Attributes:
        bits: At most 8.
        floats: Whether codes are those of floating-point numbers, and not whole numbers themselves.
    """

    bits: int
    floats: bool

    @classmethod
    def of_width(cls, width: int, floats: bool) -> ValueHistogram:
        """The finest one of at most so many numbers a cell; one bar a power of two at least."""
        per_octave = max((width - 2) // (2 * _OCTAVES), 1)
        return cls(min(per_octave.bit_length() - 1, 8), floats)

    @property
    def width(self) -> int:
        return 2 + 2 * self._side

    @property
    def _side(self) -> int:
        """Bars of the values on one side of zero, which has a bar of its own."""
        return _OCTAVES << self.bits

    def summarize(self, cells: Cells, which: Numbers, codes: Numbers, arrivals: Numbers) -> None:
        np.add.at(cells, (which, np.zeros(len(which), np.int64)), 1)
        np.add.at(cells, (which, 1 + self._bars(codes)), 1)

    def count(self, cells: Cells, codes: Numbers) -> Estimates:
        """The value's bar, divided by the whole numbers in it; the whole bar of a fraction."""
        bars = self._bars(codes)
        return np.asarray(cells[:, 1 + bars] / self._units(bars), np.float64)

    def count_between(self, cells: Cells, low: Numbers, high: Numbers) -> Estimates:
        """Whole bars, and of the bars at the ends a part in proportion to the length."""
        sums = np.cumsum(cells[:, 1:], axis=1, dtype=np.float64)
        first, last = self._bars(low), self._bars(high)
        inner = np.where(last > first, sums[:, last - 1] - sums[:, first], 0.0)
        one = cells[:, 1 + first] * self._share(first, low, high)
        other = cells[:, 1 + last] * self._share(last, low, high) * (last > first)
        return np.asarray(np.where(codes_ordered(low, high), inner + one + other, 0.0), np.float64)

    def error(self, cells: Cells, codes: Numbers) -> Estimates:
        """At most the rest of the bar, for certain; of fractions all of it may be others."""
        found, bars = self.count(cells, codes), cells[:, 1 + self._bars(codes)]
        return np.asarray(bars if self.floats else np.maximum(bars - found, 0), np.float64)

    def error_between(self, cells: Cells, low: Numbers, high: Numbers) -> Estimates:
        """At most what the bars at the ends may hide, for certain."""
        first, last = self._bars(low), self._bars(high)
        error = np.zeros((len(cells), len(low)))
        for bars, counted in ((first, True), (last, last > first)):
            share = self._share(bars, low, high)
            unsure = np.where(share < 1, np.maximum(share, 1 - share), 0.0)
            unsure = np.where(self._is_wide(bars, low, high), 1.0, unsure)
            error = error + cells[:, 1 + bars] * unsure * counted
        return np.asarray(np.where(codes_ordered(low, high), error, 0.0), np.float64)

    def confidence(self, cells: Cells) -> Estimates:
        """1 − the mean share of an element's own bar that is other values, at most."""
        bars = np.arange(self.width - 1)
        unsure = cells[:, 1:] * (1 - 1 / self._units(bars))
        most = (cells[:, 1:].astype(np.float64) * unsure).sum(axis=1)
        total = np.maximum(cells[:, 0].astype(np.float64), 1)
        return np.asarray(np.clip(1 - most / total**2, 0, 1), np.float64)

    def _numbers(self, codes: Numbers) -> Estimates:
        """The values that codes stand for."""
        if not self.floats:
            return codes.astype(np.float64)
        bits = np.where(codes >= 0, codes, -codes)
        sizes = np.ascontiguousarray(bits).view(np.float64)
        return np.where(codes >= 0, sizes, -sizes)

    def _bars(self, codes: Numbers) -> Numbers:
        """The bar of each value: 0 … width − 2, in the values' order."""
        values = self._numbers(codes)
        sizes = np.abs(values)
        sizes = np.where(np.isnan(sizes), np.inf, sizes)
        bits = sizes.view(np.int64) >> (52 - self.bits)
        place = bits - ((1023 + _LEAST) << self.bits)
        place = np.clip(np.where(np.isinf(sizes), self._side, place), -1, self._side - 1) + 1
        return np.asarray(self._side + np.where(values < 0, -place, place), np.int64)

    def _edges(self, bars: Numbers) -> tuple[Estimates, Estimates]:
        """The least and the greatest size of the values of each bar."""
        place = np.abs(bars - self._side) - 1
        start = (place + ((1023 + _LEAST) << self.bits)) << (52 - self.bits)
        end = (place + 1 + ((1023 + _LEAST) << self.bits)) << (52 - self.bits)
        inside = place >= 0
        low = np.where(inside, np.ascontiguousarray(start).view(np.float64), 0.0)
        high = np.where(inside, np.ascontiguousarray(end).view(np.float64), 0.0)
        return low, high

    def _units(self, bars: Numbers) -> Estimates:
        """How many whole numbers a bar has; 1 for fractions."""
        if self.floats:
            return np.ones(len(bars))
        low, high = self._edges(bars)
        return np.maximum(np.ceil(high) - np.ceil(low), 1)

    def _is_wide(self, bars: Numbers, low: Numbers, high: Numbers) -> npt.NDArray[np.bool_]:
        """Where a bar of fractions also has values that its edges do not tell of."""
        if not self.floats:
            return np.zeros(len(bars), np.bool_)
        every = self.width - 2
        start, _ = self._edges(bars)
        first, last = self._numbers(low), self._numbers(high)
        # All of the last bar is meant up to NaN, the greatest number there is.
        from_top = (bars == every) & ~(np.isnan(last) & (first <= start))
        from_bottom = (bars == 0) & ~(np.isneginf(first) & ~(last < -start))
        return np.asarray(from_top | from_bottom | (bars == self._side), np.bool_)

    def _share(self, bars: Numbers, low: Numbers, high: Numbers) -> Estimates:
        """Which share of a bar lies between two values."""
        start, end = self._edges(bars)
        negative = bars < self._side
        start, end = np.where(negative, -end, start), np.where(negative, -start, end)
        first, last = (
            np.clip(np.nan_to_num(self._numbers(codes), nan=_BEYOND), -_BEYOND, _BEYOND)
            for codes in (low, high)
        )
        if not self.floats:  # whole numbers: the bar [start, end) has ceil(end) − ceil(start)
            last = last + 1
            start, end = np.ceil(start), np.maximum(np.ceil(end), np.ceil(start) + 1)
            start, end = np.where(negative, start + 1, start), np.where(negative, end + 1, end)
        length = np.where(end > start, end - start, 1.0)
        covered = np.minimum(end, last) - np.maximum(start, first)
        covered = np.where(end > start, covered, 1.0)
        return np.asarray(np.clip(covered / length, 0, 1), np.float64)


def codes_ordered(low: Numbers, high: Numbers) -> np.ndarray:
    """Where a range is not empty."""
    return low <= high
