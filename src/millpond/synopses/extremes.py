"""The least and the greatest key of each group, where keys come and never go.

What only grows needs no more of a group than its two ends, however many keys came: the state of an
extreme over a monotonic input is as large as its answer (update patterns, section 5.4). The methods
are those of `OrderedMultisets`, which has to keep every key because any may leave.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from millpond.model.compiled import READ_I64, compiled
from millpond.synopses.mapped_memory import allocate_like
from millpond.synopses.multiset_walks import GREATEST, LEAST

Ints = npt.NDArray[np.int64]
_ENDS = types.Array(types.int64, 2, "C")


@compiled(
    types.int64(READ_I64, READ_I64, READ_I64, READ_I64, READ_I64, READ_I64, READ_I64, _ENDS, _ENDS)
)
def _walk(order, bounds, starts, groups, weights, keys, picks, ends, trace):  # type: ignore[no-untyped-def]
    """Apply additions and pick; 0 if there is a removal among them."""
    last = len(picks)
    for t in range(len(groups)):
        own = ends[groups[t]]
        place = starts[t] + t
        for c in range(starts[t], starts[t + 1] + 1):
            for i in range(last):
                trace[place, i] = own[0] if picks[i] == LEAST else own[1]
            trace[place, last] = own[2]
            if c == starts[t + 1]:
                break
            for j in range(bounds[c], bounds[c + 1]):
                if weights[j] == 0:
                    continue
                if weights[j] < 0:
                    return 0
                key = keys[order[j]]
                if own[2] == 0 or key < own[0]:
                    own[0] = key
                if own[2] == 0 or key > own[1]:
                    own[1] = key
                own[2] = 1
            place += 1
    return 1


class Extremes:
    """The least and the greatest of the int64 keys of each group."""

    #: The kinds of picks that it can give.
    KINDS = frozenset((LEAST, GREATEST))

    def __init__(self) -> None:
        #: By group: the least key, the greatest, and 1 if there are any.
        self._ends: Ints = np.zeros((0, 3), np.int64)

    def reserve(self, groups: int) -> None:
        """Make room for groups."""
        held = len(self._ends)
        if groups > held:
            grown = allocate_like(self._ends, (max(groups, 2 * held), 3), 0)
            grown[:held] = self._ends
            self._ends = grown

    def walk(self, cells: Any, weights: Ints, keys: Ints, picks: Ints, shares: object) -> Ints:
        """Apply a batch's additions and pick; as `OrderedMultisets.walk` with kinds of `KINDS`.

        The last column of what it returns is 1 where a group has keys, and not their number.
        """
        trace = np.zeros((cells.places, len(picks) + 1), np.int64)
        if not _walk(*cells.walked, weights, keys, picks, self._ends, trace):
            raise AssertionError("a negative tuple where rows only come")
        return trace

    def renumber(self, moved: Ints, groups: int) -> None:
        """Move group i's keys to group moved[i]; those with −1 have none."""
        fresh = allocate_like(self._ends, (groups, 3), 0)
        kept = moved[: len(self._ends)]
        fresh[kept[kept >= 0]] = self._ends[: len(kept)][kept >= 0]
        self._ends = fresh

    def rekey(self, old: Ints, new: Ints) -> None:
        """Replace keys by others in the same order; all keys in use are among `old`, ascending."""
        held = self._ends[:, 2] > 0
        some = self._ends[held, :2]
        self._ends[held, :2] = new[np.searchsorted(old, some)]

    def list_keys(self) -> Ints:
        """List the keys that are kept."""
        return self._ends[self._ends[:, 2] > 0, :2].ravel()

    def size(self) -> int:
        """Bytes kept."""
        return self._ends.nbytes
