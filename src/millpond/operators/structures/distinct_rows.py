"""The distinct rows an operator has seen, numbered, and one copy of each.

`RecentRows` keeps, too, when each came last, in a log. The log has an entry for each distinct row,
in the order of time. A row that comes again gets a new entry at the end, and its old one counts no
more. So the rows that came last between two instants are side by side, whatever instants these are,
and are found by bisection. The log is laid out anew when half of its entries may count no more.

INV-RECENT-1: each row has one entry that counts: the one that `_place` says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.model.time import BEGINNING, END
from millpond.operators.protocol.delta import Bools, Ints
from millpond.operators.structures.key_numbers import KeyNumbers
from millpond.operators.structures.row_store import RowStore
from millpond.synopses.mapped_memory import allocate_like, grow_array

#: Before every instant: when a row came last that never came.
NEVER = BEGINNING - 2
#: Room for so many rows at least.
_ROOM = 64


@dataclass(frozen=True)
class ExpiringRows:
    """Distinct rows that are there at an instant, as one operator hands them over to another.

    Attributes:
        rows: The rows.
        until: When the last copy of each expires.
        position: The instant.
    """

    rows: pa.RecordBatch
    until: Ints
    position: int


class DistinctRows:
    """Numbers 0, 1, … for distinct rows, in the order of their first appearance."""

    def __init__(self, schema: pa.Schema) -> None:
        self._keys = KeyNumbers(schema.types)
        self._rows = RowStore(schema)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def width(self) -> int:
        """About how many bytes the values of a row take."""
        return self._rows.width

    def number(self, rows: pa.RecordBatch) -> Ints:
        """Number each row; a row not seen before gets a new number and is kept."""
        numbers = self._keys.number(rows.columns)
        known = len(self._rows)
        if len(self._keys) > known:
            fresh = np.flatnonzero(numbers >= known)
            _, places = np.unique(numbers[fresh], return_index=True)
            self._rows.add(rows.take(pa.array(fresh[places])))
        return numbers

    def pick(self, numbers: Ints) -> pa.RecordBatch:
        """Pick the rows of these numbers, in the order of the numbers given."""
        return self._rows.pick(numbers)

    def is_worth_compacting(self, living: int) -> bool:
        """Whether compaction is worth its cost when only `living` rows are still needed."""
        return not living or self._keys.is_worth_compacting(living)

    def compact(self, alive: Bools) -> Ints:
        """Forget the rows where `alive` is false; return each row's new number, -1 if gone."""
        moved = self._keys.compact(alive)
        self._rows.keep(alive)
        return moved


@compiled(types.UniTuple(types.int64, 2)(*[READ_I64] * 2, *[types.int64] * 2, *[I64] * 4))
def _note(numbers, at, base, since, place, log_at, log_key, previous):  # type: ignore[no-untyped-def]
    """Put rows that come at the end of a log of `base` entries, each once; find `previous`.

    Return the number of entries, and how many of the rows had not come after `since`.
    """
    fresh = 0
    for i in range(len(numbers)):
        key = numbers[i]
        before = place[key]
        if before >= base:
            previous[i] = at[before - base]
        else:
            previous[i] = log_at[before] if before >= 0 else NEVER
            fresh += previous[i] <= since
        place[key] = base + i
    count = base
    for i in range(len(numbers)):
        key = numbers[i]
        if place[key] == base + i:
            place[key] = count
            log_at[count], log_key[count] = at[i], key
            count += 1
    return count, fresh


class RecentRows:
    """The distinct rows that came, numbered, each with the instant at which it came last.

    Attributes:
        since: Rows that came last up to this instant may be forgotten.
        living: How many rows came after it.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.since = NEVER
        self.living = 0
        self._rows = DistinctRows(schema)
        #: By row, the place of its entry in the log.
        self._place = np.full(_ROOM, -1, np.int64)
        self._at, self._key = (np.zeros(_ROOM, np.int64) for _ in range(2))
        self._count = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: pa.RecordBatch, at: Ints) -> tuple[Ints, Ints]:
        """Add rows that come, none before those that came, and all of them after `since`.

        Returns:
            For each its number, and the instant at which an equal row came last; `NEVER`: none did.
        """
        numbers, at = self._rows.number(rows), np.ascontiguousarray(at)
        known = len(self._rows)
        self._place = grow_array(self._place, known, -1)
        if self._count + min(len(at), known) > len(self._at):
            keys, last = self.find(NEVER, END)
            self._lay_out(keys, last)
        previous = np.empty(len(at), np.int64)
        log = self._place, self._at, self._key
        self._count, fresh = _note(numbers, at, self._count, self.since, *log, previous)
        self.living += fresh
        return numbers, previous

    def find(self, after: int, upto: int) -> tuple[Ints, Ints]:
        """Find the rows that came last in (after, upto]: their numbers, and when, ascending."""
        log = self._at[: self._count]
        low, high = np.searchsorted(log, [max(after, NEVER), upto], side="right").tolist()
        keys = self._key[low:high]
        counts = self._place[keys] == np.arange(low, max(low, high))
        return keys[counts], log[low:high][counts]

    def pick(self, numbers: Ints) -> pa.RecordBatch:
        """Pick the rows of these numbers, in the order of the numbers given."""
        return self._rows.pick(numbers)

    def set_since(self, since: int) -> None:
        """Say from now on that rows may be forgotten that came last up to an instant."""
        since = max(since, NEVER)
        if since >= self.since:
            self.living -= len(self.find(self.since, since)[0])
        else:
            self.living = len(self.find(since, END)[0])
        self.since = since

    def is_worth_forgetting(self) -> bool:
        """Whether it is worth its cost to forget the rows that may be forgotten."""
        return self._rows.is_worth_compacting(self.living)

    def forget(self) -> None:
        """Forget the rows that may be forgotten; the others get other numbers."""
        keys, at = self.find(self.since, END)
        alive = np.zeros(len(self._rows), np.bool_)
        alive[keys] = True
        keys = self._rows.compact(alive)[keys]
        self._place = allocate_like(self._place, max(_ROOM, 2 * len(keys)), -1)
        self._lay_out(keys, at)

    def merge(self, rows: pa.RecordBatch, at: Ints) -> None:
        """Take over distinct rows, in any order, that came last at these instants."""
        numbers = self._rows.number(rows)
        known = len(self._rows)
        keys, before = self.find(NEVER, END)
        last = np.full(known, NEVER, np.int64)
        last[keys] = before
        last[numbers] = np.maximum(last[numbers], at)
        self._place = grow_array(self._place, known, -1)
        order = np.argsort(last, kind="stable")
        self._lay_out(order, last[order])
        self.living = len(self.find(self.since, END)[0])

    def _lay_out(self, keys: Ints, at: Ints) -> None:
        """Lay out the log anew: of these rows, all that came, in the order of their instants."""
        room = max(_ROOM, 2 * len(self._rows))
        self._at, self._key = (allocate_like(some, room) for some in (self._at, self._key))
        count = self._count = len(keys)
        self._at[:count], self._key[:count] = at, keys
        self._place[keys] = np.arange(count)
