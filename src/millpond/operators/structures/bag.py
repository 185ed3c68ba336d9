"""A bag that varies with time, for operators that need all of its rows at an instant."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.nested_values import needs_keys, rank
from millpond.operators.protocol.delta import Bools, Delta, Ints
from millpond.operators.structures.group_rows import group_rows
from millpond.operators.structures.key_numbers import KeyNumbers


class Bag:
    """The rows of one input by the instants at which they came, with the interval of each.

    A negative tuple ends the oldest row with its values.

    INV-BAG-1: unless rows keep the order in which they came, their order is a function of the rows
    and their instants. So what is computed of them, and rounded on the way, is the same however the
    feed was cut, and behind a restart.

    Args:
        in_arrival_order: Whether rows that came at one instant keep the order in which they came.
            Else they are in the order of their values.
    """

    def __init__(self, schema: pa.Schema, *, in_arrival_order: bool = True) -> None:
        self._in_arrival_order = in_arrival_order
        self._rows = Delta.empty(schema).rows
        self._at: Ints = np.empty(0, np.int64)
        self._until: Ints = np.empty(0, np.int64)

    def take_in(self, delta: Delta, upto: int) -> list[int]:
        """Add a delta; return the instants up to `upto` at which the bag changes."""
        copies = np.repeat(np.arange(len(delta)), np.abs(delta.weight))
        if len(copies) != len(delta):
            signs = np.sign(delta.weight)
            delta = Delta(delta.rows, delta.at, delta.until, signs).take(copies)
        positive, negative = delta.where(delta.weight > 0), delta.where(delta.weight < 0)
        self._rows = pa.concat_batches([self._rows, positive.rows])
        self._at = np.concatenate([self._at, positive.at])
        self._until = np.concatenate([self._until, positive.until])
        if len(positive) and not self._in_arrival_order:
            self._arrange(int(np.searchsorted(self._at, positive.at.min())))
        if len(negative):
            self._end(negative)
        starts, ends = positive.at, self._until[self._until <= upto]
        alive = self._at < self._until
        if not alive.all():
            self._keep(alive)
        return np.unique(np.concatenate([starts, ends])).tolist()

    def _end(self, negative: Delta) -> None:
        """End rows: the k-th negative tuple of a value (and end) ends the k-th row of the value."""
        rows = pa.concat_batches([self._rows, negative.rows])
        until = pa.array(np.concatenate([self._until, negative.until]))
        keys = KeyNumbers([*rows.schema.types, pa.int64()])
        order, starts, _ = group_rows(keys.number([*rows.columns, until]), len(keys))
        rank = np.empty(len(order), np.int64)
        count = len(self._at)
        is_negative = order >= count
        # Rows of a group come before its negative tuples, each in their own order.
        rank[order] = np.arange(len(order)) - np.repeat(starts[:-1], np.diff(starts))
        group = np.empty(len(order), np.int64)
        group[order] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        rows_of = np.bincount(group[:count], minlength=len(starts) - 1)
        ended = order[is_negative]
        nth = rank[ended] - rows_of[group[ended]]
        self._until = self._until.copy()
        self._until[order[starts[group[ended]] + nth]] = negative.at[ended - count]

    def _arrange(self, start: int) -> None:
        """Put the rows from a place on in the order of their instants, and of their values."""
        at = self._at[start:]
        if not (np.diff(at) <= 0).any():
            return
        rows = self._rows.slice(start)
        words = [rank(c) if needs_keys(c.type) else c for c in rows.columns]
        names = [str(place) for place in range(len(words) + 1)]
        keys = pa.Table.from_arrays([pa.array(at), *words], names)
        order = pc.sort_indices(keys, [(name, "ascending") for name in names])
        arranged = rows.take(order)
        self._rows = pa.concat_batches([self._rows.slice(0, start), arranged])
        places = order.to_numpy()
        self._at = np.concatenate([self._at[:start], at[places]])
        self._until = np.concatenate([self._until[:start], self._until[start:][places]])

    def at(self, instant: int) -> pa.RecordBatch:
        """The bag at an instant, in its order."""
        alive = (self._at <= instant) & (instant < self._until)
        return self._rows if alive.all() else self._rows.filter(pa.array(alive))

    def rows(self) -> pa.RecordBatch:
        """All rows kept, in their order."""
        return self._rows

    def lives(self) -> tuple[Ints, Ints]:
        """The instants from which, and before which, each row is in the bag."""
        return self._at, self._until

    def forget(self, upto: int) -> None:
        """Drop the rows that have left."""
        self._keep(self._until > upto)

    def renumber(self, moved: Ints) -> None:
        """Replace the numbers in the last column: number i becomes `moved[i]`."""
        last = self._rows.num_columns - 1
        numbers = pa.array(moved[self._rows.column(last).to_numpy()])
        self._rows = self._rows.set_column(last, self._rows.schema.field(last), numbers)

    def _keep(self, chosen: Bools) -> None:
        if not chosen.all():
            self._rows = self._rows.filter(pa.array(chosen))
            self._at, self._until = self._at[chosen], self._until[chosen]

    def size(self) -> int:
        return len(self._at)
