"""Duplicate elimination that keeps no input and announces by negative tuples when a row leaves.

δ* (`operators/distinct_delta_star.py`; Update patterns, 5.3.1) outputs a row with the expiration
of one copy. When that copy expires, δ* outputs the row again with the expiration of another copy.
A reader of changes then sees the row leave and come back at one instant, over and over, though
the row was there all the time. Where negative tuples must announce expirations anyway, this
operator does the work of δ* and of `Expire` together. It keeps for each distinct row the instant
at which its last copy expires:

    a row comes when it is not there     and leaves, by a negative tuple, at that instant,

so a repeated row causes no output, and the state is no larger than the output. The paper has no
such operator: there the next operator needs the expirations of δ*'s output.

INV-LAST-1: a row is there at an instant if and only if its last copy expires after that instant.
INV-LAST-2: no row of a block leaves before the block is due.

Cost: each input row looks up its key; a step looks at one instant for each block of 256 rows, and
at the rows of those blocks from which a row leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.model.patterns import RULES, Edge
from millpond.model.time import BEGINNING, END
from millpond.operators.protocol.cost_model import (
    GIVEN,
    STARRED,
    STEPPED,
    WATCHED,
    EdgeEstimate,
    StreamStatistics,
    estimate_wakeups,
)
from millpond.operators.protocol.delta import Delta, Ints
from millpond.operators.protocol.node import Operator, Scalars, Unary
from millpond.operators.protocol.precision import Precision, copies_of, eliminate_duplicates
from millpond.operators.protocol.purging import Purging
from millpond.operators.protocol.sharding import Sharding
from millpond.operators.structures.distinct_rows import DistinctRows, ExpiringRows
from millpond.operators.structures.group_rows import group_rows
from millpond.synopses.mapped_memory import grow_array

#: Rows of a block: 2 ** SHIFT.
_SHIFT = 8
#: Before every instant: the expiration of a row that never had a copy.
_NEVER = BEGINNING - 2


@dataclass(frozen=True, eq=False)
class DistinctAnnouncing(Unary):
    """The distinct rows of an input without negative tuples; they leave by negative tuples."""

    name = "distinct"
    detail = "δ*, announcing"
    state = "its output, by row"
    carries_expirations = False
    announces = True
    identity = ()
    purges = True

    def __post_init__(self) -> None:
        assert not self.input.announces

    @property
    def logical_identity(self) -> tuple[str]:
        return ("distinct",)

    @property
    def edge(self) -> Edge:
        return RULES["distinct"]([self.input.edge])

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        (given,) = inputs
        every = range(len(given.columns))
        rows = given.count_distinct(every)
        # A row comes where it was not there before.
        arrivals = given.arrivals * math.exp(-given.rows / max(given.of(every).distinct, 1.0))
        life = rows / arrivals if arrivals else given.life
        return EdgeEstimate(arrivals, arrivals, life, given.columns)

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        (given,) = inputs
        changes = STARRED * given.arrivals + GIVEN * own.changes
        # A step looks at one instant of each block, and at all rows of a block that a row leaves.
        leaving = min(own.rows / (1 << _SHIFT) * known.steps, own.negatives)
        watched = own.rows / (1 << _SHIFT) * known.steps + leaving * (1 << _SHIFT)
        return changes + WATCHED * watched + STEPPED * estimate_wakeups(given.arrivals, known)

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        every = range(len(self.schema))
        return eliminate_duplicates(inputs[0], copies_of(edges[0], every))

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        return inputs[0]

    def operator(self) -> Operator:
        return LastCopies(self.schema)


@compiled(types.UniTuple(types.int64, 2)(*[READ_I64] * 5, types.int64, *[I64] * 5))
def _come(  # type: ignore[no-untyped-def]
    order, starts, which, at, until, position, last, due, out_key, out_at, out_sign
):
    """Run through each row's copies; note when the row comes, and when it leaves in between.

    Return the number of changes, and how many of the rows were not there at `position`.
    """
    found = 0
    fresh = 0
    for g in range(len(which)):
        key = which[g]
        end = last[key]
        fresh += end <= position
        for i in range(starts[g], starts[g + 1]):
            row = order[i]
            # What expired up to `position` has left, even if a copy comes at that instant.
            if at[row] > end or end <= position:
                if end > position:
                    out_key[found], out_at[found], out_sign[found] = key, end, -1
                    found += 1
                out_key[found], out_at[found], out_sign[found] = key, at[row], 1
                found += 1
            end = max(end, until[row])
        last[key] = end
        due[key >> _SHIFT] = min(due[key >> _SHIFT], end)
    return found, fresh


@compiled(types.int64(READ_I64, I64, types.int64, types.int64, I64, I64))
def _leave(last, due, position, upto, out_key, out_at):  # type: ignore[no-untyped-def]
    """Note the rows whose last copy expires after `position` and up to `upto`."""
    found = 0
    for block in range(((len(last) - 1) >> _SHIFT) + 1):
        if due[block] > upto:
            continue
        least = END
        for key in range(block << _SHIFT, min((block + 1) << _SHIFT, len(last))):
            end = last[key]
            if end > upto:
                least = min(least, end)
            elif end > position:
                out_key[found], out_at[found] = key, end
                found += 1
        due[block] = least
    return found


class LastCopies:
    """Runs `DistinctAnnouncing`: keeps for each row the expiration of its last copy."""

    def __init__(self, schema: pa.Schema) -> None:
        self._rows = DistinctRows(schema)
        self._last = np.full(64, _NEVER, np.int64)
        #: For each block, the least expiration of a row that is there.
        self._due = np.full(1, END, np.int64)
        self._out = [np.empty(64, np.int64) for _ in range(2)]
        self._living = 0
        self._position = _NEVER
        self.purging = Purging()

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        parts = [self._take_in(delta)] if len(delta) else []
        known = len(self._rows)
        if known > len(self._out[0]):
            self._out = [np.empty(2 * known, np.int64) for _ in range(2)]
        count = _leave(self._last[:known], self._due, self._position, upto, *self._out)
        if count:
            keys, at = (values[:count] for values in self._out)
            parts.append((keys, at, np.full(count, -1, np.int64)))
            self._living -= count
        self._position = upto
        if not any(len(keys) for keys, _, _ in parts):
            found = delta.slice(0, 0)
        else:
            keys, at, sign = (np.concatenate(columns) for columns in zip(*parts, strict=True))
            in_time = np.argsort(at, kind="stable")
            rows = self._rows.pick(keys[in_time])
            found = Delta.of(rows, at[in_time], None, sign[in_time])
        self._forget()
        return found

    def _take_in(self, delta: Delta) -> tuple[Ints, Ints, Ints]:
        """Take in copies; return (row, instant, sign) of the changes they cause."""
        numbers = self._rows.number(delta.rows)
        known = len(self._rows)
        self._last = grow_array(self._last, known, _NEVER)
        self._due = grow_array(self._due, ((known - 1) >> _SHIFT) + 1, END)
        out = [np.empty(2 * len(delta), np.int64) for _ in range(3)]
        copies = (*group_rows(numbers, known), delta.at, delta.until)
        count, fresh = _come(*copies, self._position, self._last, self._due, *out)
        self._living += fresh
        keys, at, sign = (values[:count] for values in out)
        return keys, at, sign

    def _forget(self) -> None:
        """Drop rows that have no copy any more, when it is time."""
        known = len(self._rows)
        due = self.purging.is_due(self._position)
        by_share = self.purging.by_share and self._rows.is_worth_compacting(self._living)
        if self._living == known or not (due or by_share):
            return
        last = self._last[:known]
        alive = last > self._position
        self._rows.compact(alive)
        self._lay_out(last[alive])

    def _lay_out(self, last: Ints) -> None:
        """Lay out anew when the last copies of the rows expire, all of which are there."""
        count = self._living = len(last)
        self._last = np.full(max(64, 2 * count), _NEVER, np.int64)
        self._last[:count] = last
        self._due = np.full(((len(self._last) - 1) >> _SHIFT) + 1, END, np.int64)
        if count:
            starts = np.arange(0, count, 1 << _SHIFT)
            self._due[: len(starts)] = np.minimum.reduceat(self._last[:count], starts)

    def hand_over(self, lengths: tuple[int, ...]) -> ExpiringRows:
        there = np.flatnonzero(self._last[: len(self._rows)] > self._position)
        return ExpiringRows(self._rows.pick(there), self._last[there], self._position)

    def take_over(self, rows: ExpiringRows, lengths: tuple[int, ...]) -> None:
        """Begin with the rows that were kept for it."""
        self._rows.number(rows.rows)
        self._lay_out(rows.until)
        self._position = rows.position

    def size(self) -> int:
        return len(self._rows)
