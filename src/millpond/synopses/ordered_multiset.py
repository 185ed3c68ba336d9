"""Ordered multisets of 64-bit keys, one for each group: a counted B+ tree.

Least and greatest, the k-th in order, and how many are distinct, each in time logarithmic in what
the group holds, while keys come and go in any order. A window's expirations take out the oldest,
but a group-by's input may lose anything, and a quantile needs the whole order anyway; where only
the extremes of a first-in-first-out window are asked for, a monotonic queue would do.

All groups' trees (`counted_tree`) share one pool of nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import int64, njit, types

from millpond.model.compiled import I64, READ_F64, READ_I64, compiled
from millpond.synopses.counted_tree import (
    RESERVE,
    WIDTH,
    entries,
    extreme,
    insert,
    remove,
    select,
)

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

_KEYS = types.Array(types.int64, 2, "C")
_CHILD = types.Array(types.int32, 2, "C")
_CELLS = (READ_I64, READ_I64, READ_I64)

#: What a pick is: which entry of the order, or how many distinct keys there are.
LEAST, GREATEST, DISTINCT, DISCRETE, BELOW, ABOVE = range(6)


class OrderedMultisets:
    """A multiset of int64 keys for each group."""

    def __init__(self) -> None:
        self._keys = np.zeros((0, WIDTH), np.int64)
        self._counts = np.zeros((0, WIDTH), np.int64)
        self._child = np.zeros((0, WIDTH), np.int32)
        self._sizes = np.zeros(0, np.int64)
        # Numbers of free nodes, a stack, and how high it is.
        self._free = np.zeros(0, np.int64)
        self._state = np.zeros(1, np.int64)
        # By group: the top node (−1: empty), the height, keys with copies, distinct keys.
        self._roots = np.zeros((0, 4), np.int64)

    def reserve(self, groups: int) -> None:
        """Makes room for groups."""
        held = len(self._roots)
        if groups > held:
            grown = np.zeros((max(groups, 2 * held), 4), np.int64)
            grown[:, 0] = -1
            grown[:held] = self._roots
            self._roots = grown

    def walk(self, cells: Any, weights: Ints, keys: Ints, picks: Ints, shares: Doubles) -> Ints:
        """Applies a batch's changes and picks from each multiset before and after each cell.

        Args:
            cells: The layout of the batch (`millpond.operators.cells.Cells`).
            weights: Of the changes in the order of the cells: how many of the key come (or, if
                negative, go); 0 for a change that does not take part.
            keys: The key of each change of the batch.
            picks: What to pick: `LEAST` …
            shares: For each pick its quantile, in [0, 1]; anything where it is none.

        Returns:
            int64[places, picks + 1]: for each place of a trace what was picked (anything where
            the multiset is empty), and last how many the multiset holds.
        """
        trace = np.zeros((cells.places, len(picks) + 1), np.int64)
        position = np.array([0, 0, -1])
        while True:
            self._make_room()
            done = _walk(
                cells.order,
                cells.bounds,
                cells.starts,
                cells.groups,
                weights,
                keys,
                picks,
                shares,
                self._keys,
                self._counts,
                self._child,
                self._sizes,
                self._free,
                self._state,
                self._roots,
                position,
                trace,
            )
            if done < 0:
                raise AssertionError("a negative tuple for a row that is not there")
            if done:
                return trace

    def transitions(self, cells: Any, weights: Ints, keys: Ints) -> Ints:
        """Applies a batch's changes; what they do to the set of distinct keys.

        Returns:
            Of the changes in the order of the cells: 1 where a key came that was not there, −1
            where the last of a key went, else 0.
        """
        out = np.zeros(len(weights), np.int64)
        position = np.array([0, 0, -1])
        while True:
            self._make_room()
            done = _transitions(
                cells.order,
                cells.bounds,
                cells.starts,
                cells.groups,
                weights,
                keys,
                self._keys,
                self._counts,
                self._child,
                self._sizes,
                self._free,
                self._state,
                self._roots,
                position,
                out,
            )
            if done < 0:
                raise AssertionError("a negative tuple for a row that is not there")
            if done:
                return out

    def slide(
        self, at: Ints, weights: Ints, keys: Ints, skip: int, held: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """Applies changes to group 0's multiset; how a range of its order changes.

        Args:
            at: The instant of each change, ascending.
            weights: How many of the key come or go.
            keys: The key of each change.
            skip: How many, copies counted, are before the range.
            held: int64[entries + 1, 2]: what the range holds, keys and counts in order, and last
                how many entries are in use and how many copies. As many entries as the range has
                copies at most. It is brought up to date.

        Returns:
            Instants, keys, and how many more (or fewer) of each the range holds from then on.
        """
        room = max(1024, 4 * len(held))
        position = np.array([0, -1, 0])
        parts: list[tuple[Ints, ...]] = []
        while True:
            self._make_room()
            out = tuple(np.empty(room, np.int64) for _ in range(3))
            position[2] = 0
            done = _slide(
                at,
                weights,
                keys,
                skip,
                held,
                self._keys,
                self._counts,
                self._child,
                self._sizes,
                self._free,
                self._state,
                self._roots,
                position,
                *out,
            )
            parts.append(tuple(column[: position[2]] for column in out))
            if done < 0:
                raise AssertionError("a negative tuple for a row that is not there")
            if done:
                instants, moved, by = (
                    np.concatenate(column) for column in zip(*parts, strict=True)
                )
                return instants, moved, by
            room *= 2

    def renumber(self, moved: Ints, groups: int) -> None:
        """Puts group i's multiset where group moved[i]'s is; those with −1 are empty."""
        fresh = np.zeros((groups, 4), np.int64)
        fresh[:, 0] = -1
        kept = moved[: len(self._roots)]
        fresh[kept[kept >= 0]] = self._roots[: len(kept)][kept >= 0]
        self._roots = fresh

    def rekey(self, old: Ints, new: Ints) -> None:
        """Replaces keys by others in the same order.

        Args:
            old: Every key in use, ascending.
            new: What each becomes, ascending.
        """
        if len(old):
            places = np.minimum(np.searchsorted(old, self._keys), len(old) - 1)
            self._keys = new[places]

    def size(self) -> int:
        """Bytes kept."""
        arrays = (self._keys, self._counts, self._child, self._sizes, self._free, self._roots)
        return sum(a.nbytes for a in arrays)

    @property
    def nodes(self) -> int:
        """Nodes in use."""
        return len(self._sizes) - int(self._state[0])

    def _make_room(self) -> None:
        if self._state[0] >= 4 * RESERVE:
            return
        held = len(self._sizes)
        size = max(8 * RESERVE, 2 * held)
        for name in ("_keys", "_counts", "_child", "_sizes", "_free"):
            array = getattr(self, name)
            grown = np.zeros((size, *array.shape[1:]), array.dtype)
            grown[:held] = array
            setattr(self, name, grown)
        free = int(self._state[0])
        self._free[free : free + size - held] = np.arange(size - 1, held - 1, -1)
        self._state[0] += size - held


_POOL = (_KEYS, _KEYS, _CHILD, I64, I64, I64, types.Array(types.int64, 2, "C"))


@njit(inline="never")
def _pick(root, picks, shares, keys, counts, child, sizes, out):  # type: ignore[no-untyped-def]
    total = root[2]
    out[len(picks)] = total
    if total == 0:
        for i in range(len(picks)):
            out[i] = 0
        return
    for i in range(len(picks)):
        kind = picks[i]
        if kind == 0:
            out[i] = extreme(root, False, keys, child, sizes)
        elif kind == 1:
            out[i] = extreme(root, True, keys, child, sizes)
        elif kind == 2:
            out[i] = root[3]
        else:
            share = shares[i]
            if kind == 3:
                # DuckDB's discrete quantile: the first with at least that share up to it.
                rank = int64(max(1, total - int64(np.floor(total - share * total))) - 1)
            else:
                exact = (total - 1) * share
                rank = int64(np.floor(exact) if kind == 4 else np.ceil(exact))
            out[i] = select(root, rank, keys, counts, child, sizes)


@compiled(
    types.int64(READ_I64, *_CELLS, READ_I64, READ_I64, READ_I64, READ_F64, *_POOL, I64, _KEYS)
)
def _walk(  # type: ignore[no-untyped-def]
    order,
    bounds,
    starts,
    groups,
    weights,
    values,
    picks,
    shares,
    keys,
    counts,
    child,
    sizes,
    free,
    state,
    roots,
    position,
    trace,
):
    """1 when all is done, 0 when nodes run out (call again with more), −1 when a key is missing.

    `position` is where to go on: the touched group, the cell in it (if any of it was applied), and
    the change in that.
    """
    path = np.empty(64, np.int64)
    places = np.empty(64, np.int64)
    for t in range(position[0], len(groups)):
        root = roots[groups[t]]
        c = starts[t]
        resumed = int64(-1)
        if position[2] >= 0:
            c = position[1]
            resumed = position[2]
            position[2] = -1
        else:
            _pick(root, picks, shares, keys, counts, child, sizes, trace[c + t])
        while c < starts[t + 1]:
            # What comes before what goes: then nothing goes that is not there, whatever the order.
            for j in range(bounds[c] if resumed < 0 else resumed, bounds[c + 1]):
                if weights[j] > 0:
                    if state[0] < RESERVE:
                        position[0] = t
                        position[1] = c
                        position[2] = j
                        return 0
                    key = values[order[j]]
                    insert(root, key, weights[j], keys, counts, child, sizes, free, state)
            resumed = -1
            for j in range(bounds[c], bounds[c + 1]):
                if weights[j] < 0:
                    key, times = values[order[j]], -weights[j]
                    if (
                        remove(
                            root, key, times, keys, counts, child, sizes, free, state, path, places
                        )
                        < 0
                    ):
                        return -1
            _pick(root, picks, shares, keys, counts, child, sizes, trace[c + t + 1])
            c += 1
    return 1


@compiled(types.int64(READ_I64, *_CELLS, READ_I64, READ_I64, *_POOL, I64, I64))
def _transitions(  # type: ignore[no-untyped-def]
    order,
    bounds,
    starts,
    groups,
    weights,
    values,
    keys,
    counts,
    child,
    sizes,
    free,
    state,
    roots,
    position,
    out,
):
    """As `_walk`, but tells which changes make a key appear or disappear."""
    path = np.empty(64, np.int64)
    places = np.empty(64, np.int64)
    for t in range(position[0], len(groups)):
        root = roots[groups[t]]
        c = starts[t]
        resumed = int64(-1)
        if position[2] >= 0:
            c = position[1]
            resumed = position[2]
            position[2] = -1
        while c < starts[t + 1]:
            for j in range(bounds[c] if resumed < 0 else resumed, bounds[c + 1]):
                if weights[j] > 0:
                    if state[0] < RESERVE:
                        position[0] = t
                        position[1] = c
                        position[2] = j
                        return 0
                    key = values[order[j]]
                    if insert(root, key, weights[j], keys, counts, child, sizes, free, state):
                        out[j] = 1
            resumed = -1
            for j in range(bounds[c], bounds[c + 1]):
                if weights[j] < 0:
                    key, times = values[order[j]], -weights[j]
                    gone = remove(
                        root, key, times, keys, counts, child, sizes, free, state, path, places
                    )
                    if gone < 0:
                        return -1
                    if gone == 1:
                        out[j] = -1
            c += 1
    return 1


@compiled(types.int64(READ_I64, READ_I64, READ_I64, types.int64, _KEYS, *_POOL, I64, I64, I64, I64))
def _slide(  # type: ignore[no-untyped-def]
    at,
    weights,
    values,
    skip,
    held,
    keys,
    counts,
    child,
    sizes,
    free,
    state,
    roots,
    position,
    out_at,
    out_key,
    out_by,
):
    """1 when all is done, 0 when nodes or room run out (call again), −1 when a key is missing.

    `position`: the instant's first change to go on at, the change in it (or −1), rows of output.
    """
    path = np.empty(64, np.int64)
    places = np.empty(64, np.int64)
    room = len(held) - 1
    fresh = np.empty((room + 1, 2), np.int64)
    root = roots[0]
    n = len(at)
    low = position[0]
    while low < n:
        high = low
        while high < n and at[high] == at[low]:
            high += 1
        if len(out_at) - position[2] < 2 * room:
            position[0] = low
            return 0
        start = position[1] if position[1] >= 0 else low
        position[1] = -1
        for j in range(start, high):
            if weights[j] > 0:
                if state[0] < RESERVE:
                    position[0] = low
                    position[1] = j
                    return 0
                insert(root, values[j], weights[j], keys, counts, child, sizes, free, state)
        for j in range(low, high):
            if weights[j] < 0:
                key, times = values[j], -weights[j]
                gone = remove(
                    root, key, times, keys, counts, child, sizes, free, state, path, places
                )
                if gone < 0:
                    return -1
        size = held[room, 0]
        matters = held[room, 1] < room
        for j in range(low, high):
            if matters or values[j] <= held[size - 1, 0]:
                matters = True
                break
        if matters and room > 0:
            found, copies = entries(
                root, skip, room, keys, counts, child, sizes, path, places, fresh
            )
            i, k, out = int64(0), int64(0), position[2]
            while i < size or k < found:
                by = int64(0)
                if k >= found or (i < size and held[i, 0] < fresh[k, 0]):
                    key, by = held[i, 0], -held[i, 1]
                    i += 1
                elif i >= size or fresh[k, 0] < held[i, 0]:
                    key, by = fresh[k, 0], fresh[k, 1]
                    k += 1
                else:
                    key, by = fresh[k, 0], fresh[k, 1] - held[i, 1]
                    i += 1
                    k += 1
                if by != 0:
                    out_at[out] = at[low]
                    out_key[out] = key
                    out_by[out] = by
                    out += 1
            position[2] = out
            for k in range(found):
                held[k, 0] = fresh[k, 0]
                held[k, 1] = fresh[k, 1]
            held[room, 0] = found
            held[room, 1] = copies
        low = high
    position[0] = n
    return 1
