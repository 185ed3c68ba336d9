"""Counts and whole-number sums of many groups, walked over a batch's cells.

A sum of whole numbers is kept in as many 64-bit words as it can need, so it never overflows on the
way, and values that come and go leave nothing behind. Columns of up to 64 bits (integers, booleans,
decimals of up to 18 digits as their unscaled numbers) need two words, as DuckDB's HUGEINT; numbers
that are themselves 128 bits wide need a third.

The arrays of cells are those of `millpond.operators.aggregation.cells.Cells`; `weights` has the
weight of every change in the order of the cells, 0 where it does not take part (NULL, or filtered
out).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types, uint64

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.synopses.wide_integers import add_at, high_word, negate, subtract_at

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_CELLS = (READ_I64, READ_I64, READ_I64)
_READ_I64_2D = types.Array(types.int64, 2, "C", readonly=True)
_I64_2D = types.Array(types.int64, 2, "C")
_U64_2D = types.Array(types.uint64, 2, "C")


@compiled(types.void(*_CELLS, READ_I64, I64, I64))
def walk_counts(bounds, starts, groups, weights, kept, trace):  # type: ignore[no-untyped-def]
    """Add up weights: `kept` by group, `trace` as `Cells` lays traces out."""
    for t in range(len(groups)):
        running = kept[groups[t]]
        trace[starts[t] + t] = running
        for c in range(starts[t], starts[t + 1]):
            for j in range(bounds[c], bounds[c + 1]):
                running += weights[j]
            trace[c + t + 1] = running
        kept[groups[t]] = running


@compiled(types.void(READ_I64, *_CELLS, READ_I64, READ_I64, _I64_2D, _I64_2D))
def walk_integers(order, bounds, starts, groups, weights, values, kept, trace):  # type: ignore[no-untyped-def]
    """Add up weighted 64-bit values in two words, low and high."""
    for t in range(len(groups)):
        low = uint64(kept[groups[t], 0])
        high = kept[groups[t], 1]
        place = starts[t] + t
        trace[place, 0] = np.int64(low)
        trace[place, 1] = high
        for c in range(starts[t], starts[t + 1]):
            for j in range(bounds[c], bounds[c + 1]):
                weight = weights[j]
                if weight == 0:
                    continue
                value = values[order[j]]
                if weight == 1:
                    added, over = uint64(value), value >> 63
                else:
                    # The signed product is the unsigned product, less the terms of the signs.
                    a, b = uint64(value), uint64(weight)
                    added = a * b
                    over = np.int64(high_word(a, b))
                    if value < 0:
                        over -= weight
                    if weight < 0:
                        over -= value
                low += added
                high += over
                if low < added:
                    high += 1
            place = c + t + 1
            trace[place, 0] = np.int64(low)
            trace[place, 1] = high
        kept[groups[t], 0] = np.int64(low)
        kept[groups[t], 1] = high


@compiled(types.boolean(READ_I64, *_CELLS, READ_I64, _READ_I64_2D, _U64_2D, _I64_2D))
def walk_wide_integers(order, bounds, starts, groups, weights, values, kept, trace):  # type: ignore[no-untyped-def]
    """Add up weighted 128-bit values in three words; return whether every sum fits two words."""
    fits = True
    part = np.empty(3, np.uint64)
    for t in range(len(groups)):
        running = kept[groups[t]]
        place = starts[t] + t
        trace[place, 0] = np.int64(running[0])
        trace[place, 1] = np.int64(running[1])
        for c in range(starts[t], starts[t + 1]):
            for j in range(bounds[c], bounds[c + 1]):
                weight = weights[j]
                if weight == 0:
                    continue
                part[0] = uint64(values[order[j], 0])
                part[1] = uint64(values[order[j], 1])
                part[2] = uint64(values[order[j], 1] >> 63)
                negative = values[order[j], 1] < 0
                if negative:
                    negate(part)
                times = uint64(abs(weight))
                top = high_word(part[0], times)
                part[2] = high_word(part[1], times)
                part[0] *= times
                part[1] *= times
                add_at(part, top, 1)
                if negative != (weight < 0):
                    subtract_at(running, part[0], 0)
                    subtract_at(running, part[1], 1)
                    subtract_at(running, part[2], 2)
                else:
                    add_at(running, part[0], 0)
                    add_at(running, part[1], 1)
                    add_at(running, part[2], 2)
            place = c + t + 1
            trace[place, 0] = np.int64(running[0])
            trace[place, 1] = np.int64(running[1])
            if uint64(np.int64(running[1]) >> 63) != running[2]:
                fits = False
    return fits


def round_to_doubles(sums: Ints) -> npt.NDArray[np.float64]:
    """Convert two-word sums to doubles, as DuckDB converts HUGEINTs.

    That is not always the nearest double: DuckDB computes its averages from these (its
    `Hugeint::TryCast`), and Millpond's must be the same to the last bit.
    """
    low, high = sums[:, 0].view(np.uint64), sums[:, 1]
    ordinary = low.astype(np.float64) + high.astype(np.float64) * float(2**64 - 1)
    small = -((~low).astype(np.float64)) - 1.0
    return np.where(high == -1, small, ordinary)
