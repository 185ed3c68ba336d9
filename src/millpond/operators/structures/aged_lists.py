"""Rows by key in the order of their age, and which of them are the youngest: what a negation keeps.

For each key a list of rows, oldest first, and a number v2: given is what lies behind the first v2.
So whatever comes or goes changes what is given by one row at most:

    a row is put at p        it is given if p ≥ v2; else the row that moves to v2 is
    a row is taken from p    it is no longer given if p ≥ v2; else the row that was at v2 is not
    v2 grows, or shrinks     the row at v2 is not given any more, or the row at v2 − 1 is again

Lists lie in one array, each in a stretch with room at its end; rows mostly come at the end and go
from the front, so that few are moved. Changes at one instant count together.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.operators.protocol.delta import Bools, Ints
from millpond.operators.structures.row_store import grow_array

#: Room a list gets beyond twice its length.
_SPARE = 4
#: Changes at one instant of one key that are looked through for pairs that cancel.
_FEW = 64


@njit(inline="always")
def _find_place(pool, begin, length, row, age, tie):  # type: ignore[no-untyped-def]
    """Where a row is, or would be put: behind all that are older."""
    low, high = 0, length
    while low < high:
        middle = (low + high) // 2
        other = pool[begin + middle]
        older = age[other] < age[row] or (age[other] == age[row] and tie[other] < tie[row])
        if older:
            low = middle + 1
        else:
            high = middle
    return low


@compiled(types.int64(READ_I64, READ_I64, I64, I64, I64, I64, I64, types.int64))
def _make_room(keys, more, pool, begin, length, first, room, end):  # type: ignore[no-untyped-def]
    """Gives each key room for so many rows more; gives where the array's used part ends."""
    for i in range(len(keys)):
        key = keys[i]
        needed = length[key] + more[i]
        if begin[key] + needed <= first[key] + room[key]:
            continue
        target = first[key]
        # Rows are moved down only when as many have left as stay: else moving has no end.
        if 2 * needed > room[key]:
            target = end
            first[key] = end
            room[key] = 2 * needed + 4
            end += room[key]
        for k in range(length[key]):
            pool[target + k] = pool[begin[key] + k]
        begin[key] = target
    return end


@njit(inline="never")
def _cancel_pairs(out_row, out_at, out_sign, low, high):  # type: ignore[no-untyped-def]
    """Takes out pairs of one row given and taken back at one instant."""
    for i in range(low, high):
        for j in range(i + 1, high):
            if out_row[i] == out_row[j] and out_sign[i] + out_sign[j] == 0:
                out_sign[i] = out_sign[j] = 0
                break
    kept = low
    for i in range(low, high):
        if out_sign[i] != 0:
            out_row[kept], out_at[kept], out_sign[kept] = out_row[i], out_at[i], out_sign[i]
            kept += 1
    return kept


@compiled(types.int64(*[READ_I64] * 8, *[I64] * 8))
def _follow(  # type: ignore[no-untyped-def]
    order,
    starts,
    which,
    at,
    weight,
    rows,
    age,
    tie,
    pool,
    begin,
    length,
    fewer,
    copies,
    out_row,
    out_at,
    out_sign,
):
    """Runs each key through its changes; notes what is given and what no longer.

    A change of row -1 is one of v2. Within an instant rows come before they go, for a row may come
    and go at one.
    """
    found = 0
    for g in range(len(which)):
        key = which[g]
        lo = starts[g]
        while lo < starts[g + 1]:
            now = at[order[lo]]
            hi = lo
            while hi < starts[g + 1] and at[order[hi]] == now:
                hi += 1
            noted = found
            for sign in (1, -1):
                for i in range(lo, hi):
                    change = weight[order[i]]
                    row = rows[order[i]]
                    if row < 0 or change * sign <= 0:
                        continue
                    for _ in range(abs(change)):
                        start, many = begin[key], length[key]
                        bar = max(fewer[key], 0)
                        p = _find_place(pool, start, many, row, age, tie)
                        if sign > 0:
                            for k in range(start + many, start + p, -1):
                                pool[k] = pool[k - 1]
                            pool[start + p] = row
                            length[key] = many + 1
                            moved = row if p >= bar else -1
                            if p < bar and bar <= many:
                                moved = pool[start + bar]
                        else:
                            if p >= many or pool[start + p] != row:
                                continue
                            moved = row if p >= bar else -1
                            if p < bar and bar < many:
                                moved = pool[start + bar]
                            if 2 * p < many:
                                for k in range(start + p, start, -1):
                                    pool[k] = pool[k - 1]
                                begin[key] = start + 1
                            else:
                                for k in range(start + p, start + many - 1):
                                    pool[k] = pool[k + 1]
                            length[key] = many - 1
                        copies[row] += sign
                        if moved >= 0:
                            out_row[found], out_at[found], out_sign[found] = moved, now, sign
                            found += 1
            for i in range(lo, hi):
                if rows[order[i]] >= 0:
                    continue
                change = weight[order[i]]
                sign = 1 if change > 0 else -1
                for _ in range(abs(change)):
                    bar = fewer[key] if change > 0 else fewer[key] - 1
                    fewer[key] += sign
                    if 0 <= bar < length[key]:
                        out_row[found] = pool[begin[key] + bar]
                        out_at[found], out_sign[found] = now, -sign
                        found += 1
            if 1 < found - noted <= _FEW:
                found = _cancel_pairs(out_row, out_at, out_sign, noted, found)
            lo = hi
    return found


class AgedLists:
    """Lists of rows by key, and v2 of each key.

    Attributes:
        copies: How often each row is in a list, by its number.
        fewer: v2 by key.
    """

    def __init__(self) -> None:
        self.copies: Ints = np.zeros(0, np.int64)
        self.fewer: Ints = np.zeros(0, np.int64)
        self._pool: Ints = np.zeros(0, np.int64)
        self._end = 0
        self._begin: Ints = np.zeros(0, np.int64)
        self._length: Ints = np.zeros(0, np.int64)
        self._first: Ints = np.zeros(0, np.int64)
        self._room: Ints = np.zeros(0, np.int64)

    def follow(
        self,
        groups: tuple[Ints, Ints, Ints],
        keys: int,
        changes: tuple[Ints, Ints, Ints],
        ranks: tuple[Ints, Ints],
    ) -> tuple[Ints, Ints, Ints]:
        """Takes in changes; gives rows, instants and signs of what is given differently.

        Args:
            groups: The changes' places by key in the order of time, as of `group_rows.group_rows`.
            keys: How many keys there are.
            changes: Instant, weight and row of each; row -1 for a change of v2.
            ranks: By row, its age, and what decides between rows of one key and age.
        """
        order, starts, which = groups
        at, weight, rows = changes
        for name in ("fewer", "_begin", "_length", "_first", "_room"):
            setattr(self, name, grow_array(getattr(self, name), keys, 0))
        self.copies = grow_array(self.copies, len(ranks[0]), 0)
        coming = np.where(rows >= 0, np.maximum(weight, 0), 0)[order]
        more = np.add.reduceat(coming, starts[:-1])
        self._make_room(which, more)
        out = [np.empty(int(np.abs(weight).sum()), np.int64) for _ in range(3)]
        arguments = (order, starts, which, at, weight, rows, *ranks)
        lists = (self._pool, self._begin, self._length, self.fewer, self.copies)
        count = _follow(*arguments, *lists, *out)
        return out[0][:count], out[1][:count], out[2][:count]

    def _make_room(self, which: Ints, more: Ints) -> None:
        needed = self._end + int((2 * (self._length[which] + more) + _SPARE).sum())
        if needed > len(self._pool) and self._end > 4 * int(self._length.sum()):
            self._lay_out(np.arange(len(self._length)))
            needed = self._end + int((2 * (self._length[which] + more) + _SPARE).sum())
        self._pool = grow_array(self._pool, needed, 0)
        lists = (self._pool, self._begin, self._length, self._first, self._room)
        self._end = _make_room(which, more, *lists, self._end)

    def _lay_out(self, keys: Ints) -> None:
        """Lays the lists of these keys side by side, without the room between."""
        length = self._length[keys]
        begin = np.cumsum(length) - length
        total = int(length.sum())
        places = np.repeat(self._begin[keys] - begin, length) + np.arange(total)
        self._pool = self._pool[places]
        self._end = total
        self._begin, self._first = begin, begin.copy()
        self._length, self._room = length, length.copy()

    def find_used(self, keys: int) -> Bools:
        """Of the first so many keys, which have rows or a v2."""
        return np.asarray((self._length[:keys] > 0) | (self.fewer[:keys] != 0))

    def renumber(self, kept: Bools, moved: Ints) -> None:
        """Takes over new numbers of keys and rows.

        Args:
            kept: Which keys stay, in their order.
            moved: The new number of each row.
        """
        keys = np.flatnonzero(kept)
        self._lay_out(keys)
        self._pool = moved[self._pool]
        self.fewer = self.fewer[keys]
        self.copies = self.copies[: len(moved)][moved >= 0]

    def size(self) -> int:
        """Rows in the lists, and keys with a v2."""
        return int(self._length.sum()) + int((self.fewer != 0).sum())
