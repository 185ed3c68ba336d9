"""VAR_SAMP, VAR_POP, STDDEV_SAMP, STDDEV_POP, SEM of numbers as doubles.

    variance = (n * sum(x^2) − sum(x)^2) / (n * m),    m = n or n − 1

The numerator is exact (a difference of exact sums) and rounded once. DuckDB updates mean and
squared distances row by row (Welford), whose last digits depend on the order; here they do not.
After the numerator there is one division, and one root for the deviation; SEM, the standard error
of the mean, divides STDDEV_POP by the root of n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.operators.aggregation.additive_measures import Counted, VarianceNumerator
from millpond.operators.aggregation.aggregate import (
    Aggregate,
    AggregateCall,
    NumberTrace,
    Trace,
    normalize_doubles,
)
from millpond.operators.aggregation.measures import Batch
from millpond.synopses.order_keys import is_whole

#: The functions that this file computes -> their attributes (of_sample, root, of_mean).
NAMES = {
    "var_samp": (True, False, False),
    "var_pop": (False, False, False),
    "stddev_samp": (True, True, False),
    "stddev_pop": (False, True, False),
    "sem": (False, True, True),
}


@dataclass(frozen=True)
class Variance(Aggregate):
    """A variance, a standard deviation or a standard error of the mean.

    Attributes:
        of_sample: Whether the divisor is n − 1 and not n.
        root: Whether it is the standard deviation.
        of_mean: Whether that is divided by the root of n.
    """

    of_sample: bool = True
    root: bool = False
    of_mean: bool = False

    def trace(self, batch: Batch) -> Trace:
        counts = batch.trace(Counted(self.argument))
        moments = batch.trace(VarianceNumerator(self.argument))
        valid = counts > (1 if self.of_sample else 0)
        n = np.maximum(counts, 2 if self.of_sample else 1).astype(np.float64)
        divisor = n * (n - 1.0) if self.of_sample else n * n
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            exponents = np.clip(moments.exponent, -5_000, 5_000).astype(np.int32)
            values = np.ldexp(moments.significand / divisor, exponents)
            if self.root:
                values = np.sqrt(values)
            if self.of_mean:
                values = values / np.sqrt(n)
        if not self.of_mean:
            # DuckDB computes no distance for a single value, even an infinite one: the result is 0.
            values[counts == 1] = 0.0
        return NumberTrace(normalize_doubles(values, valid), valid, self.type)


def recognize(call: AggregateCall) -> Aggregate | None:
    """Make the aggregate of a call of one of `NAMES`; None if it cannot be incremental."""
    if call.of is None or pa.types.is_boolean(call.of):
        return None
    if not pa.types.is_floating(call.of) and not is_whole(call.of):
        return None
    return Variance(call.argument, call.gives, *NAMES[call.name])
