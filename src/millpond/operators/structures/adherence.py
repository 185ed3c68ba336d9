"""How closely the rows of a join's sides adhere to constraints (STREAM, CIDR 4.1).

For each rule of a join, an adherence notes the rows of every step. It says which rows nobody
should need any more, how large k was seen to be, and how many rows broke the constraint. The rows
are those of the join's inputs: a selection below leaves out elements, so the k seen here is at most
the stream's.

Whatever an adherence says, no answer depends on it (`releases.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from millpond.model.constraints import CLUSTERED, FOREIGN_KEY, ORDERED, UNIQUE
from millpond.operators.protocol.delta import Bools, Ints
from millpond.operators.protocol.releasing import ReleaseRule
from millpond.operators.structures.join_side import Side
from millpond.synopses.mapped_memory import grow_array

#: An order's reach before any row.
_LEAST = np.iinfo(np.int64).min
#: Recent values of an ordered column that are kept to see how late smaller values come.
_RECENT = 1_000


@dataclass(frozen=True)
class SideRows:
    """The rows of one side in one step, and the side before the step.

    Attributes:
        numbers: The number of each row's key.
        at: The instant of each row.
        words: int64 by compared column, each row's value where that is a whole number inside.
        before: How many rows came in earlier steps.
        held: The rows that the side holds.
    """

    numbers: Ints
    at: Ints
    words: tuple[Ints | None, ...]
    before: int
    held: Side

    @property
    def positions(self) -> Ints:
        """The number of each row among all that came: 0, 1, …"""
        return self.before + np.arange(len(self.numbers))


class Adherence(Protocol):
    """Watches one constraint in one join.

    Attributes:
        observed: The least k with which no row so far broke the constraint; None for UNIQUE. In
            rows, or in microseconds where the declared k is a length of time.
        violations: How many rows broke the constraint with the declared k.
    """

    observed: int | None
    violations: int

    def note(self, sides: tuple[SideRows, SideRows], keys: int) -> None:
        """Note a step's rows, before they are added to the sides; `keys` is how many there are."""
        ...

    def find_over(self, held: Side, other: Side, words: Ints | None, upto: int) -> Bools:
        """Find the rows of the released side that nobody should need after an instant.

        All rows with one key are found, or none.

        Args:
            held: The released side.
            other: The other side.
            words: Of an order: the ordered column of the released side's rows.
            upto: The instant up to which all rows of both sides came.
        """
        ...

    def renumber(self, moved: Ints, most: int) -> None:
        """Take over new numbers of the keys: `moved[number]`, -1 for a key without rows."""
        ...


def watch(rule: ReleaseRule) -> Adherence:
    """Make what watches a rule's constraint."""
    rows, time = rule.constraint.rows, rule.constraint.time
    match rule.constraint.kind:
        case kind if kind == UNIQUE:
            return _Uniqueness(1 - rule.side)
        case kind if kind == CLUSTERED:
            return Clusters(1 - rule.side, rows, time)
        case kind if kind == ORDERED:
            return _Order(1 - rule.side, rule.place, rows, time)
        case kind if kind == FOREIGN_KEY:
            return _References(rule.side, rows, time)
    raise AssertionError(rule)


class _ByKey:
    """Arrays of one value for each key's number."""

    def __init__(self, **fills: int) -> None:
        self._fills = fills
        self.arrays = {name: np.empty(0, np.int64) for name in fills}

    def grow(self, keys: int) -> None:
        for name, fill in self._fills.items():
            self.arrays[name] = grow_array(self.arrays[name], keys, fill)

    def renumber(self, moved: Ints, most: int) -> None:
        self.grow(len(moved))
        stays = moved >= 0
        for name, fill in self._fills.items():
            fresh = np.full(max(most, 64), fill, np.int64)
            fresh[moved[stays]] = self.arrays[name][: len(moved)][stays]
            self.arrays[name] = fresh


class _Uniqueness:
    """UNIQUE: a row whose partner came needs no other, also when the partner was released."""

    def __init__(self, watched: int) -> None:
        self._watched = watched
        self._known = _ByKey(came=0)
        self.observed: int | None = None
        self.violations = 0

    def note(self, sides: tuple[SideRows, SideRows], keys: int) -> None:
        rows = sides[self._watched]
        distinct = np.unique(rows.numbers)
        self._known.grow(keys)
        came = self._known.arrays["came"]
        again = len(rows.numbers) - len(distinct)
        self.violations += again + int((rows.held.holds(distinct) | (came[distinct] > 0)).sum())
        came[distinct] = 1

    def find_over(self, held: Side, other: Side, words: Ints | None, upto: int) -> Bools:
        numbers = held.numbers()
        self._known.grow(int(numbers.max(initial=-1)) + 1)
        return other.holds(numbers) | (self._known.arrays["came"][numbers] > 0)

    def renumber(self, moved: Ints, most: int) -> None:
        self._known.renumber(moved, most)


class Clusters:
    """CLUSTERED BY: a key's rows are over when more than k others came since its first row."""

    def __init__(self, watched: int, rows: int | None, time: int | None) -> None:
        self._watched, self._rows, self._time = watched, rows, time
        self._count = 0
        #: By key: the position and the instant of its first row; how many it has.
        self._known = _ByKey(first=-1, first_at=0, seen=0)
        self.observed: int | None = 0
        self.violations = 0

    def note(self, sides: tuple[SideRows, SideRows], keys: int) -> None:
        rows = sides[self._watched]
        self.note_rows(rows.numbers, rows.at, rows.before, keys)

    def note_rows(self, numbers: Ints, at: Ints, before: int, keys: int) -> None:
        """Note a step's rows, by the numbers of their keys; `before` came in earlier steps."""
        self._known.grow(keys)
        first, first_at, seen = self._known.arrays.values()
        self._count = before + len(numbers)
        if not len(numbers):
            return
        distinct, place, count = np.unique(numbers, return_index=True, return_counts=True)
        last = np.zeros(len(distinct), np.int64)
        np.maximum.at(last, np.searchsorted(distinct, numbers), np.arange(len(numbers)))
        new = first[distinct] < 0
        first[distinct[new]] = before + place[new]
        first_at[distinct[new]] = at[place[new]]
        if self._time is None:
            k = before + last - first[distinct] - (seen[distinct] + count - 1)
        else:
            k = at[last] - first_at[distinct]
        seen[distinct] += count
        allowed = self._rows if self._time is None else self._time
        self.violations += int((k > (allowed or 0)).sum())
        self.observed = max(self.observed or 0, int(k.max()))

    def find_over(self, held: Side, other: Side, words: Ints | None, upto: int) -> Bools:
        return self.find_over_keys(held.numbers(), upto)

    def find_over_keys(self, numbers: Ints, upto: int) -> Bools:
        """Find the keys, by number, whose cluster is over."""
        self._known.grow(int(numbers.max(initial=-1)) + 1)
        first, first_at, seen = (a[numbers] for a in self._known.arrays.values())
        if self._time is not None:
            found = (first >= 0) & (upto - first_at > self._time)
        else:
            found = (first >= 0) & (self._count - first - seen > (self._rows or 0))
        return np.asarray(found)

    def renumber(self, moved: Ints, most: int) -> None:
        self._known.renumber(moved, most)


class _Order:
    """ORDERED BY: values below the greatest value of all but the last k rows are over."""

    def __init__(self, watched: int, place: int, rows: int | None, time: int | None) -> None:
        self._watched, self._place = watched, place
        self._rows, self._time = rows, time
        self._reach: int = _LEAST
        self._values, self._at = np.empty(0, np.int64), np.empty(0, np.int64)
        self.observed: int | None = 0
        self.violations = 0

    def note(self, sides: tuple[SideRows, SideRows], keys: int) -> None:
        rows = sides[self._watched]
        words = rows.words[self._place]
        if not len(rows.numbers) or words is None:
            return
        self.violations += int((words < self._reach).sum())
        known = len(self._values)
        self._values = np.concatenate([self._values, words])
        self._at = np.concatenate([self._at, rows.at])
        # The first row with a greater value, of those that are kept, says how late a row is.
        greatest = np.maximum.accumulate(self._values)
        before = np.searchsorted(greatest, words, side="right")
        own = known + np.arange(len(words))
        late = before < own
        if late.any():
            behind = own[late] - before[late]
            if self._time is not None:
                behind = self._at[own[late]] - self._at[before[late]]
            self.observed = max(self.observed or 0, int(behind.max()))
        if self._time is None:
            self._settle(len(self._values) - (self._rows or 0))

    def _settle(self, count: int) -> None:
        """Take the first rows into the reach; keep some values to see how late others come."""
        if count <= 0:
            return
        self._reach = max(self._reach, int(self._values[:count].max()))
        kept = max(0, count - _RECENT)
        self._values, self._at = self._values[kept:], self._at[kept:]

    def find_over(self, held: Side, other: Side, words: Ints | None, upto: int) -> Bools:
        if self._time is not None:
            self._settle(int(np.searchsorted(self._at, upto - self._time, side="right")))
        if words is None:
            return np.zeros(len(held), bool)
        return np.asarray(words < self._reach)

    def renumber(self, moved: Ints, most: int) -> None:
        pass


class _References:
    """FOREIGN KEY: a row whose partner did not come within k gets none."""

    def __init__(self, side: int, rows: int | None, time: int | None) -> None:
        self._side, self._rows, self._time = side, rows, time
        self._count = 0
        #: By key, of the last row that came without a partner: how many rows the other side had
        #: then, -1 for none; and its instant. And of the first such row.
        self._known = _ByKey(last=-1, last_at=0, first=-1, first_at=0)
        self.observed: int | None = 0
        self.violations = 0

    def note(self, sides: tuple[SideRows, SideRows], keys: int) -> None:
        referring, partners = sides[self._side], sides[1 - self._side]
        self._known.grow(keys)
        last, last_at, first, first_at = self._known.arrays.values()
        arrived, place = np.unique(partners.numbers, return_index=True)
        came = arrived
        waited = first[came] >= 0
        if waited.any():
            came, place = came[waited], place[waited]
            if self._time is None:
                k = partners.before + place + 1 - first[came]
            else:
                k = partners.at[place] - first_at[came]
            allowed = self._rows if self._time is None else self._time
            self.violations += int((k > (allowed or 0)).sum())
            self.observed = max(self.observed or 0, int(k.max()))
            last[came] = first[came] = -1
        self._count = partners.before + len(partners.numbers)
        alone = ~(partners.held.holds(referring.numbers) | np.isin(referring.numbers, arrived))
        numbers, at = referring.numbers[alone], referring.at[alone]
        last[numbers], last_at[numbers] = self._count, at
        numbers, place = np.unique(numbers, return_index=True)
        new = first[numbers] < 0
        first[numbers[new]], first_at[numbers[new]] = self._count, at[place[new]]

    def find_over(self, held: Side, other: Side, words: Ints | None, upto: int) -> Bools:
        numbers = held.numbers()
        self._known.grow(int(numbers.max(initial=-1)) + 1)
        last, last_at = (self._known.arrays[name][numbers] for name in ("last", "last_at"))
        waits: npt.NDArray[np.bool_] = last >= 0
        if self._time is not None:
            return np.asarray(waits & (upto - last_at >= self._time))
        return np.asarray(waits & (self._count - last >= (self._rows or 0)))

    def renumber(self, moved: Ints, most: int) -> None:
        self._known.renumber(moved, most)
