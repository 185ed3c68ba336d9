"""Values with parts as keys that Python can hash and order.

Arrow has no equality and no order for arrays, structs and intervals. Here a key stands for each
value: two keys are equal where SQL's grouping finds the values equal (a NULL inside is equal to a
NULL, one NaN, one zero), and keys are ordered as DuckDB orders the values: part by part, NULL last,
NaN just before it, a shorter array before one that begins with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NULL, _NAN = (2,), (1,)


def needs_keys(type_: pa.DataType) -> bool:
    """Whether values of a type are told apart and ordered by their keys.

    Values with parts have no order of their own in Arrow, and an interval's months, days and
    nanoseconds have no fixed ratio.
    """
    return bool(pa.types.is_nested(type_) or pa.types.is_interval(type_))


def value_keys(column: pa.Array) -> list[Any]:
    """Make the key of each value of a column; None where it is NULL.

    >>> keys = value_keys(pa.array([[1.0, None], [], [-0.0], [0.0], None]))
    >>> keys[2] == keys[3], keys[1] < keys[2] < keys[0], keys[4]
    (True, True, None)
    """
    values = _plain(column).to_pylist()
    return [None if value is None else _key(value) for value in values]


def rank(column: pa.Array) -> pa.Array:
    """Rank each value among the column's distinct values in order: int64; NULL for NULL."""
    keys = value_keys(column)
    order = {key: place for place, key in enumerate(sorted(set(keys) - {None}))}
    return pa.array([None if key is None else order[key] for key in keys], pa.int64())


def _plain(column: pa.Array) -> pa.Array:
    """Make instants and days inside values numbers: Python has no object for those far away."""
    type_ = column.type
    absent = column.is_null() if column.null_count else None
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        offsets = np.zeros(len(column) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        inner = _plain(column.flatten())
        return pa.LargeListArray.from_arrays(pa.array(offsets), inner, mask=absent)
    if pa.types.is_struct(type_) and type_.num_fields:
        parts = [_plain(part) for part in column.flatten()]
        names = [f"f{place}" for place in range(len(parts))]  # names may be there twice
        return pa.StructArray.from_arrays(parts, names=names, mask=absent)
    if pa.types.is_timestamp(type_) or pa.types.is_time64(type_):
        return column.view(pa.int64())
    if pa.types.is_date32(type_):
        return column.view(pa.int32())
    return column


def _key(value: Any) -> tuple[Any, ...]:
    match value:
        case None:
            return _NULL
        case float():
            return (0, value + 0.0) if value == value else _NAN
        case pa.MonthDayNano():  # in SQL a day is 24 hours and a month is 30 days
            days = value.months * 30 + value.days
            return 0, days * 86_400_000_000_000 + value.nanoseconds
        case dict():
            return 0, tuple(map(_key, value.values()))
        case list() | tuple():
            return 0, tuple(map(_key, value))
    return 0, value
