"""The least and the greatest key of each group, where keys leave in the order in which they came.

From a window over time rows leave as they came. So a key that came before a smaller one will never
be the least: of each group a queue is kept of the keys that are less than all that came behind
them, and the least of all is in front; and another queue for the greatest. A key that comes drives
the greater ones from the back of the queue, and what leaves can only be in front, so a change costs
a constant on the average, where a tree of all keys costs its height. Of n keys in random order a
queue has about ln n.

A key is known by its number among those that came, so what leaves need not be looked for. Keys of
one instant may leave in any order, as they leave together (INV-CELLS-1). The methods are those of
`OrderedMultisets`, for keys that leave in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import int64, types

from millpond.model.compiled import I64, READ_I64, called, compiled
from millpond.synopses.mapped_memory import allocate_like, grow_array
from millpond.synopses.multiset_walks import GREATEST, LEAST

Ints = npt.NDArray[np.int64]
_TABLE = types.Array(types.int64, 2, "C")
#: The columns of a group: the first and the last node of the least keys' queue, and of the
#: greatest keys' queue; how many keys came, and how many left.
_FRONT, _BACK, _CAME, _LEFT = 0, 1, 4, 5
#: The columns of a node: its key, the number of its last copy, the nodes behind and before it.
_KEY, _NUMBER, _BEHIND, _BEFORE = range(4)
#: So many nodes are made at first.
_ROOM = 64


@called
def _pick(group, picks, nodes, out):  # type: ignore[no-untyped-def]
    out[len(picks)] = group[_CAME] - group[_LEFT]
    for i in range(len(picks)):
        front = group[_FRONT] if picks[i] == LEAST else group[_FRONT + 2]
        out[i] = nodes[front, _KEY] if front >= 0 else 0


@called
def _add(group, key, times, nodes, free, state):  # type: ignore[no-untyped-def]
    group[_CAME] += times
    for queue in range(0, 4, 2):
        back = group[queue + _BACK]
        while back >= 0 and (nodes[back, _KEY] >= key if queue == 0 else nodes[back, _KEY] <= key):
            free[state[0]] = back
            state[0] += 1
            back = nodes[back, _BEFORE]
        state[0] -= 1
        node = free[state[0]]
        nodes[node, _KEY] = key
        nodes[node, _NUMBER] = group[_CAME]
        nodes[node, _BEHIND] = -1
        nodes[node, _BEFORE] = back
        if back >= 0:
            nodes[back, _BEHIND] = node
        else:
            group[queue + _FRONT] = node
        group[queue + _BACK] = node


@called
def _drop_left(group, nodes, free, state):  # type: ignore[no-untyped-def]
    """Drop the nodes of keys of which no copy is left."""
    for queue in range(0, 4, 2):
        front = group[queue + _FRONT]
        while front >= 0 and nodes[front, _NUMBER] <= group[_LEFT]:
            free[state[0]] = front
            state[0] += 1
            front = nodes[front, _BEHIND]
        group[queue + _FRONT] = front
        if front >= 0:
            nodes[front, _BEFORE] = -1
        else:
            group[queue + _BACK] = -1


@compiled(
    types.int64(*(READ_I64,) * 7, _TABLE, I64, I64, _TABLE, I64, _TABLE),
)
def _walk(  # type: ignore[no-untyped-def]
    order, bounds, starts, groups, weights, keys, picks, nodes, free, state, ends, position, trace
):
    """Apply changes and pick: 1 when done, 0 when nodes run out (call again), -1: too much leaves.

    `position` says where to go on: the touched group, the cell in it (if any of it was applied),
    and the change in that cell.
    """
    for t in range(position[0], len(groups)):
        group = ends[groups[t]]
        c = starts[t]
        resumed = int64(-1)
        if position[2] >= 0:
            c = position[1]
            resumed = position[2]
            position[2] = -1
        else:
            _pick(group, picks, nodes, trace[c + t])
        while c < starts[t + 1]:
            for j in range(bounds[c] if resumed < 0 else resumed, bounds[c + 1]):
                if weights[j] > 0:
                    if state[0] < 2:
                        position[0] = t
                        position[1] = c
                        position[2] = j
                        return 0
                    _add(group, keys[order[j]], weights[j], nodes, free, state)
            resumed = -1
            before = group[_LEFT]
            for j in range(bounds[c], bounds[c + 1]):
                if weights[j] < 0:
                    group[_LEFT] -= weights[j]
            if group[_LEFT] > group[_CAME]:
                return -1
            if group[_LEFT] > before:
                _drop_left(group, nodes, free, state)
            _pick(group, picks, nodes, trace[c + t + 1])
            c += 1
    return 1


@compiled(types.void(_TABLE, _TABLE, I64, I64))
def _free_queues(ends, nodes, free, state):  # type: ignore[no-untyped-def]
    """Free the nodes of groups."""
    for g in range(len(ends)):
        for queue in range(0, 4, 2):
            node = ends[g, queue + _FRONT]
            while node >= 0:
                free[state[0]] = node
                state[0] += 1
                node = nodes[node, _BEHIND]


class FifoExtremes:
    """The least and the greatest of the int64 keys of each group, which leave as they came."""

    #: The kinds of picks that it can give.
    KINDS = frozenset((LEAST, GREATEST))

    def __init__(self) -> None:
        self._nodes: Ints = np.zeros((_ROOM, 4), np.int64)
        # Numbers of free nodes, a stack, and how high it is.
        self._free: Ints = np.arange(_ROOM)
        self._state = np.array([_ROOM])
        self._groups: Ints = np.zeros((0, 6), np.int64)

    def reserve(self, groups: int) -> None:
        """Make room for groups."""
        held = len(self._groups)
        if groups > held:
            grown = self._make_groups(max(groups, 2 * held))
            grown[:held] = self._groups
            self._groups = grown

    def walk(self, cells: Any, weights: Ints, keys: Ints, picks: Ints, shares: object) -> Ints:
        """Apply a batch's changes and pick; as `OrderedMultisets.walk` with kinds of `KINDS`."""
        trace = np.zeros((cells.places, len(picks) + 1), np.int64)
        position = np.array([0, 0, -1])
        while True:
            done = _walk(
                *cells.walked,
                weights,
                keys,
                picks,
                self._nodes,
                self._free,
                self._state,
                self._groups,
                position,
                trace,
            )
            if done < 0:
                raise AssertionError("a negative tuple for a row that is not there")
            if done:
                return trace
            self._make_room()

    def renumber(self, moved: Ints, groups: int) -> None:
        """Move group i's keys to group moved[i]; those with −1 have none."""
        fresh = self._make_groups(groups)
        numbers = moved[: len(self._groups)]
        stays = numbers >= 0
        held = self._groups[: len(numbers)]
        fresh[numbers[stays]] = held[stays]
        _free_queues(held[~stays], self._nodes, self._free, self._state)
        self._groups = fresh

    def rekey(self, old: Ints, new: Ints) -> None:
        """Replace keys by others in the same order; all keys in use are among `old`, ascending."""
        if len(old):
            keys = self._nodes[:, _KEY]
            keys[...] = new[np.minimum(np.searchsorted(old, keys), len(old) - 1)]

    def size(self) -> int:
        """Bytes kept."""
        return self._nodes.nbytes + self._free.nbytes + self._groups.nbytes

    def _make_groups(self, count: int) -> Ints:
        made: Ints = allocate_like(self._groups, (count, 6))
        made[:, :4] = -1
        return made

    def _make_room(self) -> None:
        held = len(self._nodes)
        nodes = allocate_like(self._nodes, (2 * held, 4))
        nodes[:held] = self._nodes
        free = grow_array(self._free, 2 * held)
        height = int(self._state[0])
        free[height : height + held] = np.arange(held, 2 * held)
        self._state[0] = height + held
        self._nodes, self._free = nodes, free
