"""Duplicate elimination over one synopsis: of each row when it came last (Bulletin 2.2).

There is a store with a stub for each reader (`protocol/stubs.py`). `KeptDistinct` is the store: the
distinct rows of a stream, each with the timestamp of its last element, as long as the longest of
the windows may hold it. A `SharedDistinct` is a stub, the distinct rows of one window over time. An
element with the timestamp t is in a window of the length m until t + m. So, if the last equal
element before it had the timestamp s, or if there was none, the row of the element

    comes at t,      if s + m < t, and left at s + m,
    leaves at t + m, if no equal element comes until then.

The rows that leave in a step came last in one stretch of time, which the store's log has side by
side (`structures/distinct_rows.py`).

INV-RECENT-2: every row is kept that one of the readers' windows holds.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.model.patterns import RULES, Edge
from millpond.model.time import END
from millpond.operators.protocol.delta import Delta, Ints
from millpond.operators.protocol.node import Node, Operator, Scalars, Unary
from millpond.operators.protocol.purging import Purging
from millpond.operators.protocol.stubs import Stub, StubOperator
from millpond.operators.structures.distinct_rows import NEVER, ExpiringRows, RecentRows


@dataclass(frozen=True, eq=False)
class RecentDelta(Delta):
    """The elements of a step, with the store that holds them; their `rows` are empty.

    Attributes:
        kept: The store, when they had come.
        numbers: The numbers of their rows there.
        previous: For each the timestamp of the last equal element before it; NEVER: none.
        after: The last instant of the step before.
    """

    kept: RecentRows
    numbers: Ints
    previous: Ints
    after: int

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, eq=False)
class KeptDistinct(Unary):
    """The distinct rows of its input, kept for all windows over it.

    Attributes:
        input: The elements, in the order of their timestamps.
    """

    name = "kept rows"
    purges = True
    serves_readers = True
    lends = True
    identity = ()

    @property
    def edge(self) -> Edge:
        return RULES["distinct"]([self.input.edge])

    def operator(self) -> Operator:
        return KeepingDistinct(self.schema)


class KeepingDistinct:
    """Runs `KeptDistinct`.

    What it lends is read before it runs again, so rows leave it when the next step begins.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.purging = Purging()
        self._rows = RecentRows(schema)
        self._none = Delta.empty(schema).rows
        #: How long the longest of the windows holds an element.
        self._length = 0
        self._position = NEVER

    def serve(self, needed: Set[int], readers: Sequence[Node]) -> None:
        """Keep from now on what the windows of these readers hold."""
        lengths = [reader.lengths[0] for reader in readers if isinstance(reader, SharedDistinct)]
        self._length = max(lengths, default=0)
        self._rows.set_since(self._position - self._length)

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        self._forget()
        numbers, previous = self._rows.add(delta.rows, delta.at)
        after, self._position = self._position, upto
        self._rows.set_since(upto - self._length)
        given = self._none, delta.at, delta.until, delta.weight
        return RecentDelta(*given, self._rows, numbers, previous, after)

    def _forget(self) -> None:
        """Drop the rows that are in no window any more, when it is time."""
        due = self.purging.is_due(self._position)
        by_share = self.purging.by_share and self._rows.is_worth_forgetting()
        if self._rows.living < len(self._rows) and (due or by_share):
            self._rows.forget()

    def absorb(self, other: KeepingDistinct) -> None:
        """Take over the rows that only an operator of an equal node keeps."""
        lengths = (other._length,)
        self.take_over(other.hand_over(lengths), lengths)

    def hand_over(self, lengths: tuple[int, ...]) -> ExpiringRows:
        (length,) = lengths
        numbers, at = self._rows.find(self._position - length, END)
        return ExpiringRows(self._rows.pick(numbers), at + length, self._position)

    def take_over(self, rows: ExpiringRows, lengths: tuple[int, ...]) -> None:
        """Take over the rows of a window of this length.

        Of a row that is in the window until the end of time it is not known when it came. It counts
        as one that came earlier, and never leaves this window or a longer one.
        """
        (length,) = lengths
        self._position = rows.position
        self._rows.merge(rows.rows, rows.until - length)

    def size(self) -> int:
        return len(self._rows)


@dataclass(frozen=True, eq=False)
class SharedDistinct(Stub):
    """The distinct rows of a window over kept rows; they leave by negative tuples."""

    several = "DISTINCTs"

    def operator(self) -> Operator:
        return SharedDistincting(self)


@compiled(types.int64(*[READ_I64] * 3, *[types.int64] * 2, *[I64] * 3))
def _come(numbers, at, previous, length, position, out_key, out_at, out_sign):  # type: ignore[no-untyped-def]
    """Note which rows come, and which left before they come again; return how many changes."""
    found = 0
    for i in range(len(numbers)):
        end = previous[i] + length
        there = previous[i] != NEVER and end > position
        # What expired up to `position` has left, even if an element comes at that instant.
        if there and at[i] <= end:
            continue
        if there:
            out_key[found], out_at[found], out_sign[found] = numbers[i], end, -1
            found += 1
        out_key[found], out_at[found], out_sign[found] = numbers[i], at[i], 1
        found += 1
    return found


class SharedDistincting(StubOperator):
    """Runs `SharedDistinct`: finds the rows that come and leave; keeps none."""

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        assert isinstance(delta, RecentDelta)
        (length,) = self.lengths
        out = [np.empty(2 * len(delta), np.int64) for _ in range(3)]
        given = delta.numbers, np.ascontiguousarray(delta.at), delta.previous
        count = _come(*given, length, delta.after, *out)
        keys, at, sign = (values[:count] for values in out)
        left, came = delta.kept.find(delta.after - length, upto - length)
        if not count and not len(left):
            return Delta.empty(delta.rows.schema)
        keys, at = np.concatenate([keys, left]), np.concatenate([at, came + length])
        sign = np.concatenate([sign, np.full(len(left), -1, np.int64)])
        in_time = np.argsort(at, kind="stable")
        rows = delta.kept.pick(keys[in_time])
        return Delta.of(rows, at[in_time], None, sign[in_time])
