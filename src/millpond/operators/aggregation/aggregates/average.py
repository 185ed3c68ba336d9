"""AVG of numbers: the sum as `SUM` computes it, divided by the count.

The steps are DuckDB's, in DuckDB's order, so that the average of whole numbers and decimals is the
same to the last bit: the sum becomes a double, the sum of decimals is divided by their power of
ten, and then the sum is divided by the count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.operators.aggregation.additive_measures import Counted, DoubleSum, WholeSum
from millpond.operators.aggregation.aggregate import (
    Aggregate,
    AggregateCall,
    NumberTrace,
    Trace,
    normalize_doubles,
)
from millpond.operators.aggregation.measures import Batch
from millpond.synopses.order_keys import is_whole
from millpond.synopses.running_totals import round_to_doubles

#: The functions that this file computes.
NAMES = ("avg",)


@dataclass(frozen=True)
class Average(Aggregate):
    """AVG.

    Attributes:
        scale: The argument's digits after the decimal point; None for doubles.
    """

    scale: int | None = 0

    def trace(self, batch: Batch) -> Trace:
        counts = batch.trace(Counted(self.argument))
        if self.scale is None:
            sums = batch.trace(DoubleSum(self.argument))
        else:
            sums = round_to_doubles(batch.trace(WholeSum(self.argument)))
            if self.scale:
                sums = sums / 10.0**self.scale
        valid = counts > 0
        return NumberTrace(normalize_doubles(sums / np.maximum(counts, 1), valid), valid, self.type)


def recognize(call: AggregateCall) -> Aggregate | None:
    """Make the aggregate of a call of one of `NAMES`; None if it cannot be incremental."""
    if call.of is None:
        return None
    if pa.types.is_floating(call.of):
        return Average(call.argument, call.gives, None)
    if pa.types.is_decimal128(call.of):
        return Average(call.argument, call.gives, call.of.scale)
    if is_whole(call.of) and not pa.types.is_boolean(call.of):
        return Average(call.argument, call.gives, 0)
    return None
