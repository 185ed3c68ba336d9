"""Duplicate elimination that keeps no input: δ* (Update patterns, 5.3.1).

Where no row is taken back before its expiration, δ* outputs a distinct row with the expiration of
one copy. Of the copies that come meanwhile, only the longest-lived copy matters: when the copy
that was output expires, the longest-lived copy takes over,

    [at, exp)   then   [exp, exp of the longest-lived)   then …

So δ* keeps two instants for each distinct row, whatever the number of copies: its state is at
most twice the output.

The direct approach also keeps the input, and scans it when an output row expires
("the input buffer is scanned to determine if there are any other tuples with value v that have not
expired", 2.1). `RescannedInput` does that, for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.model.patterns import RULES, Edge
from millpond.model.time import BEGINNING
from millpond.operators.protocol.cost_model import (
    GIVEN,
    LOOKED_AT,
    STARRED,
    STEPPED,
    WATCHED,
    ColumnEstimate,
    EdgeEstimate,
    StreamStatistics,
    estimate_wakeups,
)
from millpond.operators.protocol.delta import Bools, Delta, Ints
from millpond.operators.protocol.node import Operator, Scalars, Unary
from millpond.operators.protocol.precision import Precision, copies_of, eliminate_duplicates
from millpond.operators.protocol.purging import Purging
from millpond.operators.protocol.sharding import Sharding
from millpond.operators.structures.distinct_rows import DistinctRows
from millpond.operators.structures.group_rows import group_rows
from millpond.synopses.mapped_memory import grow_array

#: Before every instant: the expiration of a row that was never output.
_NEVER = BEGINNING - 2


@dataclass(frozen=True, eq=False)
class DistinctDeltaStar(Unary):
    """The distinct rows of an input without negative tuples.

    Attributes:
        input: The rows.
        keeps_input: Whether to keep all rows and scan them for the copy that takes over.
    """

    keeps_input: bool = False

    name = "distinct"
    purges = True

    def __post_init__(self) -> None:
        assert not self.input.announces

    @property
    def detail(self) -> str:
        return "" if self.keeps_input else "δ*"

    @property
    def state(self) -> str:
        if self.keeps_input:
            return "its input in order of arrival, its output by row"
        return "its output and who takes over, by row"

    @property
    def edge(self) -> Edge:
        return RULES["distinct"]([self.input.edge])

    @property
    def identity(self) -> tuple[bool, ...]:
        return (self.keeps_input,)

    @property
    def logical_identity(self) -> tuple[str]:
        return ("distinct",)

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        (given,) = inputs
        every = range(len(given.columns))
        rows = given.count_distinct(every)
        distinct = given.of(every).distinct
        columns = tuple(ColumnEstimate(c.distinct, 1 / max(1.0, rows)) for c in given.columns)
        # An output row lives as long as its copy does, then another copy takes over.
        life = given.life * (1 - rows / (2 * distinct)) if distinct else given.life
        return EdgeEstimate(rows / life if life else 0.0, 0.0, life, columns)

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        (given,) = inputs
        found = STARRED * given.arrivals + GIVEN * own.arrivals
        found += WATCHED * own.rows * known.steps + STEPPED * estimate_wakeups(
            given.arrivals, known
        )
        if not self.keeps_input:
            return found
        scans = min(known.steps, own.arrivals)
        return found + STARRED * given.arrivals + LOOKED_AT * given.rows * scans

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        every = range(len(self.schema))
        return eliminate_duplicates(inputs[0], copies_of(edges[0], every))

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        return inputs[0]

    def operator(self) -> Operator:
        return RescannedInput(self.schema) if self.keeps_input else LongestLives(self.schema)


@compiled(types.int64(*[READ_I64] * 5, *[I64] * 5))
def _take_over(  # type: ignore[no-untyped-def]
    order, starts, which, at, until, given, longest, out_key, out_at, out_until
):
    """Run through each row's copies; note the lives that are output."""
    found = 0
    for g in range(len(which)):
        key = which[g]
        end, best = given[key], longest[key]
        for i in range(starts[g], starts[g + 1]):
            row = order[i]
            if end <= at[row] and best > end:
                out_key[found], out_at[found], out_until[found] = key, end, best
                found += 1
                end = best
            if at[row] >= end:
                out_key[found], out_at[found], out_until[found] = key, at[row], until[row]
                found += 1
                end = until[row]
            best = max(best, until[row])
        given[key] = end
        longest[key] = best
    return found


@compiled(types.UniTuple(types.int64, 2)(I64, READ_I64, types.int64, I64, I64, I64))
def _hand_over(given, longest, upto, out_key, out_at, out_until):  # type: ignore[no-untyped-def]
    """Let the longest-lived copy take over where the copy that was output has expired.

    Return how many copies take over, and how many rows are still in the output.
    """
    found = 0
    living = 0
    for key in range(len(given)):
        end = given[key]
        if end <= upto and longest[key] > end:
            out_key[found], out_at[found], out_until[found] = key, end, longest[key]
            found += 1
            end = longest[key]
            given[key] = end
        if end > upto:
            living += 1
    return found, living


class LongestLives:
    """Runs `DistinctDeltaStar`: keeps each output row's end and its longest-lived copy's end."""

    def __init__(self, schema: pa.Schema) -> None:
        self._rows = DistinctRows(schema)
        self._given = np.full(64, _NEVER, np.int64)
        self._longest = np.full(64, _NEVER, np.int64)
        self._out = [np.empty(64, np.int64) for _ in range(3)]
        self.purging = Purging()

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        parts: list[tuple[Ints, Ints, Ints]] = []
        if len(delta):
            numbers = self._rows.number(delta.rows)
            self._given = grow_array(self._given, len(self._rows), _NEVER)
            self._longest = grow_array(self._longest, len(self._rows), _NEVER)
            order, starts, which = group_rows(numbers, len(self._rows))
            out = [np.empty(2 * len(delta), np.int64) for _ in range(3)]
            arguments = (delta.at, delta.until, self._given, self._longest)
            count = _take_over(order, starts, which, *arguments, *out)
            if count:
                parts.append((out[0][:count], out[1][:count], out[2][:count]))
        known = len(self._rows)
        if known > len(self._out[0]):
            self._out = [np.empty(2 * known, np.int64) for _ in range(3)]
        given, longest = self._given[:known], self._longest[:known]
        count, living = _hand_over(given, longest, upto, *self._out)
        if count:
            parts.append((self._out[0][:count], self._out[1][:count], self._out[2][:count]))
        if not parts:
            self._forget(upto, living)
            return delta.slice(0, 0)
        keys, at, until = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        in_time = np.lexsort((until, at))
        rows = self._rows.pick(keys[in_time])
        found = Delta.of(rows, at[in_time], until[in_time])
        self._forget(upto, living)
        return found

    def _forget(self, upto: int, living: int) -> None:
        """Drop rows that have no copy any more, when it is time."""
        known = len(self._rows)
        due = self.purging.is_due(upto)
        if due:
            self._purge(upto)
        by_share = self.purging.by_share and self._rows.is_worth_compacting(living)
        if living == known or not (due or by_share):
            return
        alive = self._given[:known] > upto
        self._renumber(self._rows.compact(alive))
        for name in ("_given", "_longest"):
            moved = np.full(max(64, 2 * living), _NEVER, np.int64)
            moved[:living] = getattr(self, name)[:known][alive]
            setattr(self, name, moved)

    def _purge(self, upto: int) -> None:
        """Purge expired state that is kept beside the rows."""

    def _renumber(self, moved: Ints) -> None:
        """Take over the rows' new numbers."""

    def size(self) -> int:
        return len(self._rows)


@compiled(types.void(READ_I64, READ_I64, READ_I64, types.int64, I64))
def _look_through(numbers, until, given, upto, longest):  # type: ignore[no-untyped-def]
    """Find the longest-lived copy of each row whose output copy has expired."""
    for i in range(len(numbers)):
        key = numbers[i]
        if given[key] <= upto and until[i] > longest[key]:
            longest[key] = until[i]


class RescannedInput(LongestLives):
    """Runs a `DistinctDeltaStar` that keeps its input; expired copies are purged lazily."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._numbers = np.empty(0, np.int64)
        self._until = np.empty(0, np.int64)
        self._count = 0
        self._enough = 0
        self._position = _NEVER

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        given = self._given[: len(self._rows)]
        if ((given > self._position) & (given <= upto)).any():
            held = (self._numbers[: self._count], self._until[: self._count])
            _look_through(*held, self._given, upto, self._longest)
        if len(delta):
            self._keep(delta)
        found = super().advance(inputs, upto, scalars)
        self._longest.fill(_NEVER)
        self._position = upto
        if self.purging.by_share and self._count > 2 * self._enough:
            self._purge(upto)
        return found

    def _purge(self, upto: int) -> None:
        self._choose(self._until[: self._count] > upto)
        self._enough = max(self._count, 64)

    def _keep(self, delta: Delta) -> None:
        numbers = self._rows.number(delta.rows)
        low, high = self._count, self._count + len(delta)
        self._numbers = grow_array(self._numbers, high, 0)
        self._until = grow_array(self._until, high, 0)
        self._numbers[low:high], self._until[low:high] = numbers, delta.until
        self._count = high

    def _choose(self, kept: Bools) -> None:
        self._numbers = self._numbers[: self._count][kept]
        self._until = self._until[: self._count][kept]
        self._count = len(self._until)

    def _renumber(self, moved: Ints) -> None:
        # All copies of a forgotten row have expired.
        self._numbers = moved[self._numbers[: self._count]]
        self._choose(self._numbers >= 0)

    def size(self) -> int:
        return len(self._rows) + self._count
