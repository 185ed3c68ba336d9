"""A batch of changes laid out by group and instant: what every aggregate walks over.

A **cell** is what changes in one group at one instant. The cells of a group lie side by side in
time order, so an aggregate keeps one running value while it walks them, and two of its values are
compared where a row may have changed. What a group's value was is written as a **trace**: before
the group's first cell, and after each of its cells. With C cells of T groups a trace has C + T
places, and the value before cell c of group number t is at c + t, the one after it at c + t + 1.

INV-CELLS-1: a cell is whole. Everything of its group and instant is in it, because every step of
an operator is given whole instants; so a value after a cell is the relation's at that instant, and
not one of the many it passes through while the changes of the instant are applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.operators.protocol.delta import Bools, Ints
from millpond.operators.structures.group_rows import renumber_by_appearance

_BOOL = types.Array(types.boolean, 1, "C", readonly=True)


@dataclass(frozen=True, eq=False)
class Cells:
    """Where the changes of a batch are, by group and instant. All arrays are int64.

    Attributes:
        order: The places of the changes in the batch, group by group, in time order.
        bounds: Where each cell's changes begin in `order`, and behind them where the last end.
        at: Each cell's instant.
        groups: The number of each group that is touched.
        starts: Where each touched group's cells begin, and behind them how many cells there are.
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
        """`order`, `bounds`, `starts` and `groups`, as compiled walks take them."""
        return self.order, self.bounds, self.starts, self.groups

    @property
    def representatives(self) -> Ints:
        """A change of each touched group: the first."""
        return self.order[self.bounds[self.starts[:-1]]]


class Layout:
    """Lays batches out; keeps only the memory it works in."""

    def __init__(self) -> None:
        self._scratch = np.full(64, -1, np.int64)

    def lay_out(self, numbers: Ints, at: Ints, most: int) -> Cells:
        """The cells of a batch.

        Args:
            numbers: The group of each change, in [0, most).
            at: The instant of each change, ascending.
            most: How many groups there may be.
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
    """Fills everything after `count`; gives the number of cells."""
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
    # The first changes of the cells lie in the batch as the cells do in time.
    k = 0
    for i in range(n):
        if first[i] >= 0:
            by_time[k] = first[i]
            k += 1
    return cells


@dataclass(frozen=True, eq=False)
class Emission:
    """The rows a batch of cells gives: old ones as negative, new ones as positive.

    Attributes:
        place: int64, the place in the traces a row's values are taken from.
        group: int64, which of the touched groups it belongs to.
        at: int64, its instant; ascending, and within an instant all negative rows come first.
        weight: int64, −1 or 1.
    """

    place: Ints
    group: Ints
    at: Ints
    weight: Ints


def emit(cells: Cells, changed: Bools, exists: Bools) -> Emission:
    """The rows for the cells after which a group's row is another.

    Args:
        changed: For each place of a trace but the last, whether the values at it and at the next
            one differ; what it says across groups is not looked at.
        exists: For each place of a trace, whether the group has a row there.
    """
    most = 2 * len(cells.at)
    place, group = np.empty(most, np.int64), np.empty(most, np.int64)
    at, weight = np.empty(most, np.int64), np.empty(most, np.int64)
    count = _emit(cells.at, cells.starts, cells.by_time, changed, exists, place, group, at, weight)
    return Emission(place[:count], group[:count], at[:count], weight[:count])


@compiled(types.int64(READ_I64, READ_I64, READ_I64, _BOOL, _BOOL, I64, I64, I64, I64))
def _emit(cell_at, starts, by_time, changed, exists, place, group, at, weight):  # type: ignore[no-untyped-def]
    cells = len(cell_at)
    owner = np.empty(cells, np.int64)
    for g in range(len(starts) - 1):
        for c in range(starts[g], starts[g + 1]):
            owner[c] = g
    out = 0
    k = 0
    while k < cells:
        instant = cell_at[by_time[k]]
        end = k
        while end < cells and cell_at[by_time[end]] == instant:
            c = by_time[end]
            g = owner[c]
            before = c + g
            if exists[before] and (not exists[before + 1] or changed[before]):
                place[out] = before
                group[out] = g
                at[out] = instant
                weight[out] = -1
                out += 1
            end += 1
        for j in range(k, end):
            c = by_time[j]
            g = owner[c]
            before = c + g
            if exists[before + 1] and (not exists[before] or changed[before]):
                place[out] = before + 1
                group[out] = g
                at[out] = instant
                weight[out] = 1
                out += 1
        k = end
    return out


def find_differences(trace: npt.NDArray[Any], valid: Bools | None = None) -> Bools:
    """Where a trace's value differs from the next one's; two NULLs do not differ.

    Floats are compared as what they are stored as, so that a NaN does not differ from itself; a
    trace of floats has one NaN and one zero.
    """
    if trace.dtype == np.float64:
        trace = trace.view(np.int64)
    unequal = trace[1:] != trace[:-1]
    if trace.ndim > 1:
        unequal = unequal.any(axis=1)
    if valid is None:
        return np.asarray(unequal)
    both = valid[1:] & valid[:-1]
    return np.asarray((unequal & both) | (valid[1:] != valid[:-1]))
