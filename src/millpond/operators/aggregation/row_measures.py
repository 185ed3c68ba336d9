"""Rows of a group that are picked by an order, for the value that each has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.patterns import Pattern
from millpond.operators.aggregation.aggregate import EntryTrace
from millpond.operators.aggregation.measures import Argument, Batch, Measure, MeasureState
from millpond.operators.aggregation.ordered_measures import PickedState
from millpond.operators.protocol.delta import Bools, Ints
from millpond.synopses.multiset_walks import GREATEST, LEAST
from millpond.synopses.order_keys import pick_valid, to_whole_numbers
from millpond.synopses.valued_orders import OrderTerm, RowOrder, ValuedKeys, write_rows

#: The entries that are picked: the first row, and the last.
FIRST, LAST = 0, 1


@dataclass(frozen=True)
class RowOrdering:
    """What orders the rows of a batch, and tells them apart.

    Attributes:
        terms: Columns, and how each of them orders rows.
        stamps: Columns (int64) that order rows behind them, and differ for each two rows.
    """

    terms: tuple[tuple[int | str, OrderTerm], ...]
    stamps: tuple[int, ...]

    @property
    def columns(self) -> tuple[int | str, ...]:
        """The columns it reads."""
        return (*(column for column, _ in self.terms), *self.stamps)

    @property
    def order(self) -> RowOrder:
        """How rows are written."""
        return RowOrder(tuple(term for _, term in self.terms), len(self.stamps))

    def write(self, batch: Batch, value: int | str) -> pa.Array:
        """Write the rows of a batch in their order, each with a value."""
        columns = [batch.column(column) for column, _ in self.terms]
        stamps = [to_whole_numbers(batch.column(place)) for place in self.stamps]
        return write_rows(self.order.write(columns, stamps), batch.column(value))


@dataclass(frozen=True)
class PickedRows(Measure):
    """The first and the last row of each group: a trace of `Picks`.

    Attributes:
        argument: The rows that take part.
        by: A column; rows where it is NULL take no part.
        ordering: What orders the rows.
        value: The column of the value.
        of: The column's type.
    """

    argument: Argument
    by: int | str | None
    ordering: RowOrdering
    value: int | str
    of: pa.DataType

    def start(self, leaving: Pattern) -> MeasureState:
        return PickedRowsState(self, leaving)


class PickedRowsState(PickedState):
    """Keeps `PickedRows`."""

    def __init__(self, measure: PickedRows, leaving: Pattern) -> None:
        order = ValuedKeys(measure.ordering.order, measure.of)
        super().__init__(order, (LEAST, GREATEST), 0.0, leaving)
        self._measure = measure

    def read(self, batch: Batch) -> tuple[pa.Array, Ints, Ints]:
        own = self._measure
        placed = batch.placed_weights(own.argument)
        if own.by is not None and (by := batch.column(own.by)).null_count:
            placed = np.where(by.is_valid().to_numpy(zero_copy_only=False), placed, 0)
        return own.ordering.write(batch, own.value), placed, placed.take(batch.cells.order)


@dataclass(frozen=True, eq=False)
class ValueTrace(EntryTrace):
    """A trace of the values of the rows that were picked: another row may have the same."""

    def differs(self) -> Bools:
        differs = super().differs()
        others = np.flatnonzero(differs)
        before, after = self._cut(others), self._cut(others + 1)
        equal = pc.fill_null(pc.equal(before, after), False)
        same = pc.or_(equal, pc.and_(before.is_null(), after.is_null()))
        differs[others[same.to_numpy(zero_copy_only=False)]] = False
        return differs

    def _cut(self, places: Ints) -> pa.Array:
        keys, order = self.picks.keys[:, self.entry].take(places), self.picks.order
        assert isinstance(order, ValuedKeys)
        return order.cut_values(keys, pick_valid(self.picks.valid, places))
