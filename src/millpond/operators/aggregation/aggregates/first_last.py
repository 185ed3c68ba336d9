"""FIRST, LAST, ANY_VALUE, ARG_MIN and ARG_MAX over one stream, whose rows have an order.

They are given the elements by timestamp, and in one instant as they arrived
(`planner/resolve/row_order.py`). So each is the value of the first or the last row in an order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millpond.operators.aggregation.aggregate import Aggregate, AggregateCall, Trace
from millpond.operators.aggregation.measures import Argument, Batch
from millpond.operators.aggregation.row_measures import (
    FIRST,
    LAST,
    PickedRows,
    RowOrdering,
    ValueTrace,
)
from millpond.synopses.order_keys import can_be_ordered
from millpond.synopses.valued_orders import OrderTerm

#: The functions that this file computes.
NAMES = ("first", "last", "any_value", "arg_min", "arg_max", "arg_min_null", "arg_max_null")


@dataclass(frozen=True)
class PickedValue(Aggregate):
    """The value of a row that is picked.

    Attributes:
        rows: The rows it is picked from.
        entry: Which of them.
    """

    rows: PickedRows
    entry: int

    @property
    def columns(self) -> tuple[int | str | None, ...]:
        return (*super().columns, self.rows.value, self.rows.by, *self.rows.ordering.columns)

    @property
    def is_extreme(self) -> bool:
        # Elements come in order, about: with each the last one is another.
        return self.entry == FIRST

    def trace(self, batch: Batch) -> Trace:
        return ValueTrace(batch.trace(self.rows), self.entry, self.type)


def recognize(call: AggregateCall) -> Aggregate | None:
    """Make the aggregate of a call of one of `NAMES`; None if it cannot be incremental."""
    if call.of is None or not can_be_ordered(call.of) or not call.stamps or call.argument.distinct:
        return None
    assert call.argument.column is not None
    takes_null = call.name in ("first", "last", "arg_min_null", "arg_max_null")
    argument = Argument(chosen=call.argument.chosen) if takes_null else call.argument
    by, terms = None, call.order
    if call.by is not None:
        by, of = call.by.column, call.by.type
        if by is None or of is None or not can_be_ordered(of):
            return None
        terms = ((by, OrderTerm(of, falling=call.name.startswith("arg_max"))), *terms)
    ordering = RowOrdering(terms, call.stamps)
    rows = PickedRows(replace(argument, type=None), by, ordering, call.argument.column, call.of)
    return PickedValue(argument, call.gives, rows, LAST if call.name == "last" else FIRST)
