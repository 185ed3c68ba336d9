"""One input of a join of which only sums are wanted: its sums by key, in place of its rows.

`SUM(x)` and `COUNT(*)` over pairs need no pairs. They are bilinear in the two inputs, so rows with
equal keys and equal further columns can be one **lump**: how many rows, and for each summed column
how many values and their sum. A row of the other input meets the lumps of its key, and not the
rows; so a key that a million rows have costs as much as one that a single row has. (Eager
aggregation: Yan and Larson, VLDB 1995; sums as a ring: Nikolic and Olteanu, SIGMOD 2018.)

A lump is written as rows that have the same sums: one of zeros for the number of rows, and for each
digit of a sum (`value_digits`) one of the digit's unit. So the operators above are those that get
pairs, and their results are the same, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit, types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.operators.protocol.delta import Bools, Delta, Ints, positional_schema
from millpond.operators.structures.key_numbers import KeyNumbers
from millpond.operators.structures.row_store import RowStore
from millpond.operators.structures.value_digits import BITS, SPECIAL, Digits
from millpond.synopses.mapped_memory import allocate_like, choose_like, grow_array

_I64_2D = types.Array(types.int64, 2, "C")
_READ_I64_2D = types.Array(types.int64, 2, "C", readonly=True)
#: Sums of digits, and numbers of copies, stay below.
_MOST = 1 << 62
#: Fewer copies of a row than this need no look at what they add up to.
_FEW_COPIES = 1 << (62 - BITS)
#: Fewer lumps are not looked through for empty ones.
_FEW = 64


class Arrived(NamedTuple):
    """A delta of one side, as `meet` reads it; an entry of each array for each row.

    Attributes:
        numbers: The number of its key.
        lumps: The lump it belongs to.
        adds: int64[rows, …], what it adds to the lump.
    """

    numbers: Ints
    lumps: Ints
    adds: Ints


class SummedSide:
    """One input's lumps, chained by key.

    Attributes:
        exact: The places of the columns by which rows are told apart, keys among them.
        summed: The places of the columns of which sums are kept.
        rows: The exact columns of each lump.
        kept: int64[lumps, …]: how many rows; how many values of each summed column; the digits of
            their sums.
        head, following: The lumps of each key, chained.
        alive: How many lumps have rows.
    """

    def __init__(self, schema: pa.Schema, exact: Sequence[int], summed: Sequence[int]) -> None:
        self.exact, self.summed = tuple(exact), tuple(summed)
        of = [schema.field(p).type for p in self.exact]
        self._lumps = KeyNumbers(of, zeros=True)
        self.rows = RowStore(positional_schema(of))
        self._digits = [Digits(schema.field(p).type) for p in self.summed]
        self.kept = np.zeros((0, self._width), np.int64)
        self.head = np.empty(0, np.int64)
        self.following = np.empty(0, np.int64)
        self._number = np.empty(0, np.int64)
        self._count = 0
        self.alive = 0
        self._look_at = _FEW

    @property
    def _width(self) -> int:
        return 1 + len(self._digits) + int(self.starts[-1])

    @property
    def starts(self) -> Ints:
        """Where the digits of each summed column begin among all digits, and where they end."""
        return np.cumsum([0, *(d.count for d in self._digits)], dtype=np.int64)

    def take_in(self, delta: Delta, numbers: Ints, most: int) -> Arrived:
        """Make room for rows, whose keys' numbers are below `most`; nothing is added up yet.

        Raises:
            OverflowError: as `meet`.
        """
        if self.exact:
            lumps = self._lumps.number([delta.rows.column(p) for p in self.exact])
            self._begin(delta, lumps, numbers, len(self._lumps))
        else:
            lumps = np.zeros(len(delta), np.int64)
            self._begin(delta, lumps, numbers, max(self._count, min(len(delta), 1)))
        self.head = grow_array(self.head, most, -1)
        return Arrived(np.ascontiguousarray(numbers), lumps, self._take_apart(delta))

    def _begin(self, delta: Delta, lumps: Ints, numbers: Ints, count: int) -> None:
        """Make room for so many lumps; note the keys and columns of those that are new."""
        known, self._count = self._count, count
        if count == known:
            return
        # Numbers are given in the order in which rows first appear.
        first = np.zeros(count - known, np.int64)
        places = np.flatnonzero(lumps >= known)[::-1]
        first[lumps[places] - known] = places
        if self.exact:
            taken = [delta.rows.column(p).take(pa.array(first)) for p in self.exact]
            self.rows.add(pa.RecordBatch.from_arrays(taken, schema=self.rows.schema))
        self._number = grow_array(self._number, count)
        self._number[known:count] = numbers[first]
        self.kept = grow_array(self.kept, count)
        self.head = grow_array(self.head, int(numbers[first].max()) + 1, -1)
        self.following = grow_array(self.following, count, -1)
        _chain(self._number[:count], known, self.head, self.following)

    def _take_apart(self, delta: Delta) -> Ints:
        """What rows add to their lumps, in the layout of `kept`."""
        columns = [delta.rows.column(p) for p in self.summed]
        self._reach(columns, delta.weight)
        adds = np.zeros((len(delta), self._width), np.int64)
        adds[:, 0] = 1
        begin = 1 + len(columns)
        for place, (digits, column, start) in enumerate(
            zip(self._digits, columns, self.starts.tolist(), strict=False)
        ):
            adds[:, 1 + place] = column.is_valid().to_numpy(zero_copy_only=False)
            own = np.zeros((len(delta), digits.count), np.int64)
            digits.split(column, own)
            adds[:, begin + start : begin + start + digits.count] = own
        if len(delta) and int(np.abs(delta.weight).max()) >= _FEW_COPIES:
            most = np.abs(adds).max(axis=1).astype(np.float64) * np.abs(delta.weight)
            if (most >= _MOST).any():
                raise OverflowError
        adds *= delta.weight[:, None]
        return adds

    def _reach(self, columns: Sequence[pa.Array], weights: Ints) -> None:
        """Make room for the digits of values."""
        before = 1 + len(columns) + self.starts
        more = [d.reach(c, weights) for d, c in zip(self._digits, columns, strict=True)]
        if not any(map(any, more)):
            return
        after = 1 + len(columns) + self.starts
        wider = allocate_like(self.kept, (len(self.kept), self._width))
        wider[:, : 1 + len(columns)] = self.kept[:, : 1 + len(columns)]
        for place, (below, _) in enumerate(more):
            old, new = int(before[place]), int(after[place])
            fixed, end = old + SPECIAL, int(before[place + 1])
            wider[:, new : new + min(fixed, end) - old] = self.kept[:, old : min(fixed, end)]
            if fixed < end:
                begin = new + SPECIAL + below
                wider[:, begin : begin + end - fixed] = self.kept[:, fixed:end]
        self.kept = wider

    def make_kinds(self) -> list[pa.Array]:
        """Make what the rows that stand for a lump have in each summed column, by their kind.

        Kind 0 has zeros; then come each digit's unit with NULLs beside it, each column's zero with
        NULLs beside it, and NULLs alone.
        """
        starts = self.starts.tolist()
        found = []
        for place, digits in enumerate(self._digits):
            values = digits.list_values()
            at: list[int | None] = [None] * (1 + starts[-1] + len(self._digits) + 1)
            at[0] = at[1 + starts[-1] + place] = 0
            at[1 + starts[place] : 1 + starts[place + 1]] = range(1, 1 + digits.count)
            found.append(values.take(pa.array(at, pa.int64())))
        return found

    def numbers(self) -> Ints:
        """The number of each lump's key."""
        return self._number[: self._count]

    def compact(self) -> bool:
        """Forget the lumps without rows, where they are most; return whether any were."""
        if self._count < self._look_at:
            return False
        # A lump without rows has no sums either: what is in it has been taken back.
        found: Bools = np.asarray(self.kept[: self._count].any(axis=1))
        self._look_at = max(_FEW, 2 * int(found.sum()))
        if self._count < self._look_at or not self.exact:
            return False
        self._lumps.compact(found)
        self.rows.keep(found)
        self.kept = choose_like(self.kept[: self._count], found)
        self._number = choose_like(self._number[: self._count], found)
        self._count = int(found.sum())
        self._chain_again(len(self.head))
        return True

    def renumber(self, moved: Ints, most: int) -> None:
        """Take over new numbers of the keys."""
        self._number = moved[self.numbers()]
        self._chain_again(most)

    def _chain_again(self, most: int) -> None:
        self.head = allocate_like(self.head, max(most, 64), -1)
        self.following = allocate_like(self.following, max(self._count, 64), -1)
        _chain(np.ascontiguousarray(self.numbers()), 0, self.head, self.following)


@compiled(types.void(READ_I64, types.int64, I64, I64))
def _chain(numbers, first, head, following):  # type: ignore[no-untyped-def]
    """Put lumps from `first` on in front of the chains of their keys."""
    for lump in range(first, len(numbers)):
        following[lump] = head[numbers[lump]]
        head[numbers[lump]] = lump


class Met(NamedTuple):
    """Rows that stand for pairs of a row and a lump; arrays of an entry for each.

    Attributes:
        event: The row, as a place in the order of the instants.
        lump: The lump of the other side.
        kind: What the other side's summed columns are (`SummedSide.make_kinds`).
        weight: How many copies.
    """

    event: Ints
    lump: Ints
    kind: Ints
    weight: Ints


def meet(
    sides: tuple[SummedSide, SummedSide],
    arrived: tuple[Arrived, Arrived],
    side: Ints,
    place: Ints,
    at_once: int,
) -> Iterator[Met]:
    """Let rows meet the lumps of the other side's, in the order of their instants, and join them.

    Args:
        sides: Both sides.
        arrived: The rows of each.
        side: Of each row in order, its side: 0 or 1.
        place: Its place among the rows of its side.
        at_once: About how many rows are given at a time.

    Raises:
        OverflowError: sums have more than 2^62 of a digit.
    """
    one, other = sides
    room = at_once + 2 + max(len(s.summed) + int(s.starts[-1]) for s in sides)
    #: The next row; the next lump it meets, −1 for the first; what `alive` changes by.
    cursor = np.array([0, -1, 0, 0], np.int64)
    while cursor[0] < len(side):
        out = [np.empty(room, np.int64) for _ in range(4)]
        count = _meet(
            side,
            place,
            *(arrived[0].numbers, arrived[0].lumps, arrived[0].adds),
            *(arrived[1].numbers, arrived[1].lumps, arrived[1].adds),
            *(one.kept, one.head, one.following, one.starts),
            *(other.kept, other.head, other.following, other.starts),
            cursor,
            *out,
        )
        if count < 0:
            raise OverflowError
        one.alive += int(cursor[2])
        other.alive += int(cursor[3])
        cursor[2:] = 0
        yield Met(*(values[:count] for values in out))


@njit(inline="always")
def _write(row, times, event, lump, starts, found, events, lumps, kinds, weights):  # type: ignore[no-untyped-def]
    """Write the rows that stand for a lump; −1 if a weight is too large."""
    columns = len(starts) - 1
    digits = starts[columns]
    absent = np.int64(0)
    if row[0] != 0:
        events[found], lumps[found], kinds[found] = event, lump, 0
        weights[found] = times * row[0]
        found += 1
    for c in range(columns):
        missing = row[0] - row[1 + c]
        absent += missing
        rest = -missing
        for d in range(starts[c], starts[c + 1]):
            digit = row[1 + columns + d]
            if digit != 0:
                if abs(float(digit)) * abs(float(times)) >= _MOST:
                    return np.int64(-1)
                events[found], lumps[found], kinds[found] = event, lump, 1 + d
                weights[found] = times * digit
                found += 1
                rest -= digit
        if rest != 0:
            events[found], lumps[found], kinds[found] = event, lump, 1 + digits + c
            weights[found] = times * rest
            found += 1
    if absent != 0:
        events[found], lumps[found], kinds[found] = event, lump, 1 + digits + columns
        weights[found] = times * absent
        found += 1
    return found


_SIDE = (_I64_2D, READ_I64, READ_I64, READ_I64)


@compiled(
    types.int64(
        READ_I64,
        READ_I64,
        *(READ_I64, READ_I64, _READ_I64_2D) * 2,
        *_SIDE * 2,
        *(I64,) * 5,
    )
)
def _meet(  # type: ignore[no-untyped-def]
    side,
    place,
    numbers0,
    lumps0,
    adds0,
    numbers1,
    lumps1,
    adds1,
    kept0,
    head0,
    following0,
    starts0,
    kept1,
    head1,
    following1,
    starts1,
    cursor,
    events,
    lumps,
    kinds,
    weights,
):
    """Let rows from the cursor on meet lumps, until `events` is nearly full; return how many rows.

    A row meets the lumps of the other side as they are before it, and is then added to its own:
    build before probe, so that each pair is found once.
    """
    found = np.int64(0)
    widest = 2 + max(len(starts0) - 1 + starts0[-1], len(starts1) - 1 + starts1[-1])
    for i in range(cursor[0], len(side)):
        row = place[i]
        if side[i] == 0:
            number, times = numbers0[row], adds0[row, 0]
        else:
            number, times = numbers1[row], adds1[row, 0]
        if cursor[1] >= 0:
            lump = cursor[1]
        elif side[i] == 0:
            lump = head1[number] if number < len(head1) else -1
        else:
            lump = head0[number] if number < len(head0) else -1
        while lump >= 0:
            if found + widest > len(events):
                cursor[0], cursor[1] = i, lump
                return found
            if side[i] == 0:
                found = _write(
                    kept1[lump], times, i, lump, starts1, found, events, lumps, kinds, weights
                )
                lump = following1[lump]
            else:
                found = _write(
                    kept0[lump], times, i, lump, starts0, found, events, lumps, kinds, weights
                )
                lump = following0[lump]
            if found < 0:
                return found
        cursor[1] = -1
        if side[i] == 0:
            own, before = lumps0[row], kept0[lumps0[row], 0]
            for j in range(kept0.shape[1]):
                kept0[own, j] += adds0[row, j]
                if abs(kept0[own, j]) >= _MOST:
                    return np.int64(-1)
            cursor[2] += np.int64(kept0[own, 0] != 0) - np.int64(before != 0)
        else:
            own, before = lumps1[row], kept1[lumps1[row], 0]
            for j in range(kept1.shape[1]):
                kept1[own, j] += adds1[row, j]
                if abs(kept1[own, j]) >= _MOST:
                    return np.int64(-1)
            cursor[3] += np.int64(kept1[own, 0] != 0) - np.int64(before != 0)
    cursor[0] = len(side)
    return found
