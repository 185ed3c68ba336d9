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
from millpond.synopses.order_keys import make_order_keys, pick_valid, to_whole_numbers
from millpond.synopses.valued_orders import ValuedKeys, write_rows

#: The entries that are picked: the first row, and the last.
FIRST, LAST = 0, 1


@dataclass(frozen=True)
class PickedRows(Measure):
    """The first and the last row of each group: a trace of `Picks`.

    Attributes:
        argument: The rows that take part.
        by: What orders the rows before their stamps; rows where it is NULL take no part.
        falling: Whether the greatest of `by` comes first.
        stamps: Columns (int64) that order the rows behind it, and tell them apart.
        value: The column of the value.
        of: The column's type.
    """

    argument: Argument
    by: Argument | None
    falling: bool
    stamps: tuple[int, ...]
    value: int | str
    of: pa.DataType

    def start(self, leaving: Pattern) -> MeasureState:
        return PickedRowsState(self, leaving)


class PickedRowsState(PickedState):
    """Keeps `PickedRows`."""

    def __init__(self, measure: PickedRows, leaving: Pattern) -> None:
        order = ValuedKeys(len(measure.stamps) + (measure.by is not None), measure.of)
        super().__init__(order, (LEAST, GREATEST), 0.0, leaving)
        self._measure = measure

    def read(self, batch: Batch) -> tuple[pa.Array, Ints, Ints]:
        own = self._measure
        placed = batch.placed_weights(own.argument)
        order = [to_whole_numbers(batch.column(place)) for place in own.stamps]
        if own.by is not None:
            by = batch.column(own.by.column)
            keys = make_order_keys(by.type).encode(by, placed)
            order = [~keys if own.falling else keys, *order]
            if by.null_count:
                placed = np.where(by.is_valid().to_numpy(zero_copy_only=False), placed, 0)
        rows = write_rows(order, batch.column(own.value))
        return rows, placed, placed.take(batch.cells.order)


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
