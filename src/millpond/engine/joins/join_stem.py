"""A Data SteM in use: one stream's elements while a join probes them.

The elements lie in parts (the segments, or the slice of a window). Each part has the runs that
probes needed so far; a place is an element's number through all parts. The store hands in the runs
it has; other runs are built when first probed, which is what makes SteMs lazy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import int64, types

from millpond.engine.joins.arrangement import SortedRun, build
from millpond.engine.joins.keys import CodedColumn, Numbers, code_column, combine_columns
from millpond.engine.joins.plan import TS, ArrangementKey, Value
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.model.compiled import I64, READ_I64, compiled
from millpond.model.kept_property import kept_property

#: Query sets: a row of words for every element or tuple.
QuerySets = npt.NDArray[np.uint64]


class StemPart:
    """Elements that lie together, in the order of time.

    Args:
        table: Their columns; the timestamp under `__ts`.
        offset: The place of the first element.
        arrivals: Gives the arrival numbers of some rows, or of a slice of them; needed where the
            order of arrival matters.
        is_old: Whether all of them came before everything that is new to the join.
        sets: Their query sets, as rows of words; None when every element may be in any answer.
        stored: Gives the store's runs for a key, one run a shard; None where it has none.
    """

    def __init__(
        self,
        table: pa.Table,
        offset: int = 0,
        arrivals: Callable[[Any], Numbers] = lambda rows: rows,
        is_old: bool = False,
        sets: QuerySets | None = None,
        stored: Callable[[StemPart, ArrangementKey], list[SortedRun] | None] = lambda part, key: (
            None
        ),
    ) -> None:
        self.table = table
        self.offset = offset
        self.arrivals = arrivals
        self.is_old = is_old
        self.sets = sets
        self._stored = stored
        self._numbers: dict[Value, CodedColumn] = {}
        self._runs: dict[ArrangementKey, list[SortedRun]] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def numbers(self, value: Value) -> CodedColumn:
        """Return the value's number for every element.

        Raises:
            MillpondError: POND-404 when DuckDB cannot evaluate it.
        """
        found = self._numbers.get(value)
        if found is None:
            if value.column is not None:
                column = self.table[value.column]
            else:
                column = ScalarEvaluator.of_this_thread().values(self.table, value.sql)
            found = self._numbers[value] = code_column(column, value.on)
        return found

    @kept_property
    def every_arrival(self) -> Numbers:
        """The arrival numbers of all elements."""
        return self.arrivals(slice(None))

    @kept_property
    def arrived(self) -> tuple[int, int]:
        """The least and greatest arrival number; (-1, -1) for an old or empty part."""
        if self.is_old or not len(self):
            return -1, -1
        return int(self.every_arrival.min()), int(self.every_arrival.max())

    def runs(self, key: ArrangementKey) -> list[SortedRun]:
        """Return the elements sorted by the key: one run, or one run for each shard."""
        found = self._runs.get(key)
        if found is None:
            found = self._stored(self, key)
            if found is None:
                found = [self.build_run(key)]
            self._runs[key] = found
        return found

    def build_run(self, key: ArrangementKey, shard: tuple[int, int] = (0, 1)) -> SortedRun:
        """Build the run of a shard."""
        keys, absent = None, None
        if key.values:
            keys, absent = combine_columns([self.numbers(v) for v in key.values])
        order = self.numbers(key.order)
        if order.nulls is not None:
            absent = order.nulls if absent is None else absent | order.nulls
        return build(keys, np.ascontiguousarray(order.numbers), absent, shard)


class JoinSteM:
    """The parts of one stream of a join; their offsets ascend without gaps."""

    def __init__(self, parts: list[StemPart]) -> None:
        self.parts = parts
        self._starts = np.array([p.offset for p in parts], np.int64)

    @property
    def count(self) -> int:
        return sum(len(part) for part in self.parts)

    def arrivals(self, places: Numbers) -> Numbers:
        """Return the arrival numbers of the elements at some places."""
        home = self._home(places)
        if home is not None:
            return home.arrivals(places - home.offset)
        out = np.zeros(len(places), np.int64)
        for part, mine in self.by_part(places):
            out[mine] = part.arrivals(places[mine] - part.offset)
        return out

    def query_sets(self, places: Numbers) -> QuerySets | None:
        """Return the query sets of the elements at some places; None when all are full."""
        width = next((p.sets.shape[1] for p in self.parts if p.sets is not None), None)
        if width is None:
            return None
        out = np.full((len(places), width), ~np.uint64(0), np.uint64)
        for part, mine in self.by_part(places):
            if part.sets is not None:
                out[mine] = part.sets[places[mine] - part.offset]
        return out

    def by_part(self, places: Numbers) -> Iterator[tuple[StemPart, Numbers]]:
        """Yield each part that some of the places are in, with the indices of those places."""
        home = self._home(places)
        if home is not None:
            yield home, np.arange(len(places))
            return
        ends = np.zeros(len(self.parts) + 1, np.int64)
        order = np.empty(len(places), np.int64)
        _by_part(np.ascontiguousarray(places), self._starts, ends, order)
        for number in np.flatnonzero(np.diff(ends)).tolist():
            yield self.parts[number], order[ends[number] : ends[number + 1]]

    def _home(self, places: Numbers) -> StemPart | None:
        """Return the part that holds all of the places, if there is one; tuples mostly set out
        from one part."""
        if len(self.parts) == 1:
            return self.parts[0]
        if not len(places):
            return None
        part = self.parts[int(np.searchsorted(self._starts, places[0], side="right")) - 1]
        inside = _are_all_within(np.ascontiguousarray(places), part.offset, part.offset + len(part))
        return part if inside else None

    def gather(self, value: Value, places: Numbers) -> CodedColumn:
        """Return the value's numbers for the elements at some places."""
        home = self._home(places)
        if home is not None:
            own = home.numbers(value)
            at = places - home.offset
            return CodedColumn(own.numbers[at], None if own.nulls is None else own.nulls[at])
        numbers = np.zeros(len(places), np.int64)
        nulls = np.zeros(len(places), np.bool_)
        for part, mine in self.by_part(places):
            own = part.numbers(value)
            at = places[mine] - part.offset
            numbers[mine] = own.numbers[at]
            if own.nulls is not None:
                nulls[mine] = own.nulls[at]
        return CodedColumn(numbers, nulls if nulls.any() else None)


@compiled(types.boolean(READ_I64, int64, int64))
def _are_all_within(places: Any, low: Any, high: Any) -> Any:  # pragma: no cover - compiled
    i = 0
    while i < len(places) and low <= places[i] < high:
        i += 1
    return i == len(places)


@compiled(types.void(READ_I64, READ_I64, I64, I64))
def _by_part(
    places: Any, starts: Any, ends: Any, order: Any
) -> None:  # pragma: no cover - compiled
    """Sort the indices of `places` by part, and keep their order within a part."""
    own = np.empty(len(places), np.int32)
    part = int64(0)
    for i in range(len(places)):
        place = places[i]
        # Neighbours are mostly of one part.
        if place < starts[part] or (part + 1 < len(starts) and place >= starts[part + 1]):
            part = int64(np.searchsorted(starts, place, side="right")) - 1
        own[i] = part
        ends[part + 1] += 1
    for k in range(len(ends) - 1):
        ends[k + 1] += ends[k]
    cursor = ends[:-1].copy()
    for i in range(len(places)):
        order[cursor[own[i]]] = i
        cursor[own[i]] += 1


def with_time(table: pa.Table, column: str | None) -> pa.Table:
    """Rename the timestamp column of a slice to `__ts` (None: no timestamp is needed)."""
    if TS in table.column_names:
        return table
    if column is None or column not in table.column_names:
        stamps = pa.array(np.zeros(table.num_rows, np.int64))
    else:
        stamps = table[column].cast(pa.int64())
    return table.append_column(TS, stamps)
