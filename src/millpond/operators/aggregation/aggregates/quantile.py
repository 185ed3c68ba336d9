"""QUANTILE_DISC, QUANTILE_CONT, MEDIAN.

The discrete quantile is one of n values in order; the continuous quantile lies between the two
values around place (n − 1) * share. DuckDB interpolates doubles, floats, decimals and times each in
its own way. This file interpolates in the same ways, and also rounds as DuckDB does: DuckDB rounds
a product and a sum either once or twice (once with a fused multiply-add), depending on how it was
compiled. A query that runs once finds out which.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.operators.aggregation.aggregate import (
    Aggregate,
    AggregateCall,
    EntryTrace,
    NumberTrace,
    Trace,
    TwoWordTrace,
    normalize_doubles,
)
from millpond.operators.aggregation.measures import Batch
from millpond.operators.aggregation.ordered_measures import Picked
from millpond.synopses.multiset_walks import ABOVE, BELOW, DISCRETE
from millpond.synopses.order_keys import can_be_ordered, is_whole, to_doubles, to_whole_numbers
from millpond.synopses.wide_integers import fuse_multiply_add

Doubles = npt.NDArray[np.float64]

#: The functions that this file computes.
NAMES = ("quantile_disc", "quantile_cont", "median")
#: Microseconds of a day.
_DAY = 86_400_000_000


@dataclass(frozen=True)
class DiscreteQuantile(Aggregate):
    """The first value such that at least the given share of the values lie up to it."""

    share: float = 0.5

    def trace(self, batch: Batch) -> Trace:
        argument = replace(self.argument, distinct=False)
        return EntryTrace(batch.trace(Picked(argument, (DISCRETE,), self.share)), 0, self.type)


@dataclass(frozen=True)
class ContinuousQuantile(Aggregate):
    """The value interpolated between the two values around the place of the share.

    Attributes:
        share: Which quantile.
        is_fused: Whether DuckDB rounds a product and a sum together, once.
    """

    share: float = 0.5
    is_fused: bool = True

    def trace(self, batch: Batch) -> Trace:
        argument = replace(self.argument, distinct=False)
        picks = batch.trace(Picked(argument, (BELOW, ABOVE), self.share))
        valid = picks.valid
        everywhere = np.arange(len(valid))
        below, above = picks.values(0, everywhere), picks.values(1, everywhere)
        place = np.maximum(picks.counts - 1, 0) * self.share
        part = place - np.floor(place)
        if pa.types.is_decimal128(self.type):
            low, high = to_whole_numbers(below), to_whole_numbers(above)
            between = self._sum(low.astype(np.float64), (high - low).astype(np.float64), part)
            # Both ends of the step are exact: a rounded one could leave the range.
            words = np.where(part == 0, low, between.astype(np.int64))
            return TwoWordTrace(np.stack([words, words >> 63], axis=1), valid, self.type)
        if pa.types.is_timestamp(self.type):
            unit = _DAY if pa.types.is_date32(below.type) else 1
            low, high = to_whole_numbers(below) * unit, to_whole_numbers(above) * unit
            mixed = self._mix(low.astype(np.float64), high.astype(np.float64), part)
            away = np.copysign(np.floor(np.abs(mixed) + 0.5), mixed)
            instants = np.where(part == 0, low, away.astype(np.int64))
            return NumberTrace(np.where(valid, instants, 0), valid, self.type)
        is_single = pa.types.is_float32(self.type)
        with np.errstate(invalid="ignore"):
            least, most = to_doubles(below), to_doubles(above)
            if is_single:
                mixed = self._sum(least, most - least, part)
            else:
                mixed = self._mix(least, most, part)
            mixed = np.where(part == 0, least, mixed)
        if is_single:
            mixed = mixed.astype(np.float32).astype(np.float64)
        return NumberTrace(normalize_doubles(mixed, valid), valid, self.type)

    def _mix(self, low: Doubles, high: Doubles, part: Doubles) -> Doubles:
        """low * (1 − part) + high * part."""
        return self._sum(high * part, low, 1.0 - part)

    def _sum(self, start: Doubles, step: Doubles, times: Doubles) -> Doubles:
        """start + step * times."""
        if self.is_fused:
            out = np.empty(len(start))
            fuse_multiply_add(step, times, start, out)
            return out
        return start + step * times


@cache
def duckdb_is_fused() -> bool:
    """Whether the DuckDB in use interpolates with fused multiply-adds."""
    share, start = np.array([1 / 3]), np.empty(1)
    for k in range(1, 100):
        low, high = 1.0 / k, 10.0 / 7.0
        plain = low * (1.0 - share[0]) + high * share[0]
        fuse_multiply_add(np.array([low]), 1.0 - share, high * share, start)
        if plain != start[0]:
            break
    with duckdb.connect(":memory:") as connection:
        row = connection.execute(
            "SELECT quantile_cont(x, ?::DOUBLE) FROM (VALUES (?::DOUBLE), (?::DOUBLE)) t(x)",
            [share[0], low, high],
        ).fetchone()
    assert row is not None
    return bool(row[0] == start[0])


def recognize(call: AggregateCall) -> Aggregate | None:
    """Make the aggregate of a call of one of `NAMES`; None if it cannot be incremental."""
    of, share = call.of, call.share
    if of is None or not can_be_ordered(of) or call.argument.distinct or call.descending:
        return None
    if call.name == "median":
        share = 0.5
    if share is None or not 0 <= share <= 1:
        return None
    numeric = pa.types.is_floating(of) or (is_whole(of) and not pa.types.is_boolean(of))
    timely = pa.types.is_timestamp(of) or pa.types.is_date32(of)
    match call.name:
        case "quantile_disc":
            return DiscreteQuantile(call.argument, call.gives, share)
        case "median" if not (numeric or timely):
            return DiscreteQuantile(call.argument, call.gives, share)
        case "quantile_cont" | "median" if numeric or timely:
            return ContinuousQuantile(call.argument, call.gives, share, duckdb_is_fused())
    return None
