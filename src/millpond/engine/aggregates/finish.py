"""The values of aggregate functions, from totals and sketches.

Every step is DuckDB's, in DuckDB's order, so whole numbers, decimals and averages of them are
the same to the last bit. Only sums and averages of doubles differ, in the last digits: DuckDB
rounds after every addition, a total is exact and rounded once, as for queries that are followed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.cql.print.approximations import write_kept_value
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.planner.aggregates import COUNT, MAX, MIN, SUM, ColumnAggregate
from millpond.synopses.order_keys import make_order_keys, to_decimals
from millpond.synopses.running_totals import round_to_doubles
from millpond.synopses.sketches import Sketch
from millpond.synopses.sketches.least_hashes import LeastHashes
from millpond.synopses.sketches.signed_counts import SignedCounts
from millpond.synopses.totals import Total, round_sum

_WORD = 1 << 64


def finish(call: ColumnAggregate, total: Total, type_: pa.DataType | None) -> pa.Array:
    """Return the function's value, as an array of one; whole sums have 64 bits if they fit.

    Args:
        call: The call.
        total: The total of the rows.
        type_: The column's type; None for `COUNT(*)`.
    """
    if call.function == COUNT:
        return pa.array([total.rows if call.column is None else total.values], pa.int64())
    assert type_ is not None
    if call.function in (MIN, MAX):
        key = total.least if call.function == MIN else total.greatest
        keys = np.array([0 if key is None else key], np.int64)
        return make_order_keys(type_).decode(keys, np.array([key is not None]))
    if call.function == SUM:
        return _finish_sum(total, type_)
    return pa.array([_average(total, type_)], pa.float64())


def finish_sketch(call: ColumnAggregate, sketch: Sketch, type_: pa.DataType) -> pa.Array:
    """Return the value of an `approx_…` function, as an array of one."""
    if isinstance(sketch, LeastHashes):
        return pa.array([sketch.estimate()], pa.int64())
    if isinstance(sketch, SignedCounts):
        table = pa.table({"v": pa.array([call.value], type_)})
        sql = write_kept_value(call.function, "v")
        (hash_,) = ScalarEvaluator.of_this_thread().values(table, sql).to_pylist()
        return pa.array([sketch.estimate(hash_)], pa.int64())
    assert call.share is not None
    return pa.array([sketch.estimate(call.share)], pa.float64())


def _finish_sum(total: Total, type_: pa.DataType) -> pa.Array:
    if pa.types.is_floating(type_):
        return pa.array([round_sum(total) if total.values else None], pa.float64())
    scale = type_.scale if pa.types.is_decimal128(type_) else 0
    if not scale and -_WORD // 2 <= total.sum < _WORD // 2:
        return pa.array([total.sum if total.values else None], pa.int64())
    return to_decimals(_words(total), np.array([total.values > 0]), pa.decimal128(38, scale))


def _average(total: Total, type_: pa.DataType) -> float | None:
    if not total.values:
        return None
    if pa.types.is_floating(type_):
        return round_sum(total) / total.values
    rounded = float(round_to_doubles(_words(total))[0])
    if pa.types.is_decimal128(type_) and type_.scale:
        rounded /= 10.0**type_.scale
    return rounded / total.values


def _words(total: Total) -> np.ndarray:
    """Write a whole sum as int64[1, 2], low and high word: 2^63 values of 64 bits fit."""
    low, high = total.sum % _WORD, total.sum // _WORD
    return np.array([[low - _WORD if low >= _WORD // 2 else low, high]], np.int64)
