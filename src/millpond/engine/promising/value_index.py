"""A window's elements by value: what a cell of the two-dimensional representation links.

Promising tuples, section 3.1: tuples are kept by value and in the order of time. Here that is the
run of each segment (`engine/joins/arrangement.py`), so elements of one value in one zone are one
stretch of each run, found by two searches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numba import types

from millpond.engine.joins.arrangement import SortedRun, build
from millpond.engine.joins.keys import Axis, Keys, Numbers, code_column, mix_numbers
from millpond.model.compiled import I64, READ_I64, READ_U64, compiled
from millpond.model.kept_property import kept_property

#: Elements as (segment number, row) pairs, side by side.
Elements = tuple[Numbers, Numbers]


class IndexedView(Protocol):
    """A segment as one leaf of a query sees it, as the index uses it."""

    @property
    def ts(self) -> np.ndarray: ...

    @property
    def table(self) -> pa.Table: ...

    @property
    def arrived(self) -> tuple[int, int]: ...

    def get_run(self, key: str, arrange: Any) -> SortedRun: ...

    def sequence(self, rows: np.ndarray) -> np.ndarray: ...


@dataclass(eq=False)
class ValueIndex:
    """The elements of a window by the values of one column.

    Attributes:
        views: The segments.
        column: The column.
        axis: The axis its values are compared on; None if nobody asks about values.
        low: The window's first instant.
        high: Its last instant.
        before: Only elements with a smaller arrival number are seen.
        with_nulls: Whether elements with NULL are elements of one more value, with the key 0.
    """

    views: Sequence[IndexedView]
    column: str
    axis: Axis | None
    low: int
    high: int
    before: int
    with_nulls: bool = False

    @kept_property
    def runs(self) -> list[SortedRun]:
        """The segments' elements sorted by (value, time); without NULL."""
        assert self.axis is not None
        name = f"{self.column} ({self.axis.value}){' or NULL' * self.with_nulls}"
        return [view.get_run(name, lambda view=view: self._arrange(view)) for view in self.views]

    def _arrange(self, view: IndexedView) -> SortedRun:
        assert self.axis is not None
        coded = code_column(view.table[self.column], self.axis)
        keys = mix_numbers(np.ascontiguousarray(coded.numbers))
        if self.with_nulls and coded.nulls is not None:
            keys[coded.nulls] = 0
            return build(keys, np.ascontiguousarray(view.ts))
        return build(keys, np.ascontiguousarray(view.ts), coded.nulls)

    @kept_property
    def _distinct(self) -> tuple[Keys, Elements]:
        """The distinct keys of all runs, and an element that has each."""
        keys, numbers, rows = [], [], []
        for number, run in enumerate(self.runs):
            first = np.flatnonzero(np.append(True, run.keys[1:] != run.keys[:-1])[: len(run)])
            keys.append(run.keys[first])
            numbers.append(np.full(len(first), number, np.int64))
            rows.append(run.place[first].astype(np.int64))
        if not keys:
            return np.empty(0, np.uint64), (np.empty(0, np.int64), np.empty(0, np.int64))
        found, place = np.unique(np.concatenate(keys), return_index=True)
        return found, (np.concatenate(numbers)[place], np.concatenate(rows)[place])

    @property
    def keys(self) -> Keys:
        """The distinct values of the segments, as keys: equal for equal values, ascending."""
        return self._distinct[0]

    def first_elements(self) -> Elements:
        """An element of each value, in the order of `keys`."""
        return self._distinct[1]

    def values(self, places: Numbers | None = None) -> pa.ChunkedArray:
        """The values themselves, of all keys or of those at some places."""
        numbers, rows = self._distinct[1]
        if places is not None:
            numbers, rows = numbers[places], rows[places]
        return self.take((numbers, rows), [self.column])[self.column]

    def codes(self) -> Numbers:
        """The values as a summary codes them."""
        if self.axis is None or not len(self.keys):
            return np.empty(0, np.int64)
        return np.ascontiguousarray(code_column(self.values(), self.axis).numbers)

    def stretches(self, keys: Keys, since: Numbers, upto: Numbers) -> list[tuple[Numbers, Numbers]]:
        """Where elements of a key with since ≤ timestamp < upto lie in each run: from, to."""
        keys, since = np.ascontiguousarray(keys), np.maximum(since, self.low)
        upto = np.minimum(upto, self.high + 1)
        found = []
        for run in self.runs:
            low, high = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
            _search(run.keys, run.order, keys, since, low)
            _search(run.keys, run.order, keys, np.maximum(upto, since), high)
            found.append((low, high))
        return found

    def count(self, keys: Keys, since: Numbers, upto: Numbers) -> Numbers:
        """How many elements of each key there are in each stretch of time."""
        if any(view.arrived[1] >= self.before for view in self.views):
            region, _ = self.list_elements(keys, since, upto)
            return np.bincount(region, minlength=len(keys))
        total = np.zeros(len(keys), np.int64)
        for low, high in self.stretches(keys, since, upto):
            total += high - low
        return total

    def list_elements(self, keys: Keys, since: Numbers, upto: Numbers) -> tuple[Numbers, Elements]:
        """List the elements of some regions, region by region, the newest of each first.

        Returns:
            The number of the region of each element, and the elements.
        """
        regions, numbers, rows, stamps, arrivals = [], [], [], [], []
        for number, (low, high) in enumerate(self.stretches(keys, since, upto)):
            counts = high - low
            owner = np.repeat(np.arange(len(keys)), counts)
            offset = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
            places = self.runs[number].place[low[owner] + offset].astype(np.int64)
            regions.append(owner)
            numbers.append(np.full(len(owner), number, np.int64))
            rows.append(places)
            stamps.append(self.views[number].ts[places])
            arrivals.append(self.views[number].sequence(places))
        if not regions:
            empty = np.empty(0, np.int64)
            return empty, (empty, empty)
        region = np.concatenate(regions)
        sequence = np.concatenate(arrivals)
        order = np.lexsort((-sequence, -np.concatenate(stamps), region))
        order = order[sequence[order] < self.before]
        return region[order], (np.concatenate(numbers)[order], np.concatenate(rows)[order])

    def list_between(self, since: int, upto: int, nulls_only: bool = False) -> Elements:
        """List the elements with since ≤ timestamp < upto, the newest first."""
        numbers, rows, stamps, arrivals = [], [], [], []
        for number, view in enumerate(self.views):
            ends = [max(since, self.low), min(upto, self.high + 1)]
            first, last = np.searchsorted(view.ts, ends)
            own = np.arange(first, max(last, first), dtype=np.int64)
            if nulls_only:
                missing = view.table[self.column].slice(first, len(own)).is_null()
                own = own[missing.to_numpy()]
            numbers.append(np.full(len(own), number, np.int64))
            rows.append(own)
            stamps.append(view.ts[own])
            arrivals.append(view.sequence(own))
        if not rows:
            empty = np.empty(0, np.int64)
            return empty, empty
        sequence = np.concatenate(arrivals)
        order = np.lexsort((-sequence, -np.concatenate(stamps)))
        order = order[sequence[order] < self.before]
        return np.concatenate(numbers)[order], np.concatenate(rows)[order]

    def count_all(self) -> int:
        """How many elements the window has."""
        if any(view.arrived[1] >= self.before for view in self.views):
            return len(self.list_between(self.low, self.high + 1)[0])
        ends = [np.searchsorted(view.ts, [self.low, self.high + 1]) for view in self.views]
        return int(sum(max(last - first, 0) for first, last in ends))

    def take(self, elements: Elements, columns: Sequence[str]) -> pa.Table:
        """The elements' rows, in their order."""
        return take_elements(self.views, elements, columns)


def take_elements(
    views: Sequence[IndexedView], elements: Elements, columns: Sequence[str]
) -> pa.Table:
    """Take the rows of elements, in their order; there is at least one view."""
    numbers, rows = elements
    parts, places = [], np.empty(len(rows), np.int64)
    start = 0
    for number in np.unique(numbers):
        own = np.flatnonzero(numbers == number)
        parts.append(views[int(number)].table.select(list(columns)).take(pa.array(rows[own])))
        places[own] = np.arange(start, start + len(own))
        start += len(own)
    if not parts:
        return views[0].table.select(list(columns)).slice(0, 0)
    return pa.concat_tables(parts).take(pa.array(places))


@compiled(types.void(READ_U64, READ_I64, READ_U64, READ_I64, I64))
def _search(keys: Any, order: Any, wanted: Any, at: Any, out: Any) -> None:
    # pragma: no cover - compiled
    """Find for each (key, instant) the first place of a run that is not before it."""
    for i in range(len(wanted)):
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            key = keys[middle]
            if key < wanted[i] or (key == wanted[i] and order[middle] < at[i]):
                low = middle + 1
            else:
                high = middle
        out[i] = low
