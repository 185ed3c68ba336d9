"""Window functions over rows that only come, in the order of their time.

Where the rows of a partition are ordered by the instants at which they come, and none ever leaves,
a row's frame (the rows that its window functions look at) is complete when the row comes:

    ROWS BETWEEN a PRECEDING AND b PRECEDING     the rows a to b places before it
    RANGE BETWEEN T PRECEDING AND CURRENT ROW    from time T before it up to the end of its instant

So each row is given once, with the values of its functions, and never taken back. From one row's
frame to the next of its partition some rows enter and some leave. Aggregates follow them as those
of a group follow changes of the group: the same measures, exact, and dependent on no history
(`operators/aggregation`). Here a cell is a row of a partition, or an instant where frames are of
time. A partition keeps its measures, and the last rows as far back as its frames reach.

INV-FRAME-1: a row's values depend on the rows of its partition up to its instant, in the order they
came, and not on how they were cut into steps. If a step begins with the instant with which the step
before ended, rows of that instant whose frames have grown are taken back and given anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.model.patterns import MONOTONIC
from millpond.model.time import BEGINNING
from millpond.operators.aggregation.aggregate import Aggregate
from millpond.operators.aggregation.frames import FollowedFrame, RowFrame, Walk, list_events
from millpond.operators.protocol.cost_model import (
    GROUPED,
    UNKNOWN,
    EdgeEstimate,
    StreamStatistics,
)
from millpond.operators.protocol.delta import Bools, Delta, Ints, positional_schema, with_nulls
from millpond.operators.protocol.node import Node, Operator, Scalars, Unary
from millpond.operators.protocol.sharding import Sharding
from millpond.operators.structures.key_numbers import KeyNumbers
from millpond.operators.structures.row_store import RowStore
from millpond.operators.structures.trailing_rows import TrailingRows
from millpond.synopses.mapped_memory import grow_array

#: The places of the columns of PARTITION BY; empty: all rows are one partition.
By = tuple[int, ...]


@dataclass(frozen=True)
class WindowCall(ABC):
    """A window function as a query calls it; a dataclass of plain values.

    Attributes:
        by: The partition.
        type: The type of its values.
    """

    by: By
    type: pa.DataType

    @property
    @abstractmethod
    def read(self) -> Set[int]:
        """The places of the columns that it reads, beside those of the partition."""


@dataclass(frozen=True)
class FramedAggregate(WindowCall):
    """An aggregate of the rows of a frame; its argument is a column by place."""

    frame: RowFrame
    aggregate: Aggregate

    @property
    def read(self) -> Set[int]:
        argument = self.aggregate.argument
        return frozenset(p for p in (argument.column, argument.chosen) if isinstance(p, int))


@dataclass(frozen=True)
class RowNumber(WindowCall):
    """`row_number`, `rank` or `dense_rank`: rows of one instant have one rank."""

    name: str

    read = frozenset[int]()


@dataclass(frozen=True)
class EarlierValue(WindowCall):
    """`lag`, or `first_value` where frames begin with the partition.

    Attributes:
        column: The value's column.
        rows: How many rows before; None: of the partition's first row.
        otherwise: The column with the value where there is no such row; None: NULL.
    """

    column: int
    rows: int | None
    otherwise: int | None = None

    @property
    def read(self) -> Set[int]:
        return frozenset(p for p in (self.column, self.otherwise) if p is not None)


@dataclass(frozen=True, eq=False)
class RunningFrames(Unary):
    """Its input's rows with the values of window functions.

    Attributes:
        input: The rows, of which `find_times` knows. Columns from `shown` on are only read.
        shown: How many of the input's columns are columns of the output, before the values.
        calls: The window functions.
        text: The window functions as the query wrote them, for EXPLAIN.
    """

    shown: int
    calls: tuple[WindowCall, ...]
    text: str = ""

    name = "running window functions"
    edge = MONOTONIC

    @property
    def state(self) -> str:
        return "measures and last rows by partition" if self._has_keys else "measures, last rows"

    @property
    def _has_keys(self) -> bool:
        return any(call.by for call in self.calls)

    @property
    def announces(self) -> bool:
        return any(isinstance(c, FramedAggregate) and c.frame.of_time for c in self.calls)

    @property
    def timed_inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        shown = self.input.schema.types[: self.shown]
        return positional_schema([*shown, *(call.type for call in self.calls)])

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.shown, tuple(repr(call) for call in self.calls))

    def reads(self, places: Set[int]) -> tuple[Set[int], ...]:
        # Its state has what all functions read, whoever reads them.
        own = (place for call in self.calls for place in (*call.by, *call.read))
        return (frozenset(p for p in places if p < self.shown).union(own),)

    def trace_column(self, place: int) -> int | None:
        return place if place < self.shown else None

    def find_times(self) -> frozenset[int] | None:
        return self.trace_times()

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        common = frozenset.intersection(*(frozenset(call.by) for call in self.calls))
        known = inputs[0] or {}
        return {p: columns for p, columns in known.items() if p in common and p < self.shown}

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        (given,) = inputs
        columns = (*given.columns[: self.shown], *(UNKNOWN for _ in self.calls))
        return replace(given, columns=columns)

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        return GROUPED * len(self.calls) * own.changes

    def operator(self) -> Operator:
        return RunningOverFrames(self.shown, self.calls, self.input.schema, self.schema)


class RunningOverFrames:
    """Runs `RunningFrames`: keeps partitions, and the rows of the last instant."""

    def __init__(
        self, shown: int, calls: tuple[WindowCall, ...], given: pa.Schema, schema: pa.Schema
    ) -> None:
        self._shown, self._calls, self._schema = shown, calls, schema
        self._partitions = {
            by: _Partitions(by, [call for call in calls if call.by == by], given)
            for by in dict.fromkeys(call.by for call in calls)
        }
        #: What of the output a row may change that comes at the instant of earlier rows.
        self._revised = [
            (place, call)
            for place, call in enumerate(calls, shown)
            if isinstance(call, FramedAggregate) and call.frame.of_time
        ]
        #: The rows of the last instant, and by partition columns their partitions' numbers.
        self._last = Delta.empty(schema)
        self._last_numbers = dict.fromkeys(self._partitions, self._last.at)

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        if not len(delta):
            return Delta.empty(self._schema)
        steps = {by: own.follow(delta, scalars) for by, own in self._partitions.items()}
        values = [steps[call.by].values(call) for call in self._calls]
        shown = delta.rows.columns[: self._shown]
        found = delta.with_rows(_batch([*shown, *values], self._schema))
        if not self._revised:
            return found
        parts = [found]
        if len(self._last) and self._last.at[0] == delta.at[0]:
            parts = [*self._revise(steps), found]
        self._note_last(found, steps)
        return Delta.together(parts)

    def _revise(self, steps: dict[By, _Step]) -> list[Delta]:
        """Take back the rows of the last instant that have other values now; give them anew."""
        before = self._last
        columns = list(before.rows.columns)
        changed = np.zeros(len(before), bool)
        for place, call in self._revised:
            step, numbers = steps[call.by], self._last_numbers[call.by]
            grown, places = step.walks[call.frame].find_grown(numbers, int(before.at[0]))
            values = step.walks[call.frame].traces[call.aggregate].values(places).cast(call.type)
            columns[place] = pc.if_else(pa.array(grown), values, columns[place])
            changed |= grown
        self._last = before.with_rows(_batch(columns, self._schema))
        gone = before.where(changed)
        gone = Delta(gone.rows, gone.at, gone.until, -gone.weight)
        return [gone, self._last.where(changed)]

    def _note_last(self, found: Delta, steps: dict[By, _Step]) -> None:
        """Note the rows of the last instant, with those that earlier steps gave."""
        last = np.flatnonzero(found.at == found.at[-1])
        rows = found.take(last)
        numbers = {by: step.numbers[last] for by, step in steps.items()}
        if len(self._last) and self._last.at[0] == rows.at[0]:
            rows = Delta.together([self._last, rows])
            for by, known in self._last_numbers.items():
                numbers[by] = np.concatenate([known, numbers[by]])
        self._last, self._last_numbers = rows, numbers

    def size(self) -> int:
        return sum(partitions.size() for partitions in self._partitions.values())


@dataclass(eq=False)
class _Step:
    """What a step brings to the partitions by some columns.

    Attributes:
        rows: The rows.
        numbers: The number of each row's partition.
        ranks: By name, the numbers of rows.
        earlier: By how many rows before (None: first), which rows have such a row, and the rows.
        walks: By frame, the walk of its aggregates.
    """

    rows: pa.RecordBatch
    numbers: Ints
    ranks: dict[str, Ints]
    earlier: dict[int | None, tuple[Bools, pa.RecordBatch]]
    walks: dict[RowFrame, Walk]

    def values(self, call: WindowCall) -> pa.Array:
        """Compute the values of a window function."""
        if isinstance(call, RowNumber):
            return pa.array(self.ranks[call.name])
        if isinstance(call, FramedAggregate):
            walk = self.walks[call.frame]
            return walk.traces[call.aggregate].values(walk.places)
        assert isinstance(call, EarlierValue)
        known, rows = self.earlier[call.rows]
        missing: Any = pa.scalar(None, call.type)
        if call.otherwise is not None:
            missing = self.rows.column(call.otherwise)
        return pc.if_else(pa.array(known), rows.column(call.column), missing)


class _Partitions:
    """The partitions by some columns: their numbers, and what their functions need."""

    def __init__(self, by: By, calls: Sequence[WindowCall], given: pa.Schema) -> None:
        self._by, self._given = by, given
        self._keys = KeyNumbers([given.field(place).type for place in by])
        aggregates = [call for call in calls if isinstance(call, FramedAggregate)]
        frames = tuple(dict.fromkeys(call.frame for call in aggregates))
        self._frames = [
            FollowedFrame(f, [c.aggregate for c in aggregates if c.frame == f]) for f in frames
        ]
        self._earlier = {call.rows for call in calls if isinstance(call, EarlierValue)}
        lags = {rows for rows in self._earlier if rows is not None}
        lags |= {frame.end for frame in frames if frame.end}
        lags |= {f.start + 1 for f in frames if f.start is not None and not f.of_time}
        spans = {f.start for f in frames if f.start is not None and f.of_time}
        # Rows without columns would have no number.
        self._kept = tuple(sorted({place for call in calls for place in call.read})) or (0,)
        schema = positional_schema([given.field(place).type for place in self._kept])
        self._trail = TrailingRows(schema, sorted(lags), sorted(spans)) if lags or spans else None
        #: The first row of each partition, by its number.
        self._firsts = RowStore(schema) if None in self._earlier else None
        self._ranks = _Ranks() if any(isinstance(call, RowNumber) for call in calls) else None

    def follow(self, delta: Delta, scalars: Scalars) -> _Step:
        """Take in new rows."""
        known, numbers = len(self._keys), np.zeros(len(delta), np.int64)
        if self._by:
            numbers = self._keys.number([delta.rows.column(place) for place in self._by])
        else:
            self._keys.number_empty_rows()
        keys, at = len(self._keys), np.ascontiguousarray(delta.at)
        step = _Step(delta.rows, numbers, {}, {}, {})
        if self._ranks is not None:
            step.ranks = self._ranks.number(numbers, at, keys)
        if self._firsts is not None:
            # Partitions are numbered in the order in which they first appear.
            new, places = np.unique(numbers, return_index=True)
            self._firsts.add(self._choose(delta.rows.take(pa.array(places[new >= known]))))
            first = self._spread(self._firsts.pick(numbers))
            step.earlier[None] = (np.ones(len(delta), bool), first)
        before: dict[int, Ints] = {}
        left: dict[int, tuple[Ints, Ints]] = {}
        base, trail = 0, self._trail
        if trail is not None:
            base = trail.add(self._choose(delta.rows), numbers, at, keys)
            for number, lag in enumerate(trail.lags):
                before[lag] = trail.trail_by_rows(number, numbers, base)
            for number, span in enumerate(trail.spans):
                left[span] = trail.trail_by_time(number, numbers, base)
            for earlier in before.keys() & self._earlier:
                there = before[earlier] >= 0
                places = np.where(there, before[earlier], base)
                step.earlier[earlier] = (there, self._spread(trail.pick(places)))
        for followed in self._frames:
            events = list_events(followed.frame, len(delta), base, before, left)
            rows = delta.rows
            if events.places is not None:
                assert trail is not None
                rows = self._spread(trail.pick(events.places))
            walk = followed.walk(rows, events, numbers, at, keys, scalars)
            step.walks[followed.frame] = walk
        return step

    def _choose(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Choose the columns that are kept."""
        columns = [rows.column(place) for place in self._kept]
        return _batch(columns, positional_schema([c.type for c in columns]))

    def _spread(self, kept: pa.RecordBatch) -> pa.RecordBatch:
        """Put the columns that are kept at their places among the input's."""
        given = dict(zip(self._kept, kept.columns, strict=True))
        return with_nulls(given, self._given, kept.num_rows)

    def size(self) -> int:
        return len(self._keys) + (0 if self._trail is None else self._trail.size())


class _Ranks:
    """Numbers the rows of each partition."""

    def __init__(self) -> None:
        #: For each partition its last instant, its rows before it, its rows, and its instants.
        self._kept = [np.zeros(0, np.int64) for _ in range(4)]

    def number(self, numbers: Ints, at: Ints, keys: int) -> dict[str, Ints]:
        """Number new rows, in the ways of the functions of these names."""
        fills = (BEGINNING - 1, 0, 0, 0)
        self._kept = [grow_array(k, keys, fill) for k, fill in zip(self._kept, fills, strict=True)]
        names = ("row_number", "rank", "dense_rank")
        found = {name: np.empty(len(numbers), np.int64) for name in names}
        _number_rows(numbers, at, *self._kept, *found.values())
        return found


@compiled(types.void(READ_I64, READ_I64, I64, I64, I64, I64, I64, I64, I64))
def _number_rows(numbers, at, last, before, count, instants, row, rank, dense):  # type: ignore[no-untyped-def]
    for i in range(len(numbers)):
        key = numbers[i]
        if last[key] != at[i]:
            last[key] = at[i]
            before[key] = count[key]
            instants[key] += 1
        count[key] += 1
        row[i], rank[i], dense[i] = count[key], before[key] + 1, instants[key]


def _batch(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    pairs = zip(columns, schema, strict=True)
    fitted = [c if c.type == f.type else c.cast(f.type) for c, f in pairs]
    return pa.RecordBatch.from_arrays(fitted, schema=schema)
