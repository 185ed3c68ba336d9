"""Codes texts: finds their regions by their first bytes, read as numbers.

Seven bytes and the length make a head, and heads are compared as numbers. Only texts that agree
with a cut in the head and are longer are compared byte by byte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import int64, njit, types, uint64
from numba.extending import intrinsic

from millpond.engine.values.buckets import AHEAD, buckets_for, search, shift_for, starts_of
from millpond.engine.values.prefetch import prefetch
from millpond.model.compiled import I32, READ_I32, READ_U8, READ_U64, U64, compiled
from millpond.model.kept_property import kept_property

Codes = npt.NDArray[np.int32]

_SYMBOLS = types.Array(types.uint64, 2, "C", readonly=True)


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


@njit(inline="always")
def _key(head: Any, symbols: Any) -> Any:
    """Number a head among those that could be written with the cuts' bytes; it is monotone."""
    key = uint64(0)
    p = 0
    while p < len(symbols):
        found = symbols[p, (head >> uint64(56 - 8 * p)) & uint64(0xFF)]
        key += found >> uint64(1)
        # A byte that no cut has there: the head lies just before those with the next byte.
        p = len(symbols) if found & uint64(1) else p + 1
    return key


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
        _SYMBOLS,
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
    symbols: Any,
    least: Any,
    shift: Any,
    codes: Codes,
) -> None:  # pragma: no cover - compiled
    # Some texts are taken together, step by step, so that memory serves many requests at once.
    last = uint64(len(starts) - 2)
    cuts = int64(len(heads))
    mine = np.empty(AHEAD, np.uint64)
    lows = np.empty(AHEAD, np.int64)
    highs = np.empty(AHEAD, np.int64)
    for t in range(0, len(offsets) - 1, AHEAD):
        step = min(AHEAD, len(offsets) - 1 - t)
        for i in range(step):
            start = int64(offsets[t + i])
            end = int64(offsets[t + i + 1])
            side = _side(data, start, end, prefix)
            highs[i] = 0 if side < 0 else cuts
            lows[i] = -1
            if side == 0:
                mine[i] = head = _head(data, start + len(prefix), end)
                key = _key(head, symbols)
                bucket = uint64(0)
                if key > least:
                    bucket = min((key - least) >> uint64(shift), last)
                lows[i] = int64(bucket)
                prefetch(starts, lows[i])
        for i in range(step):
            if lows[i] >= 0:
                bucket = uint64(lows[i])
                lows[i] = int64(starts[bucket])
                highs[i] = int64(starts[bucket + uint64(1)])
                prefetch(heads, lows[i])
            else:
                lows[i] = highs[i]
        for i in range(step):
            low = lows[i]
            if low < highs[i]:
                low = search(heads, low, highs[i], mine[i])
            lows[i] = low
            highs[i] = -1
            if low > 0 and (mine[i] & uint64(0xFF)) == uint64(8) and heads[low - 1] == mine[i]:
                highs[i] = low
                prefetch(run_start, low - 1)
                prefetch(cut_offsets, low - 1)
        for i in range(step):
            if highs[i] >= 0:
                prefetch(cut_data, int64(cut_offsets[lows[i] - 1]))
                lows[i] = int64(run_start[lows[i] - 1])
        for i in range(step):
            low = lows[i]
            high = highs[i]
            while low < high:
                middle = (low + high) >> 1
                if _at_or_below(
                    cut_data,
                    int64(cut_offsets[middle]) + len(prefix),
                    int64(cut_offsets[middle + 1]),
                    data,
                    int64(offsets[t + i]) + len(prefix),
                    int64(offsets[t + i + 1]),
                ):
                    low = middle + 1
                else:
                    high = middle
            codes[t + i] = low


@compiled(types.void(READ_U8, READ_I32, int64, U64))
def _heads_of(
    data: Any, offsets: Any, prefix: int, heads: Any
) -> None:  # pragma: no cover - compiled
    for i in range(len(heads)):
        heads[i] = _head(data, int64(offsets[i]) + prefix, int64(offsets[i + 1]))


@compiled(types.void(READ_U64, _SYMBOLS, U64))
def _keys_of(heads: Any, symbols: Any, keys: Any) -> None:  # pragma: no cover - compiled
    for i in range(len(heads)):
        keys[i] = _key(heads[i], symbols)


def _number_symbols(heads: npt.NDArray[np.uint64], enough: int) -> npt.NDArray[np.uint64]:
    """Number the bytes that heads have at their first places, as many as tell `enough` apart.

    Where all cuts are written with few bytes, as numbers and identifiers are, heads read as numbers
    are crowded: most buckets would be empty, and some would hold thousands. Numbered by their
    symbols they lie evenly.

    Returns:
        uint64[places, 256]: what a byte contributes to the key << 1, and 1 if no head has it there.
    """
    sizes: list[int] = []
    ranks: list[npt.NDArray[np.uint64]] = []
    missing: list[npt.NDArray[np.uint64]] = []
    while len(ranks) < 7 and math.prod(sizes) < enough:
        there = np.zeros(256, np.bool_)
        there[(heads >> np.uint64(56 - 8 * len(ranks))) & np.uint64(0xFF)] = True
        rank: npt.NDArray[np.uint64] = (np.cumsum(there) - there).astype(np.uint64)
        ranks.append(rank)
        missing.append((~there).astype(np.uint64))
        sizes.append(int(there.sum()))
    return np.array(
        [
            (rank * np.uint64(math.prod(sizes[p + 1 :])) << np.uint64(1)) | missing[p]
            for p, rank in enumerate(ranks)
        ]
    )


def _common_prefix(one: bytes, two: bytes) -> bytes:
    """Return the prefix that both have in common."""
    different = (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    return one[: next(different, min(len(one), len(two)))]


@dataclass(frozen=True, eq=False)
class TextCoder:
    """Codes columns of strings by cuts that ascend strictly.

    Attributes:
        data: uint8: The UTF-8 bytes of all cuts, one after the other.
        offsets: int32[cuts + 1]: Where each cut begins in `data`, and the last ends.
    """

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int32]

    @staticmethod
    def of(cuts: Sequence[bytes]) -> TextCoder:
        """Make the coder of some cuts."""
        offsets = np.zeros(len(cuts) + 1, np.int32)
        np.cumsum([len(c) for c in cuts], out=offsets[1:])
        return TextCoder(np.frombuffer(b"".join(cuts), np.uint8), offsets)

    @kept_property
    def _index(self) -> tuple[Any, ...]:
        heads = np.zeros(len(self.offsets) - 1, np.uint64)
        if len(heads) == 0:
            start, runs = np.zeros(0, np.uint8), np.zeros(0, np.int32)
            symbols = np.zeros((0, 256), np.uint64)
            return start, self.data, self.offsets, heads, runs, np.zeros(2, np.int32), symbols, 0, 0
        # The common prefix of all cuts tells no texts apart, and would fill the heads.
        first, last = (
            bytes(self.data[slice(*self.offsets[i : i + 2])]) for i in (0, len(heads) - 1)
        )
        prefix = _common_prefix(first, last)
        _heads_of(self.data, self.offsets, len(prefix), heads)
        # Cuts with the same head are searched by their bytes: from the first of them.
        runs = np.searchsorted(heads, heads, "left").astype(np.int32)
        start = np.frombuffer(prefix, np.uint8)
        buckets = buckets_for(len(heads))
        symbols = _number_symbols(heads, 16 * buckets)
        keys = np.empty_like(heads)
        _keys_of(heads, symbols, keys)
        least = int(keys[0])
        shift = shift_for(int(keys[-1]) - least, buckets)
        starts = starts_of(((keys - keys[0]) >> np.uint64(shift)).astype(np.int64), buckets)
        return start, self.data, self.offsets, heads, runs, starts, symbols, least, shift

    def code(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], codes: Codes
    ) -> None:
        """Write the region of every text between two offsets."""
        _code_texts(data, offsets, *self._index, codes)
