"""COUNT(*), COUNT(x), COUNT(DISTINCT x)."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.operators.aggregation.additive_measures import Counted
from millpond.operators.aggregation.aggregate import Aggregate, AggregateCall, NumberTrace, Trace
from millpond.operators.aggregation.measures import Batch

#: The functions that this file computes.
NAMES = ("count",)


@dataclass(frozen=True)
class Count(Aggregate):
    """The number of rows, or of values that are not NULL."""

    def trace(self, batch: Batch) -> Trace:
        return NumberTrace(batch.trace(Counted(self.argument)), None, self.type)

    def of_nothing(self) -> int:
        return 0


def recognize(call: AggregateCall) -> Aggregate | None:
    """Make the aggregate of a call of one of `NAMES`; None if it cannot be incremental."""
    return Count(call.argument, call.gives)
