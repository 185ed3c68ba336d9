"""Codes texts: finds their regions by their first bytes, read as numbers.

Seven bytes and the length make a head, and heads are compared as numbers. Only texts that agree
with a cut in the head and are longer are compared byte by byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import int64, njit, types, uint64
from numba.extending import intrinsic

from millpond.engine.values.buckets import buckets_for, search, shift_for, starts_of
from millpond.model.compiled import I32, READ_I32, READ_U8, READ_U64, compiled

Codes = npt.NDArray[np.int32]


@intrinsic
def _eight_bytes(typing_context: Any, data: Any, at: Any) -> Any:
    """Read eight bytes of an array of bytes as a big-endian number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        word = ir.IntType(64)
        place = builder.gep(array.data, [arguments[1]])
        load = builder.load(builder.bitcast(place, word.as_pointer()), align=1)
        return builder.bswap(load)

    return types.uint64(data, int64), generate


@njit(inline="always")
def _head(data: Any, start: Any, end: Any) -> Any:
    """Return seven bytes (zeros where there are none) and the length, 8 for more than seven.

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
    """Compute `_head` of a whole text."""
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
    """Compare a text with those that begin with `prefix`: below < 0, above > 0, else 0."""
    # One return only: with several, the compiler keeps counting references to the arrays.
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
        low = search(heads, int64(starts[bucket]), int64(starts[bucket + uint64(1)]), head)
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


def _common_prefix(one: bytes, two: bytes) -> bytes:
    """Return the prefix that both have in common."""
    different = (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    return one[: next(different, min(len(one), len(two)))]


@dataclass(frozen=True)
class TextCoder:
    """Codes columns of strings. `cuts` are UTF-8 bytes, strictly ascending."""

    cuts: Sequence[bytes]

    @cached_property
    def _index(self) -> tuple[Any, ...]:
        # The common prefix of all cuts tells no texts apart, and would fill the heads.
        prefix = _common_prefix(self.cuts[0], self.cuts[-1]) if self.cuts else b""
        tails = [c[len(prefix) :] for c in self.cuts]
        offsets = np.zeros(len(tails) + 1, np.int32)
        np.cumsum([len(t) for t in tails], out=offsets[1:])
        data = np.frombuffer(b"".join(tails), np.uint8)
        heads = np.array([_head_of(t) for t in tails], np.uint64)
        # Cuts with the same head are searched by their bytes: from the first of them.
        runs = np.searchsorted(heads, heads, "left").astype(np.int32)
        start = np.frombuffer(prefix, np.uint8)
        if len(heads) == 0:
            return start, data, offsets, heads, runs, np.zeros(2, np.int32), 0, 0
        buckets = buckets_for(len(heads))
        shift = shift_for(int(heads[-1]) - int(heads[0]), buckets)
        places = ((heads - heads[0]) >> np.uint64(shift)).astype(np.int64)
        return start, data, offsets, heads, runs, starts_of(places, buckets), int(heads[0]), shift

    def code(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], codes: Codes
    ) -> None:
        """Write the region of every text between two offsets."""
        _code_texts(data, offsets, *self._index, codes)
