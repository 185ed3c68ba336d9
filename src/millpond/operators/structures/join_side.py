"""One input of a join: its rows by key, to be built and probed (CACQ, 2.4).

Probes skip rows that have expired; the rows are purged lazily (Update patterns 2.1; `purging.py`
says when). A purge also adds up rows and negative tuples that cancel. Probes find negative tuples
like rows until then, so they are also added up when they are half of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.model.time import END
from millpond.operators.protocol.delta import Bools, Delta, Ints
from millpond.operators.protocol.purging import Purging
from millpond.operators.structures.key_numbers import KeyNumbers
from millpond.operators.structures.row_store import RowStore
from millpond.synopses.mapped_memory import allocate_like, choose_like, grow_array

#: How many pairs are laid out at a time, about.
PAIRS_AT_ONCE = 1 << 22


@compiled(types.void(READ_I64, I64, I64, types.int64))
def _chain(numbers, head, following, base):  # type: ignore[no-untyped-def]
    """Put rows base, base + 1, … in front of the chains of their keys."""
    for i in range(len(numbers)):
        following[base + i] = head[numbers[i]]
        head[numbers[i]] = base + i


@compiled(types.int64(*[READ_I64] * 7, I64, I64, I64, types.int64, types.boolean))
def _probe(  # type: ignore[no-untyped-def]
    numbers, at, until, head, following, held_at, held_until, out_probe, out_held, span, most, fill
):
    """Find the pairs of a probing row and a held row with equal keys and overlapping lives.

    Of the probing rows from the first place of `span` to the second; where there are `most` pairs,
    it stops after the row, and notes in `span` where.
    """
    found = 0
    for i in range(span[0], span[1]):
        if found >= most:
            span[1] = i
            break
        number = numbers[i]
        if number < 0 or number >= len(head):
            continue
        row = head[number]
        while row >= 0:
            if at[i] < held_until[row] and held_at[row] < until[i]:
                if fill:
                    out_probe[found] = i
                    out_held[found] = row
                found += 1
            row = following[row]
    return found


@compiled(
    types.int64(
        *[READ_I64] * 5,
        *[I64] * 3,
        *[types.int64] * 4,
        types.boolean,
        types.boolean,
    )
)
def _probe_windows(  # type: ignore[no-untyped-def]
    numbers,
    at,
    head,
    following,
    held_at,
    out_probe,
    out_held,
    span,
    length,
    held_length,
    before,
    most,
    in_order,
    fill,
):
    """Find pairs as `_probe`, where a row lives as long as a window is.

    Of the held rows only those at places below `before` are looked at. Rows of a key come from the
    last to the first: if they came in the order of their instants, all behind one that has left its
    window have left it, too.
    """
    found = 0
    for i in range(span[0], span[1]):
        if found >= most:
            span[1] = i
            break
        number = numbers[i]
        if number < 0 or number >= len(head):
            continue
        row = head[number]
        while row >= 0:
            if row < before:
                age = at[i] - held_at[row]
                if age >= held_length:
                    if in_order:
                        break
                elif -age < length:
                    if fill:
                        out_probe[found] = i
                        out_held[found] = row
                    found += 1
            row = following[row]
    return found


class Side:
    """One input's rows, chained by key.

    Attributes:
        at, until, weight: As in `Delta`, for each row, by place.
        tally: A count for each row, for the use of the operator; it begins with 0.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.rows = RowStore(schema)
        self._head = np.empty(0, np.int64)
        self._following = np.empty(0, np.int64)
        self._number = np.empty(0, np.int64)
        self.at = np.empty(0, np.int64)
        self.until = np.empty(0, np.int64)
        self.weight = np.empty(0, np.int64)
        self.tally = np.empty(0, np.int64)
        self._negative = 0
        #: Whether the rows came in the order of their instants.
        self._in_order = True
        #: When to count expired rows again: at an instant, or at a number of rows.
        self._half_gone_at: int = END
        self._looked_at = 0

    def __len__(self) -> int:
        return len(self.rows)

    def build(self, delta: Delta, numbers: Ints, most: int) -> None:
        """Add rows under their keys' numbers, which are below `most`."""
        base, count = len(self.rows), len(delta)
        needed = base + count
        if base and count:
            self._in_order &= bool(delta.at[0] >= self.at[base - 1])
        self._head = grow_array(self._head, most, -1)
        self._following = grow_array(self._following, needed, -1)
        for name, values in (
            ("_number", numbers),
            ("at", delta.at),
            ("until", delta.until),
            ("weight", delta.weight),
            ("tally", 0),
        ):
            grown = grow_array(getattr(self, name), needed, 0)
            grown[base:needed] = values
            setattr(self, name, grown)
        self.rows.add(delta.rows)
        _chain(np.ascontiguousarray(numbers), self._head, self._following, base)
        self._negative += int((delta.weight < 0).sum())

    def probe(self, delta: Delta, numbers: Ints) -> tuple[Ints, Ints]:
        """Find pairs with equal keys and overlapping lives: places in the delta, and here."""
        parts = list(self.probe_in_parts(delta, numbers, END))
        return parts[0] if parts else (np.empty(0, np.int64), np.empty(0, np.int64))

    def probe_in_parts(self, delta: Delta, numbers: Ints, most: int) -> Iterator[tuple[Ints, Ints]]:
        """Find pairs as `probe` does, so many at a time and those of one more row.

        What probes with a key that very many rows have is never laid out as a whole.
        """
        none = np.empty(0, np.int64)
        arguments = (
            np.ascontiguousarray(numbers),
            np.ascontiguousarray(delta.at),
            np.ascontiguousarray(delta.until),
            self._head,
            self._following,
            self.at,
            self.until,
        )
        start = 0
        while start < len(numbers):
            span = np.array([start, len(numbers)], np.int64)
            count = _probe(*arguments, none, none, span, most, False)
            probing, held = np.empty(count, np.int64), np.empty(count, np.int64)
            _probe(*arguments, probing, held, span, END, True)
            yield probing, held
            start = int(span[1])

    def probe_windows_in_parts(
        self, delta: Delta, numbers: Ints, windows: tuple[int, int], before: int, most: int
    ) -> Iterator[tuple[Ints, Ints]]:
        """Find pairs as `probe_in_parts` does, of rows that are both in their windows.

        Args:
            delta: The rows that probe, in the order of their instants.
            numbers: The numbers of their keys.
            windows: The length of the window of the rows that probe, and of that of the rows here.
            before: Only the rows at places below it are looked at.
            most: As of `probe_in_parts`.
        """
        none = np.empty(0, np.int64)
        arguments = (
            np.ascontiguousarray(numbers),
            np.ascontiguousarray(delta.at),
            self._head,
            self._following,
            self.at,
        )
        start = 0
        while start < len(numbers):
            span = np.array([start, len(numbers)], np.int64)
            rest = (*windows, before)
            count = _probe_windows(*arguments, none, none, span, *rest, most, self._in_order, False)
            probing, held = np.empty(count, np.int64), np.empty(count, np.int64)
            _probe_windows(*arguments, probing, held, span, *rest, END, self._in_order, True)
            yield probing, held
            start = int(span[1])

    def holds(self, numbers: Ints) -> Bools:
        """Whether there are rows with each of some keys, by their numbers."""
        found = np.zeros(len(numbers), bool)
        known = numbers < len(self._head)
        found[known] = self._head[numbers[known]] >= 0
        return found

    def is_worth_compacting(self, upto: int, due: bool, by_share: bool) -> bool:
        """Whether it is time to purge expired rows, or to add up negative tuples.

        Args:
            upto: Rows that expired up to this instant can be purged.
            due: Whether an interval has passed.
            by_share: Whether it is also time when half of the rows have expired; they are counted
                seldom, for counting looks at all rows.
        """
        count = len(self.rows)
        if not count:
            return False
        if due and (self._negative or bool((self.until[:count] <= upto).any())):
            return True
        if not by_share:
            return 4 * self._negative >= count
        if upto < self._half_gone_at and count < 2 * self._looked_at and 4 * self._negative < count:
            return False
        gone = int((self.until[:count] <= upto).sum())
        self._look_again()
        return 2 * (gone + 2 * self._negative) >= count

    def _look_again(self) -> None:
        """Note when half of the present rows will have expired, if none come."""
        count = len(self.rows)
        middle = (count - 1) // 2
        until = self.until[:count]
        self._half_gone_at = int(np.partition(until, middle)[middle]) if count else END
        self._looked_at = count

    def compact(self, upto: int) -> None:
        """Drop rows that have expired, and add up rows that are equal from now on."""
        count = len(self.rows)
        alive = self.until[:count] > upto
        if self._negative:
            keys = KeyNumbers([*self._schema.types, pa.int64()], zeros=True)
            same = np.empty(count, np.int64)
            for start, rows in self.rows.list_batches():
                end = start + rows.num_rows
                columns = [*rows.columns, pa.array(self.until[start:end])]
                same[start:end] = keys.number(columns)
            sums = np.zeros(len(keys), np.int64)
            np.add.at(sums, same, self.weight[:count])
            first = np.full(len(keys), count, np.int64)
            np.minimum.at(first, same, np.arange(count))
            chosen = np.zeros(count, bool)
            chosen[first[sums != 0]] = True
            self.weight = self.weight.copy()
            self.weight[first] = sums
            alive &= chosen
        self.keep(alive)

    def keep(self, chosen: Bools) -> None:
        """Keep the chosen rows, forget the others."""
        count = len(self.rows)
        self.rows.keep(chosen)
        for name in ("_number", "at", "until", "weight", "tally"):
            setattr(self, name, choose_like(getattr(self, name)[:count], chosen))
        if self._negative:
            self._negative = int((self.weight < 0).sum())
        self._in_order |= not len(self.rows)
        self._look_again()
        self._rechain()

    def numbers(self) -> Ints:
        return self._number[: len(self.rows)]

    def set_length(self, length: int) -> None:
        """Have rows leave as long after their instants as a window is."""
        self.until = np.minimum(self.at + length, END)
        self._look_again()

    def renumber(self, moved: Ints, most: int) -> None:
        """Take over new numbers of the keys."""
        self._number = moved[self.numbers()]
        self._head = allocate_like(self._head, max(most, 64), -1)
        self._rechain()

    def _rechain(self) -> None:
        self._head = allocate_like(self._head, len(self._head), -1)
        self._following = allocate_like(self._following, max(len(self.rows), 64), -1)
        _chain(np.ascontiguousarray(self.numbers()), self._head, self._following, 0)


def compact_both(
    left: Side,
    right: Side,
    keys: KeyNumbers | None,
    upto: int,
    purging: Purging,
    release: Callable[[bool], bool] | None = None,
) -> tuple[Ints, int] | None:
    """Compact the sides where that is worth its cost, then drop the keys that neither side has.

    Args:
        left, right: The two inputs' rows.
        keys: The numbering of their keys; None where all rows have one key.
        upto: Rows that expired up to this instant can be purged.
        purging: When to purge.
        release: Drops rows that are alive; is told whether an interval has passed, and returns
            whether rows were dropped.

    Returns:
        If keys were dropped: each key's new number, -1 for a key that is gone; and how many are
        left.
    """
    done, due = False, purging.is_due(upto)
    if release is not None:
        done = release(due)
    for side in (left, right):
        if side.is_worth_compacting(upto, due, purging.by_share):
            side.compact(upto)
            done = True
    return drop_keys((left, right), keys) if done and keys is not None else None


class Numbered(Protocol):
    """What is kept by the numbers of keys."""

    def numbers(self) -> Ints: ...

    def renumber(self, moved: Ints, most: int) -> None: ...


def drop_keys(sides: Sequence[Numbered], keys: KeyNumbers) -> tuple[Ints, int] | None:
    """Drop the keys that no side has, where they are most; return as `compact_both` does."""
    alive = np.zeros(len(keys), bool)
    for side in sides:
        alive[side.numbers()] = True
    living = int(alive.sum())
    if living and not keys.is_worth_compacting(living):
        return None
    moved = keys.compact(alive)
    for side in sides:
        side.renumber(moved, living)
    return moved, living
