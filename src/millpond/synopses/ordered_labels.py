"""Whole numbers for values, in the values' order, given as values appear.

A new value's label lies between those of its neighbours in order; if there is no room between
two labels, all values get new labels. Values are whatever Python can compare and hash.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Container
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

#: Labels lie between these; a new greatest label is `_STRIDE` above the last.
_LOWEST, _HIGHEST = -(2**62), 2**62
_STRIDE = 2**32
#: If more new values than this come at once, all values are sorted again.
_FEW = 16


class OrderedLabels:
    """Labels of the values that were inserted and not forgotten.

    Attributes:
        labels: Value -> label.
        values: Label -> value.
        on_relabel: Called when labels change, with all old labels ascending and the new labels.
    """

    def __init__(self) -> None:
        self.labels: dict[Any, int] = {}
        self.values: dict[int, Any] = {}
        self.on_relabel: Callable[[Ints, Ints], None] = _ignore
        self._ordered: list[Any] = []

    def __len__(self) -> int:
        return len(self.labels)

    def insert(self, values: list[Any]) -> None:
        """Label values that have no label; each value is there once."""
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
            # A run of new values side by side shares the labels between its neighbours.
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
        """Drop the labels of all values that are not in `kept`."""
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
        """Give all values new labels, evenly spaced."""
        old = np.array([self.labels.get(v, _HIGHEST) for v in self._ordered], np.int64)
        step = (_HIGHEST - _LOWEST) // (len(self._ordered) + 1)
        new = _LOWEST + step * np.arange(1, len(self._ordered) + 1, dtype=np.int64)
        had_one = old != _HIGHEST
        self.values = {}
        for value, label in zip(self._ordered, new.tolist(), strict=True):
            self._give(value, label)
        self.on_relabel(old[had_one], new[had_one])


def _ignore(old: Ints, new: Ints) -> None:
    """Do nothing: for callers that keep no labels."""
