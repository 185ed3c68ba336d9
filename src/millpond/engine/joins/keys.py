"""Join keys: the values two streams are compared by, as 64-bit numbers that mean the same in both.

A dictionary of values would have to be shared by every segment of every stream. Numbers that are a
function of the value alone need no sharing: segments are coded where and when they are written.

- **Equality**: a value's place on its axis (`value_sets`), mixed by a bijection; equal numbers are
  equal values. Texts, wide decimals and keys of several columns are hashed: equal values have
  equal numbers, and different values have equal numbers with a probability of 2⁻⁶⁴. A caller that
  must be certain compares the values of the pairs (`agree`), or applies the factor again, as
  invocation does.
- **Order**: a value's place on its axis, as int64. Texts have no place among 64-bit numbers, and
  no SteM serves their order.

Mixing spreads keys evenly, so each of any number of shards is a range of keys.

A NULL joins with nothing (`=` and `<` are never TRUE for it), nor does a key with a NULL part.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import int64, njit, types, uint64

from millpond.engine.values.region_codes import CodableColumn
from millpond.engine.values.value_sets import Domain
from millpond.model.compiled import I64, READ_F64, READ_I32, READ_I64, READ_U8, U64, compiled

Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


class Axis(Enum):
    """The axes that compared columns are coded on. DECIMAL(p, s) with p ≤ 18 is `SCALED`."""

    INTEGER = "integer"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    FLOAT = "float"
    SCALED = "scaled"
    WIDE = "wide decimal"
    TEXT = "text"

    @property
    def is_ordered(self) -> bool:
        """Whether the order of values is the order of their 64-bit numbers."""
        return self not in (Axis.TEXT, Axis.WIDE)


_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
_AXES = {
    **dict.fromkeys(_INTEGERS, Axis.INTEGER),
    "BOOLEAN": Axis.BOOLEAN,
    "DATE": Axis.DATE,
    "TIMESTAMP": Axis.TIMESTAMP,
    "FLOAT": Axis.FLOAT,
    "DOUBLE": Axis.FLOAT,
    "VARCHAR": Axis.TEXT,
}


def axis_of(left: str, right: str) -> Axis | None:
    """Find the axis on which DuckDB compares values of two types; None if none is served.

    >>> axis_of("INTEGER", "BIGINT"), axis_of("INTEGER", "VARCHAR")
    (<Axis.INTEGER: 'integer'>, None)
    """
    if left.startswith("DECIMAL(") and right.startswith("DECIMAL("):
        (p, s), (q, t) = (type_[8:-1].split(",") for type_ in (left, right))
        if int(s) != int(t):
            return None
        return Axis.SCALED if max(int(p), int(q)) <= 18 else Axis.WIDE
    axis = _AXES.get(left)
    if axis is not None and _AXES.get(right) is axis:
        return axis
    # DuckDB compares a whole number with a DOUBLE as doubles; with a FLOAT as floats.
    if {left, right} & {"DOUBLE"} and {left, right} & set(_INTEGERS):
        return Axis.FLOAT
    return None


@dataclass(frozen=True, eq=False)
class CodedColumn:
    """A column as numbers.

    Attributes:
        numbers: int64 a row; arbitrary where NULL.
        nulls: Where the value is NULL, or None if nowhere.
    """

    numbers: Numbers
    nulls: Mask | None


def code_column(column: pa.ChunkedArray | pa.Array, axis: Axis) -> CodedColumn:
    """Code a column on an axis: by order where the axis is ordered, else by hash."""
    if axis is Axis.TEXT:
        opened = CodableColumn(column, Domain.TEXT)
        data, offsets = opened.texts
        out = np.empty(len(offsets) - 1, np.int64)
        _hash_texts(data, np.ascontiguousarray(offsets), out.view(np.uint64))
        return CodedColumn(out, opened.nulls)
    if axis is Axis.WIDE:
        return _code_wide(column)
    if axis is Axis.FLOAT:
        if pa.types.is_integer(column.type):
            column = pc.cast(column, pa.float64(), safe=False)
        opened = CodableColumn(column, Domain.FLOAT)
        out = np.empty(len(opened.values), np.int64)
        _place_floats(np.ascontiguousarray(opened.values), out)
        return CodedColumn(out, opened.nulls)
    opened = CodableColumn(column, Domain.INT64)
    return CodedColumn(opened.values, opened.nulls)


def _code_wide(column: pa.ChunkedArray | pa.Array) -> CodedColumn:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    array = array.cast(pa.decimal128(38, array.type.scale))
    buffer = array.buffers()[1]
    words = np.zeros((len(array), 2), np.uint64)
    if buffer is not None and len(array):
        whole = np.frombuffer(buffer, np.uint64, 2 * (array.offset + len(array)))
        words = whole.reshape(-1, 2)[array.offset :]
    numbers = mix_numbers(words[:, 0]) ^ (words[:, 1] * np.uint64(0x9E3779B97F4A7C15))
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return CodedColumn(numbers.view(np.int64), nulls)


def mix_numbers(numbers: npt.NDArray[Any]) -> Keys:
    """Spread neighbouring numbers far apart, by a bijection (SplitMix64's finaliser)."""
    out = np.empty(len(numbers), np.uint64)
    _mix(np.ascontiguousarray(numbers).view(np.int64), out)
    return out


def combine_columns(parts: list[CodedColumn]) -> tuple[Keys, Mask | None]:
    """Combine the numbers of a key's columns; return each row's key, and where a part is NULL.

    The key of one column is exact on every axis but TEXT and WIDE. Without columns all rows have
    the same key.
    """
    if not parts:
        raise ValueError("a key has at least one column")
    keys = mix_numbers(parts[0].numbers)
    nulls = parts[0].nulls
    for part in parts[1:]:
        _mix_in(np.ascontiguousarray(part.numbers), keys)
        if part.nulls is not None:
            nulls = part.nulls if nulls is None else nulls | part.nulls
    return keys, nulls


def agree(left: pa.ChunkedArray | pa.Array, right: pa.ChunkedArray | pa.Array) -> Mask:
    """Compare two columns on one axis by value; return the rows where they are equal."""
    if left.type != right.type:
        common = pa.float64() if pa.types.is_floating(left.type) else None
        if pa.types.is_floating(right.type):
            common = pa.float64()
        if pa.types.is_decimal(left.type):
            common = pa.decimal128(38, left.type.scale)
        common = common or pa.int64()
        left, right = pc.cast(left, common, safe=False), pc.cast(right, common, safe=False)
    same = pc.equal(left, right)
    if pa.types.is_floating(left.type):  # DuckDB's NaN is equal to itself
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    filled = pc.fill_null(same, False)
    if isinstance(filled, pa.ChunkedArray):
        filled = filled.combine_chunks()
    values: Mask = filled.to_numpy(zero_copy_only=False)
    return values


@njit(inline="always")
def _mix_number(x: Any) -> Any:
    x = (x ^ (x >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> uint64(27))) * uint64(0x94D049BB133111EB)
    return x ^ (x >> uint64(31))


@compiled(types.void(READ_I64, U64))
def _mix(numbers: Any, out: Any) -> None:  # pragma: no cover - compiled
    for i in range(len(numbers)):
        out[i] = _mix_number(uint64(numbers[i]) + uint64(0x9E3779B97F4A7C15))


@compiled(types.void(READ_I64, U64))
def _mix_in(numbers: Any, keys: Any) -> None:  # pragma: no cover - compiled
    for i in range(len(numbers)):
        keys[i] = _mix_number(keys[i] * uint64(3) + uint64(numbers[i]))


@compiled(types.void(READ_F64, I64))
def _place_floats(values: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Compute `value_sets.float_key` of every value."""
    bits = values.view(np.int64)
    for i in range(len(values)):
        value = values[i]
        if value != value:
            out[i] = 0x7FF0000000000001
        elif value == 0.0:
            out[i] = 0
        elif bits[i] >= 0:
            out[i] = bits[i]
        else:
            out[i] = -(bits[i] & 0x7FFFFFFFFFFFFFFF)


@compiled(types.void(READ_U8, READ_I32, U64))
def _hash_texts(data: Any, offsets: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Hash eight bytes at a time; mix in the length last, so that NULs at the end count."""
    for i in range(len(offsets) - 1):
        start = int64(offsets[i])
        end = int64(offsets[i + 1])
        state = uint64(0x2545F4914F6CDD1D)
        at = start
        while at < end:
            word = uint64(0)
            for k in range(min(8, end - at)):
                word |= uint64(data[at + k]) << uint64(8 * k)
            state = _mix_number((state ^ word) * uint64(0x9E3779B97F4A7C15))
            at += 8
        out[i] = _mix_number(state ^ uint64(end - start))
