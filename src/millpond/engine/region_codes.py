"""From an attribute's values to regions: how many cuts lie at or below each value.

The sorted distinct cuts of a group of queries divide an attribute's domain into regions; within a
region no query's factor on the attribute changes. Coding a column is the only step that looks at
values: what follows works on small integers, whatever the type.

A binary search over thousands of cuts misses the branch predictor at every step, so the range of
the cuts is divided into equal buckets first, several to a cut, and the search is confined to the
cuts of the value's bucket: usually none or one. The bucket of a value is a monotone function of
it, and is computed for the cuts by the same instructions, so rounding cannot put a value on the
wrong side of a cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from llvmlite import ir  # type: ignore[import-untyped]
from numba import float64, int64, njit, types, uint64
from numba.extending import intrinsic

from millpond.engine.value_sets import Cut, Domain
from millpond.model.compiled import (
    I32,
    I64,
    READ_F64,
    READ_I32,
    READ_I64,
    READ_U8,
    READ_U64,
    compiled,
)

Codes = npt.NDArray[np.int32]

#: Buckets per cut: enough that most buckets hold none.
_BUCKETS_PER_CUT = 8
_MOST_BUCKETS = 1 << 16


@njit(inline="always")
def _bucket_of_integer(value: Any, least: Any, shift: Any, last: Any) -> Any:
    if value < least:
        return int64(0)
    bucket = (uint64(value) - uint64(least)) >> uint64(shift)
    return int64(last) if bucket > uint64(last) else int64(bucket)


@njit(inline="always")
def _bucket_of_float(value: Any, least: Any, scale: Any, last: Any) -> Any:
    place = (value - least) * scale
    if not (place > 0.0):
        return int64(0)
    return int64(last) if place >= float64(last) else int64(place)


@compiled(types.void(READ_I64, READ_I64, READ_I32, int64, int64, I32))
def _code_integers(
    values: Any, cuts: Any, starts: Any, least: Any, shift: Any, codes: Codes
) -> None:  # pragma: no cover - compiled
    last = int64(len(starts) - 2)
    for i in range(len(values)):
        value = values[i]
        bucket = _bucket_of_integer(value, least, shift, last)
        low = starts[bucket]
        high = starts[bucket + 1]
        while low < high:
            middle = (low + high) >> 1
            if cuts[middle] <= value:
                low = middle + 1
            else:
                high = middle
        codes[i] = low


@compiled(types.void(READ_F64, READ_F64, READ_I32, float64, float64, int64, I32))
def _code_floats(
    values: Any, cuts: Any, starts: Any, least: Any, scale: Any, of_nan: Any, codes: Codes
) -> None:  # pragma: no cover - compiled
    last = int64(len(starts) - 2)
    for i in range(len(values)):
        value = values[i]
        if value != value:
            codes[i] = of_nan
            continue
        bucket = _bucket_of_float(value, least, scale, last)
        low = starts[bucket]
        high = starts[bucket + 1]
        while low < high:
            middle = (low + high) >> 1
            if cuts[middle] <= value:
                low = middle + 1
            else:
                high = middle
        codes[i] = low


@intrinsic
def _eight_bytes(typing_context: Any, data: Any, at: Any) -> Any:
    """Eight bytes of an array of bytes as a big-endian number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        word = ir.IntType(64)
        place = builder.gep(array.data, [arguments[1]])
        load = builder.load(builder.bitcast(place, word.as_pointer()), align=1)
        return builder.bswap(load)

    return types.uint64(data, int64), generate


@njit(inline="always")
def _head(data: Any, start: Any, end: Any) -> Any:
    """Seven bytes, zeros where there are none, and the length, 8 for more than seven.

    The order of heads is the order of texts, and texts of up to seven bytes have distinct heads,
    those that end in NULs included.
    """
    length = end - start
    if start + 8 <= len(data):
        head = _eight_bytes(data, start)
        if length < 8:
            head &= ~(uint64(0xFFFFFFFFFFFFFFFF) >> uint64(8 * length))
    else:
        head = uint64(0)
        for k in range(start, end):
            head = (head << uint64(8)) | uint64(data[k])
        if length > 0:
            head <<= uint64(8 * (8 - length))
    return (head & ~uint64(0xFF)) | uint64(min(length, 8))


def _head_of(text: bytes) -> int:
    """`_head` of a whole text."""
    return int.from_bytes(text[:7].ljust(7, b"\0"), "big") << 8 | min(len(text), 8)


@njit(inline="always")
def _at_or_below(
    cut_data: Any, cut_start: Any, cut_end: Any, data: Any, start: Any, end: Any
) -> Any:
    """Whether a cut is not greater than a text; their heads are known to be equal."""
    cut_length = cut_end - cut_start
    length = end - start
    difference = 0
    k = 7
    while difference == 0 and k < min(cut_length, length):
        difference = int64(cut_data[cut_start + k]) - int64(data[start + k])
        k += 1
    return difference < 0 or (difference == 0 and cut_length <= length)


@njit(inline="always")
def _side(data: Any, start: Any, end: Any, prefix: Any) -> Any:
    """Negative for a text below all that begin with `prefix`, positive above, else 0."""
    # One way out: with several, the compiler keeps counting references to the arrays.
    side = 0
    k = 0
    while side == 0 and k < len(prefix):
        mine = int64(data[start + k]) if start + k < end else int64(-1)
        side = mine - int64(prefix[k])
        k += 1
    return side


@compiled(
    types.void(
        READ_U8,
        READ_I32,
        READ_U8,
        READ_U8,
        READ_I32,
        READ_U64,
        READ_I32,
        READ_I32,
        types.uint64,
        int64,
        I32,
    )
)
def _code_texts(
    data: Any,
    offsets: Any,
    prefix: Any,
    cut_data: Any,
    cut_offsets: Any,
    heads: Any,
    run_start: Any,
    starts: Any,
    least: Any,
    shift: Any,
    codes: Codes,
) -> None:  # pragma: no cover - compiled
    last = uint64(len(starts) - 2)
    cuts = int64(len(heads))
    for i in range(len(offsets) - 1):
        start = int64(offsets[i])
        end = int64(offsets[i + 1])
        side = _side(data, start, end, prefix)
        if side != 0:
            codes[i] = 0 if side < 0 else cuts
            continue
        start += len(prefix)
        head = _head(data, start, end)
        bucket = uint64(0)
        if head > least:
            bucket = min((head - least) >> uint64(shift), last)
        low = int64(starts[bucket])
        high = int64(starts[bucket + uint64(1)])
        while low < high:
            middle = (low + high) >> 1
            if heads[middle] <= head:
                low = middle + 1
            else:
                high = middle
        if (head & uint64(0xFF)) == uint64(8) and low > 0 and heads[low - 1] == head:
            high = low
            low = int64(run_start[low - 1])
            while low < high:
                middle = (low + high) >> 1
                if _at_or_below(
                    cut_data,
                    int64(cut_offsets[middle]),
                    int64(cut_offsets[middle + 1]),
                    data,
                    start,
                    end,
                ):
                    low = middle + 1
                else:
                    high = middle
        codes[i] = low


def _shift_for(span: int, buckets: int) -> int:
    """The least shift that brings `span` below `buckets`."""
    return max(0, span.bit_length() - buckets.bit_length() + 1)


def _buckets_for(cuts: int) -> int:
    wanted = max(256, cuts * _BUCKETS_PER_CUT)
    return min(_MOST_BUCKETS, 1 << (wanted - 1).bit_length())


def _starts(buckets_of_cuts: npt.NDArray[np.int64], buckets: int) -> npt.NDArray[np.int32]:
    """For each bucket, and one past the last, the number of cuts in those before it."""
    edges = np.arange(buckets + 1)
    return np.searchsorted(buckets_of_cuts, edges, "left").astype(np.int32)


@dataclass(frozen=True)
class IntegerCoder:
    """Codes columns on the axis of integers. `cuts` ascend strictly."""

    cuts: npt.NDArray[np.int64]

    @cached_property
    def _index(self) -> tuple[int, int, npt.NDArray[np.int32]]:
        if len(self.cuts) == 0:
            return 0, 0, np.zeros(2, np.int32)
        least, greatest = int(self.cuts[0]), int(self.cuts[-1])
        buckets = _buckets_for(len(self.cuts))
        shift = _shift_for(greatest - least, buckets)
        places = (self.cuts.view(np.uint64) - np.uint64(least % 2**64)) >> np.uint64(shift)
        return least, shift, _starts(places.astype(np.int64), buckets)

    def code(self, values: npt.NDArray[np.int64], codes: Codes) -> None:
        """Writes every value's region."""
        least, shift, starts = self._index
        _code_integers(values, self.cuts, starts, least, shift, codes)


@dataclass(frozen=True)
class FloatCoder:
    """Codes columns of doubles. `keys` are cuts on the axis of doubles, strictly ascending."""

    keys: npt.NDArray[np.int64]

    @cached_property
    def _index(
        self,
    ) -> tuple[npt.NDArray[np.float64], float, float, npt.NDArray[np.int32]]:
        negative = self.keys < 0
        bits = np.where(negative, -self.keys, self.keys) | np.where(
            negative, np.int64(-(2**63)), np.int64(0)
        )
        cuts = bits.view(np.float64)
        # At most the last cut is NaN; no value but NaN reaches it, and NaN is coded apart.
        cuts = np.ascontiguousarray(cuts[~np.isnan(cuts)])
        finite = cuts[np.isfinite(cuts)]
        if len(finite) == 0:
            return cuts, 0.0, 0.0, np.array([0, len(cuts)], np.int32)
        buckets = _buckets_for(len(cuts))
        least = float(finite[0])
        span = float(finite[-1]) - least
        scale = (buckets - 1) / span if span > 0 and math.isfinite(span) else 0.0
        if not math.isfinite(scale):
            scale = 0.0
        places = np.empty(len(cuts), np.int64)
        _places_of_floats(cuts, least, scale, buckets - 1, places)
        return cuts, least, scale, _starts(places, buckets)

    def code(self, values: npt.NDArray[np.float64], codes: Codes) -> None:
        """Writes every value's region."""
        cuts, least, scale, starts = self._index
        _code_floats(values, cuts, starts, least, scale, len(self.keys), codes)


@compiled(types.void(READ_F64, float64, float64, int64, I64))
def _places_of_floats(
    cuts: Any, least: Any, scale: Any, last: Any, out: Any
) -> None:  # pragma: no cover - compiled
    for i in range(len(cuts)):
        out[i] = _bucket_of_float(cuts[i], least, scale, last)


def _shared(one: bytes, two: bytes) -> bytes:
    """What both begin with."""
    different = (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    return one[: next(different, min(len(one), len(two)))]


@dataclass(frozen=True)
class TextCoder:
    """Codes columns of strings. `cuts` are UTF-8 bytes, strictly ascending."""

    cuts: Sequence[bytes]

    @cached_property
    def _index(self) -> tuple[Any, ...]:
        # What all cuts begin with says nothing, and would fill the heads.
        prefix = _shared(self.cuts[0], self.cuts[-1]) if self.cuts else b""
        tails = [c[len(prefix) :] for c in self.cuts]
        offsets = np.zeros(len(tails) + 1, np.int32)
        np.cumsum([len(t) for t in tails], out=offsets[1:])
        data = np.frombuffer(b"".join(tails), np.uint8)
        heads = np.array([_head_of(t) for t in tails], np.uint64)
        # Cuts with one head are searched by their bytes: from the first of them.
        runs = np.searchsorted(heads, heads, "left").astype(np.int32)
        start = np.frombuffer(prefix, np.uint8)
        if len(heads) == 0:
            return start, data, offsets, heads, runs, np.zeros(2, np.int32), 0, 0
        buckets = _buckets_for(len(heads))
        shift = _shift_for(int(heads[-1]) - int(heads[0]), buckets)
        places = ((heads - heads[0]) >> np.uint64(shift)).astype(np.int64)
        return start, data, offsets, heads, runs, _starts(places, buckets), int(heads[0]), shift

    def code(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], codes: Codes
    ) -> None:
        """Writes the region of every text between two offsets."""
        _code_texts(data, offsets, *self._index, codes)


Coder = IntegerCoder | FloatCoder | TextCoder


def coder_for(domain: Domain, cuts: Sequence[Cut] | npt.NDArray[np.int64]) -> Coder:
    """The coder of an attribute whose distinct cuts, ascending, are these."""
    if domain is Domain.TEXT:
        return TextCoder(cuts)  # type: ignore[arg-type]
    keys = np.asarray(cuts, np.int64)
    return FloatCoder(keys) if domain is Domain.FLOAT else IntegerCoder(keys)


class Column:
    """An Arrow column laid open for coding: any number of coders may read it."""

    def __init__(self, column: pa.ChunkedArray | pa.Array, domain: Domain) -> None:
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = (
                pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
            )
        self._domain = domain
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
        """The values as int64 or float64; what stands for NULL is arbitrary. Not for texts."""
        return self._values

    @property
    def texts(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
        """The bytes of all texts, and where each begins and the last ends."""
        return self._data, self._offsets

    def code(self, coder: Coder, of_null: int, codes: Codes) -> None:
        """Writes every value's region, `of_null` for NULL."""
        if isinstance(coder, TextCoder):
            coder.code(self._data, self._offsets, codes)
        else:
            coder.code(self._values, codes)
        if self._nulls is not None:
            codes[self._nulls] = of_null


def _fixed_width(column: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The values as one contiguous array; what stands for NULL is arbitrary."""
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
        # Little endian: the low word of an unscaled value of at most 18 digits is all of it.
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
