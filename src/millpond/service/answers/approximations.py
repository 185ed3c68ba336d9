"""The bounds of `approx_…` functions' values in an answer."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from millpond.model.approximation import CONFIDENCE, COUNT_DISTINCT, ERROR, LEAST_HASHES, QUANTILE
from millpond.model.loss import Bounds
from millpond.planner.bind.bound_query import BoundQuery

#: Their error is relative to the value. That of `approx_count` is relative to all counts.
_BOUNDED = (COUNT_DISTINCT, QUANTILE)


def bound_approximations(bound: BoundQuery, table: pa.Table) -> Bounds | None:
    """Bound the columns that are values of `approx_…` functions; None if there are none."""
    bounded = [(place, name) for place, name in bound.approximations if name in _BOUNDED]
    if not bounded:
        return None
    columns = {
        bound.output.names[place]: [
            _bound(function, value) for value in table.column(place).to_pylist()
        ]
        for place, function in bounded
    }
    return Bounds(CONFIDENCE, columns)


def _bound(function: str, value: Any) -> tuple[float, float] | None:
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if function == COUNT_DISTINCT and value < LEAST_HASHES:
        return float(value), float(value)
    low, high = sorted((value / (1 + ERROR), value / (1 - ERROR)))
    return low, high
