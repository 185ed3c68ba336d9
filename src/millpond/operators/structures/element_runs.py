"""Elements side by side, in the order of their timestamps: a store's own, or another store's.

A store numbers its elements as they come. Of elements that another store keeps, too, a store needs
only their numbers there (`Places`); with the other's runs at hand they are read like its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.model.kept_property import kept_property
from millpond.model.time import BEGINNING
from millpond.operators.protocol.delta import Bools, Ints


class TimedRun(Protocol):
    """Elements in the order of their timestamps, of which there is at least one if it is kept."""

    def __len__(self) -> int: ...

    @property
    def ts(self) -> Ints:
        """Their timestamps."""
        ...

    @property
    def earliest(self) -> int:
        """The timestamp of the first."""
        ...

    @property
    def latest(self) -> int:
        """The timestamp of the last."""
        ...

    def between(self, low: float, high: float) -> TimedRun:
        """The elements with timestamps from `low` up to `high`."""
        ...

    def where(self, chosen: Bools) -> TimedRun:
        """The elements where `chosen` is true."""
        ...

    def column(self, place: int) -> pa.Array:
        """The values of a column."""
        ...


@dataclass(frozen=True, eq=False)
class ElementRun:
    """Elements of a store.

    Attributes:
        ts: Their timestamps.
        columns: Their columns, by place; those that nobody reads are left out.
        first: The number of the first of them.
    """

    ts: Ints
    columns: Mapping[int, pa.Array]
    first: int = 0

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def earliest(self) -> int:
        return int(self.ts[0])

    @property
    def latest(self) -> int:
        return int(self.ts[-1])

    def slice(self, low: int, high: int) -> ElementRun:
        """The elements [low, high), without copying."""
        columns = {place: c.slice(low, high - low) for place, c in self.columns.items()}
        return ElementRun(self.ts[low:high], columns, self.first + low)

    def between(self, low: float, high: float) -> ElementRun:
        first = int(np.searchsorted(self.ts, low, side="left"))
        return self.slice(first, max(first, int(np.searchsorted(self.ts, high, side="right"))))

    def where(self, chosen: Bools) -> ElementRun:
        """The elements where `chosen` is true; their numbers mean nothing then."""
        if chosen.all():
            return self
        places = pa.array(np.flatnonzero(chosen))
        return ElementRun(self.ts[chosen], {p: c.take(places) for p, c in self.columns.items()})

    def column(self, place: int) -> pa.Array:
        return self.columns[place]

    def join(self, other: ElementRun) -> ElementRun:
        """Put the elements that come next behind these."""
        columns = {p: pa.concat_arrays([c, other.columns[p]]) for p, c in self.columns.items()}
        return ElementRun(np.concatenate([self.ts, other.ts]), columns, self.first)


NOTHING = ElementRun(np.empty(0, np.int64), {})


#: How far apart numbers may be that lie side by side.
_FAR = 1 << 31


@dataclass(frozen=True, eq=False)
class Places:
    """Which elements of another store: their numbers there are `origin` + `offsets`, ascending."""

    origin: int
    offsets: npt.NDArray[np.int32]

    @staticmethod
    def of(numbers: Ints) -> Places:
        """Keep some numbers (at least one), which are less than 2^31 apart."""
        origin = int(numbers[0])
        return Places(origin, (numbers - origin).astype(np.int32))

    def __len__(self) -> int:
        return len(self.offsets)

    def list_numbers(self) -> Ints:
        """The numbers."""
        return self.origin + self.offsets.astype(np.int64)

    def join(self, other: Places) -> Places | None:
        """Put the numbers that come next behind these; None if they are too far away."""
        numbers = np.concatenate([self.list_numbers(), other.list_numbers()])
        return Places.of(numbers) if numbers[-1] - numbers[0] < _FAR else None

    def slice(self, low: int, high: int) -> Places:
        """The numbers [low, high)."""
        return Places(self.origin, self.offsets[low:high])

    def find(self, number: int) -> int:
        """How many numbers are less than a number."""
        return int(np.searchsorted(self.offsets, number - self.origin, side="left"))


def find_number(runs: Sequence[ElementRun], ts: float, side: Literal["left", "right"]) -> int:
    """Find the number of a store's first element that is not before a timestamp, or is after it.

    Args:
        runs: The store's elements, in one run or more, none of which is empty.
        ts: The timestamp.
        side: "left": not before it; "right": after it.
    """
    bisect = bisect_left if side == "left" else bisect_right
    at = bisect(runs, ts, key=lambda run: run.latest)
    if at == len(runs):
        return runs[-1].first + len(runs[-1])
    return runs[at].first + int(np.searchsorted(runs[at].ts, ts, side=side))


def _find_run(runs: Sequence[ElementRun], number: int) -> ElementRun:
    """Find the run that has the element of a number."""
    return runs[bisect_right(runs, number, key=lambda run: run.first) - 1]


@dataclass(frozen=True, eq=False)
class LentRun:
    """Elements that another store keeps.

    The other may have dropped the first of them already, which no window will give any more.

    Attributes:
        places: Which.
        runs: The other's elements, of which these are some.
    """

    places: Places
    runs: Sequence[ElementRun]

    def __len__(self) -> int:
        return len(self.places)

    @kept_property
    def _pieces(self) -> list[tuple[ElementRun, Ints]]:
        """The other's runs that have some, each with the places of these in it."""
        return list(self._list_pieces())

    def _list_pieces(self) -> Iterator[tuple[ElementRun, Ints]]:
        numbers = self.places.list_numbers()
        done = 0
        while done < len(numbers):
            run = _find_run(self.runs, int(numbers[done]))
            upto = int(np.searchsorted(numbers, run.first + len(run)))
            assert upto > done, "an element that was lent is not kept any more"
            yield run, numbers[done:upto] - run.first
            done = upto

    def _find_stamp(self, place: int) -> int:
        number = self.places.origin + int(self.places.offsets[place])
        if not self.runs or number < self.runs[0].first:
            return BEGINNING
        run = _find_run(self.runs, number)
        return int(run.ts[number - run.first])

    @property
    def earliest(self) -> int:
        return self._find_stamp(0)

    @property
    def latest(self) -> int:
        return self._find_stamp(-1)

    @kept_property
    def ts(self) -> Ints:
        return np.concatenate([NOTHING.ts, *(run.ts[places] for run, places in self._pieces)])

    def between(self, low: float, high: float) -> LentRun:
        if not self.runs:
            return LentRun(self.places.slice(0, 0), self.runs)
        first = self.places.find(find_number(self.runs, low, "left"))
        after = self.places.find(find_number(self.runs, high, "right"))
        return LentRun(self.places.slice(first, max(first, after)), self.runs)

    def where(self, chosen: Bools) -> LentRun:
        if chosen.all():
            return self
        return LentRun(Places(self.places.origin, self.places.offsets[chosen]), self.runs)

    def column(self, place: int) -> pa.Array:
        """The values of a column; there is at least one element."""
        return pa.concat_arrays([r.columns[place].take(pa.array(own)) for r, own in self._pieces])

    def to_own(self, needed: Set[int]) -> ElementRun:
        """Copy the elements, with some columns."""
        return ElementRun(self.ts, {place: self.column(place) for place in sorted(needed)})
