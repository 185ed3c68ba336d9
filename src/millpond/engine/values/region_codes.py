"""From an attribute's values to regions: how many cuts lie at or below each value.

The sorted distinct cuts of a group of queries divide an attribute's domain into regions; within a
region no query's factor on the attribute changes. Coding a column is the only step that looks at
values: what follows works on small integers, whatever the type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.engine.values.number_codes import Codes, FloatCoder, IntegerCoder, keys_of_floats
from millpond.engine.values.text_codes import TextCoder
from millpond.engine.values.value_sets import Cut, Domain

Coder = IntegerCoder | FloatCoder | TextCoder


def coder_for(domain: Domain, cuts: Sequence[Cut] | npt.NDArray[np.int64]) -> Coder:
    """Make the coder of an attribute from its distinct cuts, ascending."""
    if domain is Domain.TEXT:
        return TextCoder.of(cuts)  # type: ignore[arg-type]
    keys = np.asarray(cuts, np.int64)
    return FloatCoder(keys) if domain is Domain.FLOAT else IntegerCoder(keys)


class CodableColumn:
    """An Arrow column's buffers, ready for coding by any number of coders.

    Attributes:
        domain: The axis of its type.
    """

    def __init__(self, column: pa.ChunkedArray | pa.Array, domain: Domain) -> None:
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = (
                pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
            )
        self.domain = domain
        self._length = len(column)
        self._nulls: npt.NDArray[np.bool_] | None = None
        if column.null_count:
            self._nulls = column.is_null().to_numpy(zero_copy_only=False)
        if domain is Domain.TEXT:
            self._open_text(column)
        elif domain is Domain.FLOAT:
            self._values = _fixed_width(column, np.float64)
        else:
            self._values = _fixed_width(column, np.int64)

    def _open_text(self, column: pa.Array) -> None:
        if column.type != pa.string():
            column = column.cast(pa.string())
        _, offsets, data = column.buffers()
        length = self._length
        if length == 0 or offsets is None:
            self._offsets = np.zeros(length + 1, np.int32)
        else:
            every = np.frombuffer(offsets, np.int32, column.offset + length + 1)
            self._offsets = every[column.offset :]
        self._data = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)

    @property
    def nulls(self) -> npt.NDArray[np.bool_] | None:
        """Where the column is NULL; None if nowhere."""
        return self._nulls

    @property
    def values(self) -> npt.NDArray[Any]:
        """The values as int64 or float64, arbitrary where NULL. Not for texts."""
        return self._values

    @property
    def texts(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
        """The bytes of all texts, and where each text begins and the last ends."""
        return self._data, self._offsets

    def sample(self, step: int) -> npt.NDArray[np.int64] | list[bytes]:
        """Return the places on the domain's axis of every `step`-th value, ascending; no NULL's."""
        chosen = np.arange(0, self._length, step)
        if self._nulls is not None:
            chosen = chosen[~self._nulls[chosen]]
        if self.domain is Domain.TEXT:
            begins, ends = self._offsets[chosen].tolist(), self._offsets[chosen + 1].tolist()
            return sorted(self._data[i:j].tobytes() for i, j in zip(begins, ends, strict=True))
        values = self._values[chosen]
        return np.sort(keys_of_floats(values) if self.domain is Domain.FLOAT else values)

    def code(self, coder: Coder, of_null: int, codes: Codes) -> None:
        """Write every value's region to `codes`; `of_null` for NULL."""
        if isinstance(coder, TextCoder):
            coder.code(self._data, self._offsets, codes)
        else:
            coder.code(self._values, codes)
        if self._nulls is not None:
            codes[self._nulls] = of_null


def _fixed_width(column: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """Return the values as one contiguous array, arbitrary where NULL."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.cast(pa.uint8()).fill_null(0).to_numpy().astype(dtype)
    offset, length = column.offset, len(column)
    buffer = column.buffers()[1]
    if buffer is None or length == 0:
        return np.zeros(length, dtype)
    if pa.types.is_decimal(kind):
        if kind.bit_width != 128:
            return _fixed_width(column.cast(pa.decimal128(kind.precision, kind.scale)), dtype)
        # Little endian: the low word holds all of an unscaled value of at most 18 digits.
        words = np.frombuffer(buffer, np.int64, 2 * (offset + length))[2 * offset :: 2]
        return np.ascontiguousarray(words)
    if pa.types.is_timestamp(kind) and kind.unit != "us":
        return _fixed_width(column.cast(pa.timestamp("us")), dtype)
    if pa.types.is_floating(kind):
        stored: Any = np.float64 if kind.bit_width == 64 else np.float32
    else:
        stored = np.dtype(f"i{kind.bit_width // 8}")
    values = np.frombuffer(buffer, stored, offset + length)[offset:]
    return values.astype(dtype, copy=False)
