"""Ordered multisets of 64-bit keys, one for each group: a counted B+ tree.

They give the least and greatest key, the k-th in order, and the number of distinct keys, each in
time logarithmic in what the group holds, while keys come and go in any order. For the extremes of
keys that leave as they came, or never, `fifo_extremes` and `extremes` keep less.

All groups' trees (`counted_tree`) share one pool of nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from millpond.synopses.counted_tree import RESERVE, WIDTH
from millpond.synopses.mapped_memory import allocate_like
from millpond.synopses.multiset_walks import find_transitions, slide, walk

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

#: The keys of so many nodes are replaced at a time, where they lie.
_NODES_AT_ONCE = 4_096


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
        """Make room for groups."""
        held = len(self._roots)
        if groups > held:
            grown = allocate_like(self._roots, (max(groups, 2 * held), 4))
            grown[:, 0] = -1
            grown[:held] = self._roots
            self._roots = grown

    def walk(self, cells: Any, weights: Ints, keys: Ints, picks: Ints, shares: Doubles) -> Ints:
        """Apply a batch's changes and pick from each multiset before and after each cell.

        Args:
            cells: The layout of the batch (`millpond.operators.aggregation.cells.Cells`).
            weights: Of the changes in the order of the cells: how many of the key come (or, if
                negative, go); 0 for a change that does not take part.
            keys: The key of each change of the batch.
            picks: The kinds of picks: `multiset_walks.LEAST` …
            shares: For each pick its quantile, in [0, 1]; arbitrary for other picks.

        Returns:
            int64[places, picks + 1]: for each place of a trace the picks (arbitrary where the
            multiset is empty), and last how many keys the multiset holds.
        """
        trace = np.zeros((cells.places, len(picks) + 1), np.int64)
        position = np.array([0, 0, -1])
        while True:
            self._make_room()
            done = walk(
                *cells.walked,
                weights,
                keys,
                picks,
                shares,
                *self._pool,
                position,
                trace,
            )
            if done < 0:
                raise AssertionError("a negative tuple for a row that is not there")
            if done:
                return trace

    def find_transitions(self, cells: Any, weights: Ints, keys: Ints) -> Ints:
        """Apply a batch's changes; find those that change the set of distinct keys.

        Returns:
            Of the changes in the order of the cells: 1 where a new key came, −1 where the last copy
            of a key went, else 0.
        """
        out = np.zeros(len(weights), np.int64)
        position = np.array([0, 0, -1])
        while True:
            self._make_room()
            done = find_transitions(
                *cells.walked,
                weights,
                keys,
                *self._pool,
                position,
                out,
            )
            if done < 0:
                raise AssertionError("a negative tuple for a row that is not there")
            if done:
                return out

    def slide(
        self, at: Ints, weights: Ints, keys: Ints, skip: int, room: int
    ) -> tuple[Ints, Ints, Ints]:
        """Apply changes to group 0's multiset; return how a range of its order changes.

        It costs what changes, and not how long the range is.

        Args:
            at: The instant of each change, ascending.
            weights: How many of the key come or, if negative, go.
            keys: The key of each change.
            skip: How many keys, copies counted, are before the range.
            room: How many keys, copies counted, are in the range at most; skip + room < 2⁶³.

        Returns:
            Instants, keys, and how many more (or fewer) of each the range holds from then on.
        """
        length = 1024
        position = np.array([0, -1, 0, -1, 0])
        watched = np.empty((length, 2), np.int64)
        parts: list[tuple[Ints, ...]] = []
        while True:
            self._make_room()
            out = tuple(np.empty(length, np.int64) for _ in range(3))
            position[2] = 0
            done = slide(at, weights, keys, skip, room, *self._pool, position, watched, *out)
            parts.append(tuple(column[: position[2]] for column in out))
            if done < 0:
                raise AssertionError("a negative tuple for a row that is not there")
            if done:
                instants, moved, by = (
                    np.concatenate(column) for column in zip(*parts, strict=True)
                )
                return instants, moved, by
            length = max(2 * length, int(position[4]))
            if len(watched) < position[4]:
                watched = np.empty((length, 2), np.int64)

    def renumber(self, moved: Ints, groups: int) -> None:
        """Move group i's multiset to group moved[i]; those with −1 are empty."""
        fresh = allocate_like(self._roots, (groups, 4))
        fresh[:, 0] = -1
        kept = moved[: len(self._roots)]
        fresh[kept[kept >= 0]] = self._roots[: len(kept)][kept >= 0]
        self._roots = fresh

    def rekey(self, old: Ints, new: Ints) -> None:
        """Replace keys by others in the same order.

        Args:
            old: Every key in use, ascending.
            new: The new key of each, ascending.
        """
        if not len(old):
            return
        for first in range(0, len(self._keys), _NODES_AT_ONCE):
            some = self._keys[first : first + _NODES_AT_ONCE]
            some[...] = new[np.minimum(np.searchsorted(old, some), len(old) - 1)]

    def size(self) -> int:
        """Bytes kept."""
        arrays = (self._keys, self._counts, self._child, self._sizes, self._free, self._roots)
        return sum(a.nbytes for a in arrays)

    @property
    def nodes(self) -> int:
        """Nodes in use."""
        return len(self._sizes) - int(self._state[0])

    @property
    def _pool(self) -> tuple[npt.NDArray[Any], ...]:
        """The nodes and the roots, as the walks take them."""
        return (
            self._keys,
            self._counts,
            self._child,
            self._sizes,
            self._free,
            self._state,
            self._roots,
        )

    def _make_room(self) -> None:
        if self._state[0] >= 4 * RESERVE:
            return
        held = len(self._sizes)
        size = max(8 * RESERVE, 2 * held)
        for name in ("_keys", "_counts", "_child", "_sizes", "_free"):
            array = getattr(self, name)
            grown = allocate_like(array, (size, *array.shape[1:]))
            grown[:held] = array
            setattr(self, name, grown)
        free = int(self._state[0])
        self._free[free : free + size - held] = np.arange(size - 1, held - 1, -1)
        self._state[0] += size - held
