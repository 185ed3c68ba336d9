"""Row numbers as the gaps between them, a byte each: for queries that few rows match.

Where some rows in a hundred match, a bit for each element wastes seven in eight of its
bits, and a number for each match 24 in 32. Most of what a batch writes is such lists, and writing
costs more than matching.

    data   = where each block begins (uint32 each), bytes of block 0, bytes of block 1, …, padding
    block  = the rows [16384 b, 16384 (b + 1)); its first gap counts from the row before it
    byte   = 1…255: the next row is that much further on; 0: go on by 255 rows, none of which match

Blocks make a window cheap to read: the bytes before the window's first block are skipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import int64, njit, types, uint8, uint32, uint64

from millpond.model.bit_matrix import list_ones
from millpond.model.compiled import I64, READ_U8, READ_U32, compiled

_BLOCK = 14
_SKIP = 255
_U8 = types.Array(types.uint8, 1, "C")
_U64_2D = types.Array(types.uint64, 2, "C")


def most_bytes(counts: Any, rows: int) -> Any:
    """Bound the bytes of a list of `counts` of `rows` rows. Works on arrays of counts too."""
    blocks = -(-rows >> _BLOCK)
    return (4 * blocks + counts + rows // _SKIP + blocks + 7) // 8 * 8


def gaps_of_bits(
    bits: npt.NDArray[np.uint64], chosen: npt.NDArray[Any], counts: npt.NDArray[Any], rows: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Write the gap lists of chosen rows of a bit matrix, end to end; return also where each ends.

    Args:
        bits: A row of words per query.
        chosen: The numbers of the rows to write.
        counts: How many ones each of these has.
        rows: The number of elements.
    """
    # Arrow's pool reuses memory; fresh pages would cost as much as the writing.
    data = np.frombuffer(pa.allocate_buffer(int(most_bytes(counts, rows).sum())), np.uint8)
    ends = np.empty(len(chosen), np.int64)
    used = _write_bits(bits, np.asarray(chosen, np.int64), -(-rows >> _BLOCK), data, ends)
    return data[:used], ends


def gaps_of_rows(numbers: npt.NDArray[Any], rows: int) -> npt.NDArray[np.uint8]:
    """Write the gap list of ascending row numbers."""
    data = np.empty(int(most_bytes(len(numbers), rows)), np.uint8)
    used = _write_rows(np.ascontiguousarray(numbers, np.uint32), -(-rows >> _BLOCK), data)
    return data[:used]


def rows_of_gaps(
    data: npt.NDArray[np.uint8], count: int, low: int, high: int
) -> npt.NDArray[np.int64]:
    """Read the row numbers in [low, high), ascending, from a list of `count` rows.

    >>> rows_of_gaps(gaps_of_rows(np.array([3, 700, 40_000]), 50_000), 3, 4, 50_000)
    array([  700, 40000])
    """
    out = np.empty(max(0, min(count, high - low)), np.int64)
    return out[: _read(data, low, high, out)]


@njit(inline="always")
def _ones_of_block(bits: Any, query: Any, first: Any, last: Any, rows: Any) -> Any:
    """Write the places of the ones to `rows[1:]`, as 1 + row in the block; return how many."""
    one = uint64(1)
    rows[0] = uint32(0)
    upto = one
    for w in range(first, last):
        upto = list_ones(bits[query, w], ((w - first) << uint64(6)) + one, rows, upto)
    return upto - one


@compiled(types.int64(_U64_2D, I64, int64, _U8, I64))
def _write_bits(
    bits: Any, chosen: Any, blocks: int, out: Any, ends: Any
) -> int:  # pragma: no cover - compiled
    # Unsigned numbers throughout: an index that might be negative costs a test.
    at = uint64(0)
    words = uint64(bits.shape[1])
    one = uint64(1)
    rows = np.empty((1 << _BLOCK) + 1 + 64, np.uint32)
    for i in range(len(chosen)):
        query = uint64(chosen[i])
        begin = at
        at += uint64(4 * blocks)
        for block in range(uint64(blocks)):
            offset = at - begin
            for k in range(4):
                out[begin + uint64(4) * block + uint64(k)] = uint8(offset >> uint64(8 * k))
            first = block << uint64(_BLOCK - 6)
            found = _ones_of_block(
                bits, query, first, min(first + uint64(1 << (_BLOCK - 6)), words), rows
            )
            wide = uint32(0)
            for k in range(found):
                gap = rows[k + one] - rows[k]
                out[at + k] = uint8(gap)
                wide |= gap
            if wide <= uint32(_SKIP):
                at += found
            else:
                for k in range(found):
                    gap = rows[k + one] - rows[k]
                    while gap > uint32(_SKIP):
                        out[at] = uint8(0)
                        at += one
                        gap -= uint32(_SKIP)
                    out[at] = uint8(gap)
                    at += one
        while at & uint64(7):
            out[at] = uint8(0)
            at += one
        ends[i] = at
    return int64(at)


@compiled(types.int64(READ_U32, int64, _U8))
def _write_rows(numbers: Any, blocks: int, out: Any) -> int:  # pragma: no cover - compiled
    at = 4 * blocks
    i = 0
    for block in range(blocks):
        for k in range(4):
            out[4 * block + k] = uint8((uint32(at) >> uint32(8 * k)) & uint32(255))
        before = (block << _BLOCK) - 1
        while i < len(numbers) and int64(numbers[i]) >> _BLOCK == block:
            row = int64(numbers[i])
            gap = row - before
            while gap > _SKIP:
                out[at] = uint8(0)
                at += 1
                gap -= _SKIP
            out[at] = uint8(gap)
            at += 1
            before = row
            i += 1
    while at & 7:
        out[at] = uint8(0)
        at += 1
    return at


@compiled(types.int64(READ_U8, int64, int64, I64))
def _read(data: Any, low: int, high: int, out: Any) -> int:  # pragma: no cover - compiled
    if low >= high or len(data) == 0:
        return 0
    blocks = (
        int64(data[0]) | int64(data[1]) << 8 | int64(data[2]) << 16 | int64(data[3]) << 24
    ) >> 2
    found = 0
    for block in range(low >> _BLOCK, min(blocks, ((high - 1) >> _BLOCK) + 1)):
        begin = int64(0)
        end = int64(0)
        for k in range(4):
            begin |= int64(data[4 * block + k]) << (8 * k)
        if block + 1 < blocks:
            for k in range(4):
                end |= int64(data[4 * block + 4 + k]) << (8 * k)
        else:
            end = len(data)
        row = (block << _BLOCK) - 1
        for at in range(begin, end):
            gap = int64(data[at])
            if gap == 0:
                row += _SKIP
                continue
            row += gap
            if row >= high:
                break
            if row >= low:
                out[found] = row
                found += 1
    return found
