"""SUM and COUNT_IF: exact for whole numbers and decimals; for doubles exact, then rounded once."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millpond.operators.aggregation.additive_measures import Counted, DoubleSum, WholeSum
from millpond.operators.aggregation.aggregate import (
    Aggregate,
    AggregateCall,
    NumberTrace,
    Trace,
    TwoWordTrace,
    normalize_doubles,
)
from millpond.operators.aggregation.measures import Batch
from millpond.synopses.order_keys import is_whole

#: The functions that this file computes.
NAMES = ("sum", "count_if")


@dataclass(frozen=True)
class SumOfWholes(Aggregate):
    """SUM of whole numbers or decimals: DuckDB's HUGEINT, or DECIMAL(38, scale)."""

    def trace(self, batch: Batch) -> Trace:
        valid = batch.trace(Counted(self.argument)) > 0
        return TwoWordTrace(batch.trace(WholeSum(self.argument)), valid, self.type)


@dataclass(frozen=True)
class SumOfDoubles(Aggregate):
    """SUM of FLOAT or DOUBLE."""

    def trace(self, batch: Batch) -> Trace:
        valid = batch.trace(Counted(self.argument)) > 0
        return NumberTrace(
            normalize_doubles(batch.trace(DoubleSum(self.argument)), valid), valid, self.type
        )


def recognize(call: AggregateCall) -> Aggregate | None:
    """Make the aggregate of a call of one of `NAMES`; None if it cannot be incremental."""
    if call.of is None:
        return None
    if call.name == "count_if":
        # As in DuckDB: COUNT_IF is a sum, so a HUGEINT, and NULL where there is nothing to count.
        return SumOfWholes(call.argument, call.gives) if call.of == pa.bool_() else None
    if pa.types.is_floating(call.of):
        return SumOfDoubles(call.argument, call.gives)
    if is_whole(call.of) or pa.types.is_decimal128(call.of):
        return SumOfWholes(call.argument, call.gives)
    return None
