"""BOOL_AND, BOOL_OR: by how many are true and how many there are."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millpond.operators.aggregation.additive_measures import Counted, WholeSum
from millpond.operators.aggregation.aggregate import Aggregate, AggregateCall, NumberTrace, Trace
from millpond.operators.aggregation.measures import Batch

#: The functions that are followed here.
NAMES = ("bool_and", "bool_or")


@dataclass(frozen=True)
class Truth(Aggregate):
    """Whether all are true, or any is."""

    of_all: bool = True

    def trace(self, batch: Batch) -> Trace:
        counts = batch.trace(Counted(self.argument))
        true = batch.trace(WholeSum(self.argument))[:, 0]
        values = true == counts if self.of_all else true > 0
        valid = counts > 0
        return NumberTrace(values & valid, valid, self.type)


def recognize(call: AggregateCall) -> Aggregate | None:
    """The aggregate of a call of one of `NAMES`, if it can be followed."""
    if call.of != pa.bool_():
        return None
    return Truth(call.argument, call.gives, call.name == "bool_and")
