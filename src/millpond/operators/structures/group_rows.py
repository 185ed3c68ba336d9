"""Brings rows of equal number together: the inner loop of every operator that counts."""

from __future__ import annotations

import numpy as np
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.operators.protocol.delta import Ints

#: Sorting the rows is cheaper when there are this many times as many numbers as rows.
_SPARSE = 64


@compiled(types.int64(READ_I64, I64, I64, I64))
def renumber_by_appearance(numbers, scratch, local, seen):  # type: ignore[no-untyped-def]
    """Number `numbers` anew by first appearance; return how many distinct numbers there are.

    `scratch` has a place for every number; it is all −1 before and after the call.
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
    """Order the rows' places by group, keeping their order; `starts` has one entry more."""
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
    """Bring rows of equal number together, keeping their order.

    Args:
        numbers: A number in [0, most) for each row.
        most: The bound of the numbers.

    Returns:
        The rows' places group by group; where each group starts among them, and last the count of
        rows; the number of each group.

    >>> order, starts, which = group_rows(np.array([7, 3, 7]), 10)
    >>> order.tolist(), starts.tolist(), which.tolist()
    ([0, 2, 1], [0, 2, 3], [7, 3])
    """
    numbers = np.ascontiguousarray(numbers)
    if most > _SPARSE * len(numbers):
        # Sorting few numbers is cheaper than an array for all possible numbers.
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
