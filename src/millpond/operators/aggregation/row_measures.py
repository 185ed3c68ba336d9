"""Rows of a group that are picked by an order, for the value that each has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.operators.aggregation.cells import find_differences
from millpond.operators.aggregation.measures import Argument, Batch, Measure, MeasureState
from millpond.operators.aggregation.ordered_measures import Picks, hold_keys
from millpond.operators.protocol.delta import Bools, Ints
from millpond.synopses.multiset_walks import GREATEST, LEAST
from millpond.synopses.order_keys import LabelKeys, make_order_keys, pick_valid, to_whole_numbers
from millpond.synopses.valued_orders import NO_VALUE, cut_values, read_values, write_rows

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
    """

    argument: Argument
    by: Argument | None
    falling: bool
    stamps: tuple[int, ...]
    value: int | str

    @property
    def numbers(self) -> int:
        """The number of numbers that order a row."""
        return len(self.stamps) + (self.by is not None)

    def start(self, only_grows: bool) -> MeasureState:
        return PickedRowsState(self, only_grows)


class PickedRowsState(MeasureState):
    """Keeps `PickedRows`."""

    def __init__(self, measure: PickedRows, only_grows: bool) -> None:
        self._measure = measure
        self._order = LabelKeys(pa.binary())
        kinds = (LEAST, GREATEST)
        self._held = hold_keys(self._order, kinds, only_grows)
        self._kinds = np.array(kinds, np.int64)
        self._shares = np.zeros(len(kinds))

    def advance(self, batch: Batch) -> Picks:
        own = self._measure
        weights = batch.placed_weights(own.argument)
        order = [to_whole_numbers(batch.column(place)) for place in own.stamps]
        if own.by is not None:
            by = batch.column(own.by.column)
            keys = make_order_keys(by.type).encode(by, weights)
            order = [~keys if own.falling else keys, *order]
            if by.null_count:
                weights = np.where(by.is_valid().to_numpy(zero_copy_only=False), weights, 0)
        rows = write_rows(order, batch.column(own.value))
        labels = self._order.encode(rows, weights)
        self._held.reserve(batch.groups)
        in_order = weights.take(batch.cells.order)
        trace = self._held.walk(batch.cells, in_order, labels, self._kinds, self._shares)
        counts = trace[:, -1]
        return Picks(trace[:, :-1], counts > 0, counts, self._order)

    def renumber(self, moved: Ints, groups: int) -> None:
        self._held.renumber(moved, groups)

    def size(self) -> int:
        return self._held.size() + self._order.size()


@dataclass(frozen=True, eq=False)
class ValueTrace:
    """A trace of the values of the rows that were picked."""

    picks: Picks
    entry: int
    numbers: int
    of: pa.DataType
    type: pa.DataType

    def differs(self) -> Bools:
        differs = find_differences(self.picks.keys[:, self.entry], self.picks.valid)
        # Another row may have the same value.
        others = np.flatnonzero(differs)
        before, after = (pc.fill_null(self._cut(p), NO_VALUE) for p in (others, others + 1))
        same = pc.equal(before, after).to_numpy(zero_copy_only=False)
        differs[others[same]] = False
        return differs

    def values(self, places: Ints) -> pa.Array:
        values = read_values(self._cut(places), self.of)
        return values if values.type == self.type else values.cast(self.type)

    def _cut(self, places: Ints) -> pa.Array:
        keys = self.picks.keys[:, self.entry].take(places)
        rows = self.picks.order.decode(keys, pick_valid(self.picks.valid, places))
        return cut_values(rows, self.numbers)
