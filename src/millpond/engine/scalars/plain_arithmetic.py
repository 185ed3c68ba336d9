"""Adds, subtracts and multiplies columns and whole numbers, without asking DuckDB.

As `plain_comparisons`, for the commonest expressions that aggregates and projections compute:
`size * 2`, `price - cost`. A value is computed here where it is certain to be DuckDB's: INTEGERs
and BIGINTs none of whose results can be out of range, and DOUBLEs. For everything else DuckDB is
asked, which knows the error too.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.engine.scalars.plain_comparisons import peel

_OPERATION = re.compile(r"(c\d+|\d{1,9}) ([+*-]) (c\d+|\d{1,9})")
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def evaluate_arithmetic(sql: str, rows: pa.RecordBatch) -> pa.Array | None:
    """Compute an expression over `c0`, `c1`, …; None if it is none that is computed here."""
    operation = _read(sql)
    if operation is None or not rows.num_rows:
        return None
    left, sign, right = operation
    names = [side for side in (left, right) if isinstance(side, str)]
    if not set(names) <= set(rows.schema.names):
        return None
    columns = [rows.column(name) for name in names]
    type_ = columns[0].type
    if any(column.type != type_ for column in columns):
        return None
    operands = [_to_numbers(rows, side) for side in (left, right)]
    if pa.types.is_int32(type_) or pa.types.is_int64(type_):
        if not _stays_within(operands, sign, type_.bit_width):
            return None
        width = np.int32 if type_.bit_width == 32 else np.int64
        values = _SIGNS[sign](*operands).astype(width, copy=False)
    elif pa.types.is_float64(type_):
        with np.errstate(over="ignore", invalid="ignore"):
            values = _SIGNS[sign](*operands)
    else:
        return None
    nulls = [c.is_null().to_numpy(zero_copy_only=False) for c in columns if c.null_count]
    return pa.array(values, mask=np.logical_or.reduce(nulls) if nulls else None)


def _to_numbers(rows: pa.RecordBatch, side: str | int) -> Any:
    """The values of a column, whole numbers as int64; 0 for NULL."""
    if isinstance(side, int):
        return side
    column = rows.column(side)
    if column.null_count:
        column = column.fill_null(0)
    values = column.to_numpy(zero_copy_only=False)
    return values.astype(np.int64) if values.dtype == np.int32 else values


def _stays_within(operands: list[Any], sign: str, bits: int) -> bool:
    """Whether no pair of the operands' values gives a number of more bits."""
    (left, right) = (_find_bounds(one) for one in operands)
    results = [_SIGNS[sign](one, other) for one in left for other in right]
    return min(results) >= -(1 << bits - 1) and max(results) < 1 << bits - 1


def _find_bounds(operand: npt.NDArray[Any] | int) -> tuple[int, int]:
    if isinstance(operand, int):
        return operand, operand
    return int(operand.min()), int(operand.max())


@lru_cache(maxsize=4096)
def _read(sql: str) -> tuple[str | int, str, str | int] | None:
    """Read the operands and the sign of an expression with at least one column."""
    match = _OPERATION.fullmatch(peel(sql.strip()))
    if match is None:
        return None
    left, sign, right = match.groups()
    if not (left.startswith("c") or right.startswith("c")):
        return None
    return (
        left if left.startswith("c") else int(left),
        sign,
        right if right.startswith("c") else int(right),
    )
