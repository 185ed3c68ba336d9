"""The keys of each group in their order, all of them, where every one is shown.

`list` and `string_agg` show all rows of a group, so what they give is as long as the group whatever
finds it. What can be saved is to look for the rows anew. The keys of a group lie side by side in
one array, in order, with spare room behind them. A batch merges each touched group's keys with
those that come, and says of every key from which place of the trace up to which it is there
(`KeyHistory`); so any place of the trace can be laid out later, and no place has to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.synopses.mapped_memory import allocate_like, grow_array

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_BOOLS = types.Array(types.boolean, 1, "C")
#: Spare room of a list beyond twice its length.
_SPARE = 4


@compiled(types.int64(*(READ_I64,) * 10, I64, I64, I64, I64, I64))
def _merge(  # type: ignore[no-untyped-def]
    groups, starts, owners, places, weights, keys, by_key, pool, begin, length,
    out_keys, enters, leaves, out_starts, left,
):  # fmt: skip
    """Merge the keys of groups with a batch's; return how many there are, −1 if too much leaves."""
    out = 0
    j = 0
    for t in range(len(groups)):
        first = starts[t] + t
        end = starts[t + 1] + t + 1
        h = begin[groups[t]]
        last = h + length[groups[t]]
        out_starts[t] = out
        stay = 0
        while h < last or (j < len(by_key) and owners[by_key[j]] == t):
            own = out
            key = pool[h] if h < last else keys[by_key[j]]
            if j < len(by_key) and owners[by_key[j]] == t:
                key = min(key, keys[by_key[j]])
            while h < last and pool[h] == key:
                out_keys[out], enters[out], leaves[out] = key, first, end
                out += 1
                h += 1
            while j < len(by_key) and owners[by_key[j]] == t and keys[by_key[j]] == key:
                place = places[by_key[j]]
                net = 0
                while (
                    j < len(by_key)
                    and owners[by_key[j]] == t
                    and keys[by_key[j]] == key
                    and places[by_key[j]] == place
                ):
                    net += weights[by_key[j]]
                    j += 1
                for _ in range(net):
                    out_keys[out], enters[out], leaves[out] = key, place, end
                    out += 1
                i = own
                while net < 0:
                    while i < out and leaves[i] != end:
                        i += 1
                    if i == out:
                        return -1
                    leaves[i] = place
                    net += 1
            for i in range(own, out):
                stay += leaves[i] == end
        left[t] = stay
    out_starts[len(groups)] = out
    return out


@compiled(types.void(READ_I64, READ_I64, READ_I64, READ_I64, READ_I64, I64, READ_I64))
def _write_back(groups, starts, out_starts, keys, leaves, pool, begin):  # type: ignore[no-untyped-def]
    for t in range(len(groups)):
        place = begin[groups[t]]
        end = starts[t + 1] + t + 1
        for i in range(out_starts[t], out_starts[t + 1]):
            if leaves[i] == end:
                pool[place] = keys[i]
                place += 1


@compiled(types.void(READ_I64, READ_I64, READ_I64, READ_I64, READ_I64, I64))
def _lay_out(places, owners, starts, enters, leaves, entries):  # type: ignore[no-untyped-def]
    """List the entries that are there at some places."""
    out = 0
    for i in range(len(places)):
        for entry in range(starts[owners[i]], starts[owners[i] + 1]):
            if enters[entry] <= places[i] < leaves[entry]:
                entries[out] = entry
                out += 1


@compiled(types.void(READ_I64, READ_I64, READ_I64, READ_I64, READ_I64, READ_I64, _BOOLS))
def _compare(places, owners, starts, enters, leaves, values, differs):  # type: ignore[no-untyped-def]
    """Compare what is at some places with what is at the places behind them."""
    for n in range(len(places)):
        place = places[n]
        end = starts[owners[n] + 1]
        one = starts[owners[n]]
        other = one
        while True:
            while one < end and not enters[one] <= place < leaves[one]:
                one += 1
            while other < end and not enters[other] <= place + 1 < leaves[other]:
                other += 1
            if one == end or other == end:
                differs[n] = one != other
                break
            if values[one] != values[other]:
                differs[n] = True
                break
            one += 1
            other += 1


@dataclass(frozen=True, eq=False)
class KeyHistory:
    """The keys of a batch's groups, and at which places of the trace each is there.

    Attributes:
        keys: int64, group by group, ascending.
        starts: Where the keys of each group begin, and last the number of keys.
        enters, leaves: The place from which each key is there, and the first at which it is not.
        first: The first place of each group.
        counts: How many keys there are at each place.
    """

    keys: Ints
    starts: Ints
    enters: Ints
    leaves: Ints
    first: Ints
    counts: Ints

    def lay_out(self, places: Ints) -> tuple[Ints, Ints]:
        """List the keys at some places.

        Returns:
            Where those of each place begin, and last how many there are; and the keys, by their
            places in `keys`.
        """
        offsets = np.zeros(len(places) + 1, np.int64)
        np.cumsum(self.counts.take(places), out=offsets[1:])
        entries = np.empty(int(offsets[-1]), np.int64)
        places = np.ascontiguousarray(places)
        _lay_out(places, self._find_groups(places), self.starts, self.enters, self.leaves, entries)
        return offsets, entries

    def compare(self, places: Ints, values: Ints) -> Bools:
        """Find at which of some places the values differ from those of the place behind.

        Args:
            places: Places that are not the last of a group.
            values: A number for each of `keys`, equal for equal values.
        """
        differs = np.zeros(len(places), np.bool_)
        places = np.ascontiguousarray(places)
        owners = self._find_groups(places)
        _compare(places, owners, self.starts, self.enters, self.leaves, values, differs)
        return differs

    def _find_groups(self, places: Ints) -> Ints:
        return np.searchsorted(self.first, places, side="right") - 1


class KeyLists:
    """The int64 keys of each group, in order, each as often as it came."""

    def __init__(self) -> None:
        self._pool: Ints = np.zeros(0, np.int64)
        self._end = 0
        #: By group: where its keys begin, how many there are, and how many have room.
        self._begin: Ints = np.zeros(0, np.int64)
        self._length: Ints = np.zeros(0, np.int64)
        self._room: Ints = np.zeros(0, np.int64)

    def reserve(self, groups: int) -> None:
        """Make room for groups."""
        for name in ("_begin", "_length", "_room"):
            setattr(self, name, grow_array(getattr(self, name), groups, 0))

    def walk(self, cells: Any, weights: Ints, keys: Ints) -> KeyHistory:
        """Apply a batch's changes.

        Args:
            cells: The changes' layout (`operators.aggregation.cells.Cells`).
            weights: How many of each key come or go, in the order of the cells.
            keys: The key of each change, by its place in the batch.
        """
        groups, starts = cells.groups, cells.starts
        of_cells = np.repeat(np.arange(len(groups)), np.diff(starts))
        owners = np.repeat(of_cells, np.diff(cells.bounds))
        places = np.repeat(np.arange(len(of_cells)) + of_cells + 1, np.diff(cells.bounds))
        own = keys.take(cells.order)
        takes = np.flatnonzero(weights)
        by_key = takes.take(np.lexsort((own.take(takes), owners.take(takes))))
        most = int(self._length.take(groups).sum() + np.maximum(weights, 0).sum())
        found, enters, leaves = (np.empty(most, np.int64) for _ in range(3))
        out_starts, left = np.empty(len(groups) + 1, np.int64), np.empty(len(groups), np.int64)
        count = _merge(
            groups, starts, owners, places, np.ascontiguousarray(weights), own, by_key,
            self._pool, self._begin, self._length, found, enters, leaves, out_starts, left,
        )  # fmt: skip
        if count < 0:
            raise AssertionError("a negative tuple for a row that is not there")
        found, enters, leaves = found[:count], enters[:count], leaves[:count]
        self._make_room(groups, left)
        _write_back(groups, starts, out_starts, found, leaves, self._pool, self._begin)
        counts = np.bincount(enters, minlength=cells.places + 1)
        counts -= np.bincount(leaves, minlength=cells.places + 1)
        first = starts[:-1] + np.arange(len(groups))
        return KeyHistory(found, out_starts, enters, leaves, first, np.cumsum(counts)[:-1])

    def _make_room(self, groups: Ints, lengths: Ints) -> None:
        """Make room for so many keys of groups, whose keys are not kept, and set their lengths."""
        self._length[groups] = 0
        moves = lengths > self._room.take(groups)
        rooms = 2 * lengths[moves] + _SPARE
        more = int(rooms.sum())
        if self._end + more > len(self._pool) and self._end > 2 * int(self._length.sum()):
            held = groups[~moves]
            self._length[held] = lengths[~moves]
            self._lay_out()
        self._pool = grow_array(self._pool, self._end + more, 0)
        self._begin[groups[moves]] = self._end + np.cumsum(rooms) - rooms
        self._room[groups[moves]] = rooms
        self._end += more
        self._length[groups] = lengths

    def _lay_out(self) -> None:
        """Lay the lists side by side, without spare room."""
        length = self._length
        begin = np.cumsum(length) - length
        total = int(length.sum())
        places = np.repeat(self._begin - begin, length) + np.arange(total)
        pool = allocate_like(self._pool, max(total, _SPARE))
        np.take(self._pool, places, out=pool[:total])
        self._pool, self._end = pool, total
        self._begin, self._room = begin, length.copy()

    def renumber(self, moved: Ints, groups: int) -> None:
        """Move group i's keys to group moved[i]; those with −1 have none."""
        count = min(len(moved), len(self._length))
        stays = np.flatnonzero(moved[:count] >= 0)
        for name in ("_begin", "_length", "_room"):
            held = getattr(self, name)
            fresh = allocate_like(held, groups, 0)
            fresh[moved[stays]] = held[stays]
            setattr(self, name, fresh)

    def rekey(self, old: Ints, new: Ints) -> None:
        """Replace keys by others in the same order; all keys in use are among `old`, ascending."""
        if len(old):
            places = np.minimum(np.searchsorted(old, self._pool), len(old) - 1)
            np.take(new, places, out=self._pool)

    def size(self) -> int:
        """Bytes kept."""
        arrays = (self._pool, self._begin, self._length, self._room)
        return sum(array.nbytes for array in arrays)
