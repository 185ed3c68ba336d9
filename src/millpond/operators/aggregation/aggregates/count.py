"""COUNT(*), COUNT(x), COUNT(DISTINCT x)."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.operators.aggregation.additive_measures import Counted
from millpond.operators.aggregation.aggregate import Aggregate, AggregateCall, NumberTrace, Trace
from millpond.operators.aggregation.measures import Batch

#: The functions that are followed here.
NAMES = ("count",)


@dataclass(frozen=True)
class Count(Aggregate):
    """How many rows, or values that are not NULL."""

    def trace(self, batch: Batch) -> Trace:
        return NumberTrace(batch.trace(Counted(self.argument)), None, self.type)

    def of_nothing(self) -> int:
        return 0


def recognize(call: AggregateCall) -> Aggregate | None:
    """The aggregate of a call of one of `NAMES`, if it can be followed."""
    return Count(call.argument, call.gives)
