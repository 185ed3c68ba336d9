"""The compiled loops of the query-data join: region codes in, bits or pairs out.

A **program** is what a block of queries does to an element, flattened for the compiler:

- `stage_*`: one per attribute of the value sets: the element's code of attribute `stage_code` is
  translated by `translation[stage_shift + code]` to the block's own region, whose query set is
  eight words of `table` from row `stage_row + region`. All stages are AND-ed.
- `pending[s]`: the queries with a factor in stage s or a later one; none after the last. An
  element none of whose queries is pending visits no further stage: its queries have seen all
  their factors, and are output (CACQ, section 3.2.3: the completion mask).
- `layer_*`: layer j holds every query's j-th clause: the query sets of its parts are OR-ed, with
  `layer_pass` for the queries that have no such clause, and the result is AND-ed to the query set.

There are two loops. `match_dense` spends the same on every element and transposes the bits as it
goes. `match_sparse` leaves an element as soon as no query is left, and writes (query, element)
pairs. The first costs some 40 ns an element and block whatever matches; the second a few ns for
an element without matches and a few for each match.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, njit, types, uint64

from millpond.model.bit_matrix import (
    finish_streaming,
    popcount,
    stream_word,
    trailing_zeros,
    transpose_tile,
)
from millpond.model.compiled import I64, U32, U64, compiled

#: A matrix of so many words or more would not fit the caches, and is written past them.
STREAM_FROM = 1 << 17

_I32_2D = types.Array(types.int32, 2, "C")
_U16 = types.Array(types.uint16, 1, "C")
_U64_2D = types.Array(types.uint64, 2, "C")

_PROGRAM = (_U16, _U64_2D, U64, I64, I64, I64, _U64_2D, _U64_2D, I64, I64, I64, I64)


@njit(inline="always")
def _and_stage(tile: Any, table: Any, codes: Any, translation: Any, shift: Any, row: Any) -> None:
    for t in range(len(codes)):
        at = uint64(row) + uint64(translation[uint64(shift) + uint64(codes[t])])
        base = uint64(8 * t)
        for w in range(8):
            tile[base + uint64(w)] &= table[at, uint64(w)]


@njit(inline="always")
def _or_stage(tile: Any, table: Any, codes: Any, translation: Any, shift: Any, row: Any) -> None:
    for t in range(len(codes)):
        at = uint64(row) + uint64(translation[uint64(shift) + uint64(codes[t])])
        base = uint64(8 * t)
        for w in range(8):
            tile[base + uint64(w)] |= table[at, uint64(w)]


@compiled(types.void(_I32_2D, *_PROGRAM, _U64_2D, I64))
def match_dense(
    codes: Any,
    translation: Any,
    table: Any,
    present: Any,
    stage_code: Any,
    stage_shift: Any,
    stage_row: Any,
    pending: Any,
    layer_pass: Any,
    layer_start: Any,
    part_code: Any,
    part_shift: Any,
    part_row: Any,
    out: Any,
    counts: Any,
) -> None:  # pragma: no cover - compiled
    """Fill `out[query, word of 64 elements]` and add to `counts[query]`.

    Args:
        out: A row for each of the first 64 * k queries of the block; words beyond the elements
            are zeroed. If a row is a number of cache lines, and the rows begin with one, a large
            matrix is written past the caches.
    """
    n = codes.shape[1]
    lanes = len(out) // 64
    width = out.shape[1]
    streamed = width % 8 == 0 and out.size >= STREAM_FROM
    # Eight tiles of 64 elements, so that a query's bits leave a cache line at a time. Rows are
    # padded: else the eight words of one line would compete for one set of the cache.
    pitch = 512 + 8
    tiles = np.empty(8 * pitch, np.uint64)
    either = np.empty(512, np.uint64)
    for first in range(0, n, 512):
        filled = 0
        for start in range(first, min(first + 512, n), 64):
            size = min(64, n - start)
            tile = tiles[filled * pitch : filled * pitch + 512]
            for t in range(size):
                for w in range(8):
                    tile[8 * t + w] = present[w]
            for i in range(8 * size, 512):
                tile[i] = uint64(0)
            for s in range(len(stage_code)):
                _and_stage(
                    tile,
                    table,
                    codes[stage_code[s], start : start + size],
                    translation,
                    stage_shift[s],
                    stage_row[s],
                )
            for layer in range(len(layer_pass)):
                for t in range(size):
                    for w in range(8):
                        either[8 * t + w] = layer_pass[layer, w]
                for p in range(layer_start[layer], layer_start[layer + 1]):
                    _or_stage(
                        either,
                        table,
                        codes[part_code[p], start : start + size],
                        translation,
                        part_shift[p],
                        part_row[p],
                    )
                for i in range(8 * size):
                    tile[i] &= either[i]
            transpose_tile(tile)
            filled += 1
        word = first >> 6
        for lane in range(lanes):
            for bit in range(64):
                query = lane * 64 + bit
                ones = uint64(0)
                if streamed and filled == 8:
                    for k in range(8):
                        bits = tiles[k * pitch + 8 * bit + lane]
                        stream_word(out, uint64(query), uint64(word + k), bits)
                        ones += popcount(bits)
                else:
                    for k in range(filled):
                        bits = tiles[k * pitch + 8 * bit + lane]
                        out[query, word + k] = bits
                        ones += popcount(bits)
                    for k in range(filled, min(8, width - word)):
                        out[query, word + k] = uint64(0)
                counts[query] += int64(ones)
    if streamed:
        finish_streaming()


@compiled(types.UniTuple(int64, 2)(_I32_2D, *_PROGRAM, int64, _U16, U32))
def match_sparse(
    codes: Any,
    translation: Any,
    table: Any,
    present: Any,
    stage_code: Any,
    stage_shift: Any,
    stage_row: Any,
    pending: Any,
    layer_pass: Any,
    layer_start: Any,
    part_code: Any,
    part_shift: Any,
    part_row: Any,
    first: int,
    queries: Any,
    rows: Any,
) -> tuple[int, int]:  # pragma: no cover - compiled
    """Write (query, element) pairs from element `first` on, as long as there is room.

    Returns:
        The number of pairs, and the first element not done (their number if all are).
    """
    n = codes.shape[1]
    room = len(queries) - 512
    found = 0
    acc = np.empty(8, np.uint64)
    either = np.empty(8, np.uint64)
    stages = len(stage_code)
    for t in range(first, n):
        if found > room:
            return found, t
        for w in range(8):
            acc[w] = present[w]
        for s in range(stages):
            code = uint64(codes[stage_code[s], t])
            at = uint64(stage_row[s]) + uint64(translation[uint64(stage_shift[s]) + code])
            rest = uint64(0)
            for w in range(8):
                acc[w] &= table[at, uint64(w)]
                rest |= acc[w] & pending[s + 1, w]
            if rest == uint64(0):
                break
        rest = uint64(0)
        for w in range(8):
            rest |= acc[w]
        if rest == uint64(0):
            continue
        for layer in range(len(layer_pass)):
            for w in range(8):
                either[w] = layer_pass[layer, w]
            for p in range(layer_start[layer], layer_start[layer + 1]):
                code = uint64(codes[part_code[p], t])
                at = uint64(part_row[p]) + uint64(translation[uint64(part_shift[p]) + code])
                for w in range(8):
                    either[w] |= table[at, uint64(w)]
            for w in range(8):
                acc[w] &= either[w]
        for w in range(8):
            word = acc[w]
            while word != uint64(0):
                queries[found] = 64 * w + int64(trailing_zeros(word))
                rows[found] = t
                found += 1
                word &= word - uint64(1)
    return found, n


@compiled(types.void(_U16, U32, int64, I64, U32))
def sort_pairs(
    queries: Any, rows: Any, pairs: int, ends: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Lay the elements of each query side by side, in order.

    Args:
        ends: On entry where each query's elements begin in `out`; on return where they end.
    """
    for i in range(pairs):
        query = queries[i]
        out[ends[query]] = rows[i]
        ends[query] += 1


@compiled(types.void(_U16, int64, I64))
def count_pairs(queries: Any, pairs: int, counts: Any) -> None:  # pragma: no cover - compiled
    """Add each query's number of pairs to `counts`."""
    for i in range(pairs):
        counts[queries[i]] += 1


@compiled(types.void(_I32_2D, *_PROGRAM, int64, types.Array(types.int64, 2, "C")))
def observe(
    codes: Any,
    translation: Any,
    table: Any,
    present: Any,
    stage_code: Any,
    stage_shift: Any,
    stage_row: Any,
    pending: Any,
    layer_pass: Any,
    layer_start: Any,
    part_code: Any,
    part_shift: Any,
    part_row: Any,
    step: int,
    seen: Any,
) -> None:  # pragma: no cover - compiled
    """Count how every `step`-th element passes the stages, to choose the loop and the order.

    Args:
        seen: Row s counts for stage s: the elements that came with an undecided query, the elements
            that left with an undecided query, the queries left afterwards. The last row is for the
            layers.
    """
    acc = np.empty(8, np.uint64)
    either = np.empty(8, np.uint64)
    stages = len(stage_code)
    for t in range(0, codes.shape[1], step):
        for w in range(8):
            acc[w] = present[w]
        for s in range(stages):
            rest = uint64(0)
            for w in range(8):
                rest |= acc[w] & pending[s, w]
            if rest == uint64(0):
                break
            code = uint64(codes[stage_code[s], t])
            at = uint64(stage_row[s]) + uint64(translation[uint64(stage_shift[s]) + code])
            left = uint64(0)
            rest = uint64(0)
            for w in range(8):
                acc[w] &= table[at, uint64(w)]
                left += popcount(acc[w])
                rest |= acc[w] & pending[s, w]
            seen[s, 0] += 1
            seen[s, 1] += int64(rest != uint64(0))
            seen[s, 2] += int64(left)
        left = uint64(0)
        for w in range(8):
            left += popcount(acc[w])
        if left == uint64(0):
            continue
        for layer in range(len(layer_pass)):
            for w in range(8):
                either[w] = layer_pass[layer, w]
            for p in range(layer_start[layer], layer_start[layer + 1]):
                code = uint64(codes[part_code[p], t])
                at = uint64(part_row[p]) + uint64(translation[uint64(part_shift[p]) + code])
                for w in range(8):
                    either[w] |= table[at, uint64(w)]
            for w in range(8):
                acc[w] &= either[w]
        left = uint64(0)
        for w in range(8):
            left += popcount(acc[w])
        seen[stages, 0] += 1
        seen[stages, 1] += int64(left > uint64(0))
        seen[stages, 2] += int64(left)


@compiled(types.void(_U64_2D, I64, I64, U32))
def list_rows(bits: Any, chosen: Any, ends: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write the numbers of the ones of the chosen rows of `bits`, one row after the other.

    Args:
        ends: Where in `out` each row's numbers end, padding to an even number included.
    """
    at = 0
    for i in range(len(chosen)):
        row = chosen[i]
        for w in range(bits.shape[1]):
            word = bits[row, w]
            while word != uint64(0):
                out[at] = (w << 6) + int64(trailing_zeros(word))
                at += 1
                word &= word - uint64(1)
        while at < ends[i]:
            out[at] = 0
            at += 1
