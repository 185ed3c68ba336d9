"""Whole numbers for values, in the values' order, given as values appear.

A new value's label lies between those of its neighbours in order; when there is no room between
two, all labels are given anew. Values are whatever Python can compare and hash.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Container
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

#: Labels lie between these, and a new greatest one this far above the last.
_LOWEST, _HIGHEST = -(2**62), 2**62
_STRIDE = 2**32
#: More new values than this are sorted in together.
_FEW = 16


class OrderedLabels:
    """Labels of the values that were inserted and not forgotten.

    Attributes:
        labels: Value -> label.
        values: Label -> value.
        on_relabel: Told when labels change: all old ones ascending, and what each becomes.
    """

    def __init__(self) -> None:
        self.labels: dict[Any, int] = {}
        self.values: dict[int, Any] = {}
        self.on_relabel: Callable[[Ints, Ints], None] = _ignore
        self._ordered: list[Any] = []

    def __len__(self) -> int:
        return len(self.labels)

    def insert(self, values: list[Any]) -> None:
        """Labels values that have no label; each is there once."""
        if not values:
            return
        new = sorted(values)
        if len(new) <= _FEW:
            for value in new:
                insort(self._ordered, value)
        else:
            self._ordered += new
            self._ordered.sort()
        i = 0
        while i < len(new):
            # A run of new values side by side shares what is between its neighbours.
            first = bisect_left(self._ordered, new[i])
            run = 1
            while i + run < len(new) and self._ordered[first + run] == new[i + run]:
                run += 1
            low = self.labels[self._ordered[first - 1]] if first else _LOWEST
            step = self._step(low, first + run, run)
            if step == 0:
                self._relabel()
                return
            for k in range(run):
                self._give(new[i + k], low + (k + 1) * step)
            i += run

    def forget(self, kept: Container[Any]) -> None:
        """Drops the labels of all values but some."""
        self._ordered = [v for v in self._ordered if v in kept]
        self.labels = {v: self.labels[v] for v in self._ordered}
        self.values = {label: v for v, label in self.labels.items()}

    def _step(self, low: int, after: int, run: int) -> int:
        if after < len(self._ordered):
            return (self.labels[self._ordered[after]] - low) // (run + 1)
        return min((_HIGHEST - low) // (run + 1), _STRIDE)

    def _give(self, value: Any, label: int) -> None:
        self.labels[value] = label
        self.values[label] = value

    def _relabel(self) -> None:
        """Labels everything anew, evenly."""
        old = np.array([self.labels.get(v, _HIGHEST) for v in self._ordered], np.int64)
        step = (_HIGHEST - _LOWEST) // (len(self._ordered) + 1)
        new = _LOWEST + step * np.arange(1, len(self._ordered) + 1, dtype=np.int64)
        had_one = old != _HIGHEST
        self.values = {}
        for value, label in zip(self._ordered, new.tolist(), strict=True):
            self._give(value, label)
        self.on_relabel(old[had_one], new[had_one])


def _ignore(old: Ints, new: Ints) -> None:
    """For whoever keeps no labels."""
