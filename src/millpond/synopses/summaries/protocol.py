"""The summary-ADT: what every kind of summary offers, over many cells at once.

Promising tuples, section 3.2: summarize, estimate, confidence, add and subtract. A cell here is a
zone of time with all its value buckets. The cells of a summary are the rows of one array of
int64[cells, width], so that adding summaries is adding rows, and storing them is storing an array.
Values are int64 codes (`engine/joins/keys.py`): equal for equal values, and in the values' order
for types that have one.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled

#: int64[cells, width]
Cells = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]
Estimates = npt.NDArray[np.float64]


class SummaryKind(Protocol):
    """One kind of summary with its parameters; it has no state."""

    @property
    def width(self) -> int:
        """How many numbers a cell has; number 0 is how many elements are in it."""
        ...

    def empty(self, count: int) -> Cells:
        """Make cells without elements."""
        ...

    def summarize(self, cells: Cells, which: Numbers, codes: Numbers, arrivals: Numbers) -> None:
        """Add elements to cells, in place.

        Args:
            cells: The cells.
            which: The cell of each element.
            codes: The value of each element.
            arrivals: The arrival number of each element.
        """
        ...

    def collapse(self, cells: Cells, to: Numbers, count: int) -> Cells:
        """Add cells up: the i-th of `count` new cells is the sum of those with `to` i.

        Cells with a negative `to` are left out.
        """
        ...

    def subtract(self, cells: Cells, others: Cells) -> Cells:
        """Take cells that were added away again, row by row.

        Raises:
            NotImplementedError: this kind cannot.
        """
        ...

    def count(self, cells: Cells, codes: Numbers) -> Estimates:
        """Estimate how many elements have each value: float64[cells, codes], never negative."""
        ...

    def count_between(self, cells: Cells, low: Numbers, high: Numbers) -> Estimates:
        """Estimate how many elements have low ≤ value ≤ high, pair by pair: [cells, pairs].

        Raises:
            NotImplementedError: this kind knows no order.
        """
        ...

    def error(self, cells: Cells, codes: Numbers) -> Estimates:
        """How far `count` may be off at 95 %: float64[cells, codes]."""
        ...

    def error_between(self, cells: Cells, low: Numbers, high: Numbers) -> Estimates:
        """How far `count_between` may be off at 95 %."""
        ...

    def confidence(self, cells: Cells) -> Estimates:
        """How sure each cell is, from 0 to 1: float64[cells]; 1 without elements."""
        ...


class SummedCells:
    """The part of a summary-ADT that adds cells by adding their numbers."""

    @property
    def width(self) -> int:
        """Numbers of a cell."""
        raise NotImplementedError

    def empty(self, count: int) -> Cells:
        """Make cells of no elements: zeros."""
        return np.zeros((count, self.width), np.int64)

    def collapse(self, cells: Cells, to: Numbers, count: int) -> Cells:
        """Add rows of cells up, as `SummaryKind.collapse`."""
        return add_rows(cells, to, count)

    def subtract(self, cells: Cells, others: Cells) -> Cells:
        """Take elements out of cells."""
        return cells - others


def add_rows(cells: Cells, to: Numbers, count: int) -> Cells:
    """Add rows up as `SummaryKind.collapse`, where adding cells is adding numbers.

    Cells without elements are passed over, so the work is that of the cells that have some.
    """
    width = cells.shape[1]
    out = np.zeros((count, width), np.int64)
    _add_rows(np.ascontiguousarray(cells).reshape(-1), to, width, out.reshape(-1))
    return out


@compiled(types.void(READ_I64, READ_I64, types.int64, I64))
def _add_rows(cells: Any, to: Any, width: Any, out: Any) -> None:  # pragma: no cover - compiled
    for row in range(len(to)):
        if to[row] >= 0 and cells[row * width] != 0:
            begin, end = row * width, to[row] * width
            for i in range(width):
                out[end + i] += cells[begin + i]
