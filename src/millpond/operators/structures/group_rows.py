"""Rows of a batch brought together by a number each: the inner loop of everything that counts."""

from __future__ import annotations

import numpy as np
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.operators.protocol.delta import Ints

#: How many times as many numbers as rows there have to be for sorting the rows to be cheaper.
_SPARSE = 64


@compiled(types.int64(READ_I64, I64, I64, I64))
def renumber_by_appearance(numbers, scratch, local, seen):  # type: ignore[no-untyped-def]
    """Numbers `numbers` anew by first appearance; gives how many there are.

    `scratch` has a place for every number, −1 before and after.
    """
    count = 0
    for i in range(len(numbers)):
        number = numbers[i]
        own = scratch[number]
        if own < 0:
            own = count
            scratch[number] = own
            seen[own] = number
            count += 1
        local[i] = own
    for i in range(count):
        scratch[seen[i]] = -1
    return count


@compiled(types.void(READ_I64, I64, I64))
def _lay_out(local, starts, order):  # type: ignore[no-untyped-def]
    """Places of rows, group by group, in their order within one; `starts` has one entry more."""
    for i in range(len(local)):
        starts[local[i] + 1] += 1
    for g in range(1, len(starts)):
        starts[g] += starts[g - 1]
    fill = starts.copy()
    for i in range(len(local)):
        g = local[i]
        order[fill[g]] = i
        fill[g] += 1


def group_rows(numbers: Ints, most: int) -> tuple[Ints, Ints, Ints]:
    """Brings rows of equal number together, keeping their order.

    Args:
        numbers: A number in [0, most) for each row.
        most: How many numbers there are.

    Returns:
        The rows' places group by group; where each group starts among them, and behind them the
        number of rows; the number of each group.

    >>> order, starts, which = group_rows(np.array([7, 3, 7]), 10)
    >>> order.tolist(), starts.tolist(), which.tolist()
    ([0, 2, 1], [0, 2, 3], [7, 3])
    """
    numbers = np.ascontiguousarray(numbers)
    if most > _SPARSE * len(numbers):
        # Sorting few numbers is cheaper than room for all that there could be.
        known, numbers = np.unique(numbers, return_inverse=True)
        most = len(known)
    else:
        known = None
    local = np.empty(len(numbers), np.int64)
    seen = np.empty(len(numbers), np.int64)
    count = renumber_by_appearance(numbers, np.full(most, -1, np.int64), local, seen)
    starts = np.zeros(count + 1, np.int64)
    order = np.empty(len(numbers), np.int64)
    _lay_out(local, starts, order)
    which = seen[:count]
    return order, starts, which if known is None else known[which]
