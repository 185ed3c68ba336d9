"""Lays a batch of changes out by group and instant, for aggregates to walk over.

A **cell** is what changes in one group at one instant. The cells of a group lie side by side in
time order, so an aggregate keeps one running value while it walks them, and two of its values are
compared where a row may have changed. A **trace** holds a group's values: the value before the
group's first cell, and the value after each of its cells. With C cells of T groups a trace has
C + T places. The value before cell c of group number t is at c + t, the value after it at
c + t + 1.

INV-CELLS-1: a cell is whole. It has all changes of its group at its instant, because every step of
an operator gets whole instants. So the value after a cell is the value of the relation at that
instant, and not an intermediate value between two changes of the instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.model.kept_property import kept_property
from millpond.operators.protocol.delta import Bools, Ints
from millpond.operators.structures.group_rows import renumber_by_appearance


@dataclass(frozen=True, eq=False)
class Cells:
    """The places of a batch's changes, by group and instant. All arrays are int64.

    Attributes:
        order: The places of the changes in the batch, group by group, in time order.
        bounds: Where each cell's changes begin in `order`, and last where the last cell's end.
        at: Each cell's instant.
        groups: The number of each group that has changes.
        starts: Where the cells of each such group begin, and last the number of cells.
        by_time: The cells in the order of their instants.
    """

    order: Ints
    bounds: Ints
    at: Ints
    groups: Ints
    starts: Ints
    by_time: Ints

    @property
    def places(self) -> int:
        """The length of a trace."""
        return len(self.at) + len(self.groups)

    @property
    def walked(self) -> tuple[Ints, Ints, Ints, Ints]:
        """`order`, `bounds`, `starts` and `groups`: the arguments of compiled walks."""
        return self.order, self.bounds, self.starts, self.groups

    @kept_property
    def in_time(self) -> tuple[Ints, Ints]:
        """Each cell's instant, and its group as a place in `groups`, in the order of `by_time`."""
        owners = np.repeat(np.arange(len(self.groups)), np.diff(self.starts))
        return self.at.take(self.by_time), owners.take(self.by_time)

    @kept_property
    def seams(self) -> Bools:
        """For each place of a trace but the last, whether the next place is another group's."""
        found = np.zeros(self.places - 1, np.bool_)
        found[self.starts[1:-1] + np.arange(len(self.groups) - 1)] = True
        return found

    @kept_property
    def representatives(self) -> Ints:
        """The first change of each group that has changes."""
        return self.order[self.bounds[self.starts[:-1]]]


class Layout:
    """Lays batches out; keeps only working memory between them."""

    def __init__(self) -> None:
        self._scratch = np.full(64, -1, np.int64)

    def lay_out(self, numbers: Ints, at: Ints, most: int) -> Cells:
        """Lay out a batch into cells.

        Args:
            numbers: The group of each change, in [0, most).
            at: The instant of each change, ascending.
            most: The bound of the groups' numbers.
        """
        if most > len(self._scratch):
            self._scratch = np.full(2 * most, -1, np.int64)
        n = len(numbers)
        local, groups = np.empty(n, np.int64), np.empty(n, np.int64)
        count = renumber_by_appearance(np.ascontiguousarray(numbers), self._scratch, local, groups)
        order, bounds, cell_at = np.empty(n, np.int64), np.empty(n + 1, np.int64), np.empty_like(at)
        starts = np.zeros(count + 1, np.int64)
        by_time = np.empty(n, np.int64)
        at = np.ascontiguousarray(at)
        cells = _lay_out(local, at, count, order, bounds, cell_at, starts, by_time)
        return Cells(
            order, bounds[: cells + 1], cell_at[:cells], groups[:count], starts, by_time[:cells]
        )


@compiled(types.int64(READ_I64, READ_I64, types.int64, I64, I64, I64, I64, I64))
def _lay_out(local, at, count, order, bounds, cell_at, starts, by_time):  # type: ignore[no-untyped-def]
    """Fill the arrays after `count`; return the number of cells."""
    n = len(local)
    fill = np.zeros(count + 1, np.int64)
    for i in range(n):
        fill[local[i] + 1] += 1
    for g in range(count):
        fill[g + 1] += fill[g]
    for i in range(n):
        g = local[i]
        order[fill[g]] = i
        fill[g] += 1
    # fill[g] is now where group g ends.
    first = np.full(n, -1, np.int64)
    cells = 0
    p = 0
    for g in range(count):
        starts[g] = cells
        while p < fill[g]:
            instant = at[order[p]]
            bounds[cells] = p
            cell_at[cells] = instant
            first[order[p]] = cells
            cells += 1
            p += 1
            while p < fill[g] and at[order[p]] == instant:
                p += 1
    starts[count] = cells
    bounds[cells] = n
    # The cells' first changes are in the batch in the time order of the cells.
    k = 0
    for i in range(n):
        if first[i] >= 0:
            by_time[k] = first[i]
            k += 1
    return cells


def find_differences(trace: npt.NDArray[Any], valid: Bools | None = None) -> Bools:
    """Find where a trace's value differs from the next value; two NULLs do not differ.

    Floats are compared by their bits, so that a NaN does not differ from itself; a trace of floats
    has one NaN and one zero.
    """
    if trace.dtype == np.float64:
        trace = trace.view(np.int64)
    if trace.ndim > 1:
        # NumPy reduces rows of two words one by one.
        first, second = trace[:, 0], trace[:, 1]
        unequal = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    else:
        unequal = trace[1:] != trace[:-1]
    if valid is None:
        return np.asarray(unequal)
    both = valid[1:] & valid[:-1]
    return np.asarray((unequal & both) | (valid[1:] != valid[:-1]))
