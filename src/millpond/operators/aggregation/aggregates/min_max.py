"""MIN and MAX of anything with an order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millpond.operators.aggregation.aggregate import Aggregate, AggregateCall, EntryTrace, Trace
from millpond.operators.aggregation.measures import Batch
from millpond.operators.aggregation.ordered_measures import Picked
from millpond.synopses.multiset_walks import GREATEST, LEAST
from millpond.synopses.order_keys import can_be_ordered

#: The functions that this file computes.
NAMES = ("min", "max")


@dataclass(frozen=True)
class MinMax(Aggregate):
    """The least or the greatest value."""

    greatest: bool = False

    @property
    def is_extreme(self) -> bool:
        return True

    def trace(self, batch: Batch) -> Trace:
        # Copies do not matter, and one measure keeps both ends: MIN and MAX share it.
        argument = replace(self.argument, distinct=False)
        picks = batch.trace(Picked(argument, (LEAST, GREATEST)))
        return EntryTrace(picks, int(self.greatest), self.type)


def recognize(call: AggregateCall) -> Aggregate | None:
    """Make the aggregate of a call of one of `NAMES`; None if it cannot be incremental."""
    if call.of is None or not can_be_ordered(call.of):
        return None
    return MinMax(call.argument, call.gives, call.name == "max")
