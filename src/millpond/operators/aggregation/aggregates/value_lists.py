"""LIST and STRING_AGG over one stream, whose rows have an order: all values of a group in that.

What they give is as long as the group, and is written anew at each change; the rows are not looked
for anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from millpond.operators.aggregation.aggregate import Aggregate, AggregateCall, Trace
from millpond.operators.aggregation.list_measures import JoinedTrace, ListedRows, ListTrace
from millpond.operators.aggregation.measures import Argument, Batch
from millpond.operators.aggregation.row_measures import RowOrdering
from millpond.synopses.order_keys import can_be_ordered

#: The functions that this file computes.
NAMES = ("list", "string_agg")


@dataclass(frozen=True)
class ValueList(Aggregate):
    """All values of a group.

    Attributes:
        rows: The rows that have them.
        separator: What stands between them, in a text; None: they are a list.
    """

    rows: ListedRows
    separator: str | None

    @property
    def columns(self) -> tuple[int | str | None, ...]:
        return (*super().columns, self.rows.value, *self.rows.ordering.columns)

    def trace(self, batch: Batch) -> Trace:
        rows = batch.trace(self.rows)
        if self.separator is None:
            return ListTrace(rows, self.type)
        return JoinedTrace(rows, self.separator)


def recognize(call: AggregateCall) -> Aggregate | None:
    """Make the aggregate of a call of one of `NAMES`; None if it cannot be incremental."""
    if call.of is None or not can_be_ordered(call.of) or not call.stamps or call.argument.distinct:
        return None
    assert call.argument.column is not None
    argument = Argument(chosen=call.argument.chosen)
    separator = None
    if call.name == "string_agg":
        separator = "," if call.by is None else call.text
        if separator is None or not pa.types.is_string(call.of):
            return None
        argument = replace(call.argument, type=None)
    elif call.by is not None:
        return None
    ordering = RowOrdering(call.order, call.stamps)
    rows = ListedRows(argument, ordering, call.argument.column, call.of)
    return ValueList(argument, call.gives, rows, separator)
