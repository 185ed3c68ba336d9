"""Samples of values: the k elements of a cell whose arrival numbers have the least hashes.

A sample answers every question that its elements answer. Samples of parts make the sample of the
whole, so they can be added; what was added cannot be taken away again.

Which elements are chosen is a function of their arrival numbers, so rows that arrive in another
order give another sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.synopses.summaries.protocol import Cells, Estimates, Numbers

_NONE = np.iinfo(np.int64).max
#: √(ln(2/0.05)/2): Hoeffding's bound of a share, times √n.
_BOUND = 1.3581


@dataclass(frozen=True)
class ValueSample:
    """Samples of at most `size` elements a cell."""

    size: int

    @classmethod
    def of_width(cls, width: int) -> ValueSample:
        """The largest one of at most so many numbers a cell."""
        return cls(max((width - 1) // 2, 1))

    @property
    def width(self) -> int:
        return 1 + 2 * self.size

    def empty(self, count: int) -> Cells:
        cells = np.zeros((count, self.width), np.int64)
        cells[:, 1 : 1 + self.size] = _NONE
        return cells

    def summarize(self, cells: Cells, which: Numbers, codes: Numbers, arrivals: Numbers) -> None:
        hashes = _hash(arrivals)
        order = np.lexsort((hashes, which))
        places, firsts = np.unique(which[order], return_index=True)
        bounds = [*firsts.tolist(), len(order)]
        for place, first, last in zip(places.tolist(), bounds, bounds[1:], strict=False):
            own = order[first : min(last, first + self.size)]
            cells[place, 0] += last - first
            self._keep_least(cells[place], hashes[own], codes[own])

    def _keep_least(self, cell: Numbers, hashes: Numbers, codes: Numbers) -> None:
        """Keep the least hashes of those in the cell and others."""
        both = np.concatenate([cell[1 : 1 + self.size], hashes])
        values = np.concatenate([cell[1 + self.size :], codes])
        least = np.argsort(both, kind="stable")[: self.size]
        cell[1 : 1 + self.size], cell[1 + self.size :] = both[least], values[least]

    def collapse(self, cells: Cells, to: Numbers, count: int) -> Cells:
        out = self.empty(count)
        for cell, place in zip(cells, to.tolist(), strict=True):
            if place >= 0 and cell[0]:
                out[place, 0] += cell[0]
                held = cell[1 : 1 + self.size] != _NONE
                self._keep_least(
                    out[place], cell[1 : 1 + self.size][held], cell[1 + self.size :][held]
                )
        return out

    def subtract(self, cells: Cells, others: Cells) -> Cells:
        raise NotImplementedError("what was added to a sample cannot be taken away")

    def count(self, cells: Cells, codes: Numbers) -> Estimates:
        return self.count_between(cells, codes, codes)

    def count_between(self, cells: Cells, low: Numbers, high: Numbers) -> Estimates:
        out = np.zeros((len(cells), len(low)))
        for number, cell in enumerate(cells):
            held = np.sort(cell[1 + self.size :][cell[1 : 1 + self.size] != _NONE])
            if len(held):
                found = np.searchsorted(held, high, "right") - np.searchsorted(held, low)
                out[number] = np.maximum(found, 0) * (cell[0] / len(held))
        return out

    def error(self, cells: Cells, codes: Numbers) -> Estimates:
        return self.error_between(cells, codes, codes)

    def error_between(self, cells: Cells, low: Numbers, high: Numbers) -> Estimates:
        """Hoeffding's bound of a share, which holds for samples without replacement too."""
        total = cells[:, 0].astype(np.float64)
        held = np.minimum(total, self.size)
        error = np.where(total > self.size, total * _BOUND / np.sqrt(np.maximum(held, 1)), 0.0)
        return np.asarray(np.repeat(error[:, None], len(low), axis=1), np.float64)

    def confidence(self, cells: Cells) -> Estimates:
        """1 − Hoeffding's bound of a share; 1 where all elements are in the sample."""
        total = cells[:, 0]
        bound = np.where(total > self.size, _BOUND / np.sqrt(self.size), 0.0)
        return np.asarray(np.clip(1 - bound, 0, 1), np.float64)


def _hash(arrivals: Numbers) -> Numbers:
    """Spread arrival numbers over 62 bits (SplitMix64's finaliser)."""
    mixed = arrivals.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(2)).astype(np.int64)
