"""BOOL_AND, BOOL_OR, from the count of true values and the count of all values."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millpond.operators.aggregation.additive_measures import Counted, WholeSum
from millpond.operators.aggregation.aggregate import Aggregate, AggregateCall, NumberTrace, Trace
from millpond.operators.aggregation.measures import Batch

#: The functions that this file computes.
NAMES = ("bool_and", "bool_or")


@dataclass(frozen=True)
class BoolAndOr(Aggregate):
    """Whether all values are true, or any is."""

    of_all: bool = True

    def trace(self, batch: Batch) -> Trace:
        counts = batch.trace(Counted(self.argument))
        true = batch.trace(WholeSum(self.argument))[:, 0]
        values = true == counts if self.of_all else true > 0
        valid = counts > 0
        return NumberTrace(values & valid, valid, self.type)


def recognize(call: AggregateCall) -> Aggregate | None:
    """Make the aggregate of a call of one of `NAMES`; None if it cannot be incremental."""
    if call.of != pa.bool_():
        return None
    return BoolAndOr(call.argument, call.gives, call.name == "bool_and")
