"""Rows by key in the order of their age: the state of a negation by attributes.

For each key there is a list of rows, oldest first, and a number v2. The rows after the first v2
are in the output. So each change adds to the output, or takes from it, one row at most:

    a row is put at p        it is output if p ≥ v2; else the row that moves to v2 is output
    a row is taken from p    it is taken back if p ≥ v2; else the row that was at v2 is
    v2 grows, or shrinks     the row at v2 is taken back, or the row at v2 − 1 is output again

Lists lie in one array, each with spare room at its end. Rows mostly come at the end and go from
the front, so few rows are moved. Changes at one instant are applied together.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from millpond.model.compiled import I64, READ_I64, called, compiled
from millpond.operators.protocol.delta import Bools, Ints
from millpond.synopses.mapped_memory import grow_array

#: Spare room of a list beyond twice its length.
_SPARE = 4
#: Changes of one key at one instant up to which a scan looks for pairs that cancel.
_FEW = 64


@njit(inline="always")
def _find_place(pool, begin, length, row, age, tie):  # type: ignore[no-untyped-def]
    """Find the place of a row, or the place to put it: after all older rows."""
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
    """Make room for `more` rows of each key; return where the array's used part ends."""
    for i in range(len(keys)):
        key = keys[i]
        needed = length[key] + more[i]
        if begin[key] + needed <= first[key] + room[key]:
            continue
        target = first[key]
        # Rows move down only when as many have left as stay: else every step would move all rows.
        if 2 * needed > room[key]:
            target = end
            first[key] = end
            room[key] = 2 * needed + 4
            end += room[key]
        for k in range(length[key]):
            pool[target + k] = pool[begin[key] + k]
        begin[key] = target
    return end


@called
def _cancel_pairs(out_row, out_at, out_sign, low, high):  # type: ignore[no-untyped-def]
    """Remove pairs that output a row and take it back at one instant."""
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
    """Apply each key's changes; note the rows that are output and taken back.

    A change with row -1 changes v2. Within an instant rows come before they go, for one row may
    come and go at one instant.
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
        """Take in changes; return rows, instants and signs of the changes of the output.

        Args:
            groups: The changes' places by key in time order, as `group_rows.group_rows` returns.
            keys: The number of keys.
            changes: Instant, weight and row of each; row -1 for a change of v2.
            ranks: By row, its age, and its rank among the rows of one key and age.
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
        """Lay the lists of these keys side by side, without spare room between."""
        length = self._length[keys]
        begin = np.cumsum(length) - length
        total = int(length.sum())
        places = np.repeat(self._begin[keys] - begin, length) + np.arange(total)
        self._pool = self._pool[places]
        self._end = total
        self._begin, self._first = begin, begin.copy()
        self._length, self._room = length, length.copy()

    def find_used(self, keys: int) -> Bools:
        """Find which of the first `keys` keys have rows or a v2."""
        return np.asarray((self._length[:keys] > 0) | (self.fewer[:keys] != 0))

    def renumber(self, kept: Bools, moved: Ints) -> None:
        """Take over new numbers of keys and rows.

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
