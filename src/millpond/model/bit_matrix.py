"""Bits of queries by elements: matched element by element, kept query by query.

A query set is 64 queries a word; a batch against a block of queries is a matrix with one row of
words per element. Invocation reads one query over many elements, so the matrix is transposed
before it is kept: 64x64 bits at a time by masked swaps (Hacker's Delight, section 7-3), eight
words side by side so that the compiler does all eight in one vector register.

Everywhere, bit i of word w stands for number 64 * w + i.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types, uint64
from numba.extending import intrinsic

from millpond.model.compiled import I64, READ_U32, READ_U64, U64, compiled

Words = npt.NDArray[np.uint64]

#: Words of a query set that are handled together: 512 bits, one cache line.
LANES = 8


@intrinsic
def popcount(typing_context: Any, word: Any) -> Any:
    """Count the ones in a word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Return the place of the lowest set bit of a word that is not zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), generate


@intrinsic
def zeros_below(typing_context: Any, word: Any) -> Any:
    """Return the place of the lowest set bit of a word; 64 if there is none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, False))

    return types.uint64(types.uint64), generate


@intrinsic
def stream_word(typing_context: Any, words: Any, row: Any, column: Any, word: Any) -> Any:
    """Store `words[row, column] = word` past the caches, for a matrix nobody reads soon.

    An ordinary store first fetches the cache line it is going to overwrite, which doubles the
    traffic. A streamed store saves that only if whole cache lines are written one after the other.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pitch = builder.extract_value(array.strides, 0)
        start = builder.bitcast(array.data, ir.IntType(8).as_pointer())
        eight = ir.Constant(ir.IntType(64), 8)
        offset = builder.add(builder.mul(arguments[1], pitch), builder.mul(arguments[2], eight))
        place = builder.bitcast(builder.gep(start, [offset]), ir.IntType(64).as_pointer())
        store = builder.store(arguments[3], place, align=8)
        one = ir.Constant(ir.IntType(32), 1)
        store.set_metadata("nontemporal", builder.module.add_metadata([one]))
        return context.get_dummy_value()

    return types.void(words, types.uint64, types.uint64, types.uint64), generate


@intrinsic
def finish_streaming(typing_context: Any) -> Any:
    """Make streamed words visible to other threads before anything that follows."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@njit(inline="always")
def _swap_twice(tile: Words, distance: int, mask: Any, finer: Any) -> None:  # pragma: no cover
    """Swap twice: rows exchange halves of words with rows `distance` away, then half that.

    Two swaps at a time: four words meet in registers, and each is loaded and stored once.
    """
    half = distance >> 1
    far = uint64(distance)
    near = uint64(half)
    run = half * LANES
    for first in range(0, 64 * LANES, 4 * run):
        for i in range(first, first + run):
            a = tile[i]
            b = tile[i + run]
            c = tile[i + 2 * run]
            d = tile[i + 3 * run]
            moved = ((a >> far) ^ c) & mask
            c ^= moved
            a ^= moved << far
            moved = ((b >> far) ^ d) & mask
            d ^= moved
            b ^= moved << far
            moved = ((a >> near) ^ b) & finer
            tile[i] = a ^ (moved << near)
            tile[i + run] = b ^ moved
            moved = ((c >> near) ^ d) & finer
            tile[i + 2 * run] = c ^ (moved << near)
            tile[i + 3 * run] = d ^ moved


@njit(inline="always")
def transpose_tile(tile: Words) -> None:  # pragma: no cover - compiled
    """Transpose eight 64x64 bit matrices, in place.

    Args:
        tile: 512 words; word 8 * r + w is row r of matrix w.
    """
    _swap_twice(tile, 32, uint64(0x00000000FFFFFFFF), uint64(0x0000FFFF0000FFFF))
    _swap_twice(tile, 8, uint64(0x00FF00FF00FF00FF), uint64(0x0F0F0F0F0F0F0F0F))
    _swap_twice(tile, 2, uint64(0x3333333333333333), uint64(0x5555555555555555))


@njit(inline="always")
def list_ones(word: Any, base: Any, out: Any, found: Any) -> Any:  # pragma: no cover - compiled
    """Write the places of a word's ones to `out` from place `found` on; return where it ends.

    Always four at a time, however many there are (Lemire: the exit of a loop that counts is
    mispredicted): `out` has three places more, and those beyond the last are overwritten later.
    """
    ones = popcount(word)
    done = uint64(0)
    while done < ones:
        for k in range(4):
            out[found + done + uint64(k)] = base + zeros_below(word)
            word &= word - uint64(1)
        done += uint64(4)
    return found + ones


@compiled(types.int64(READ_U64, types.int64, types.int64))
def count_ones(words: Words, low: int, high: int) -> int:  # pragma: no cover - compiled
    """Count the ones with numbers in [low, high)."""
    if low >= high:
        return 0
    first = low >> 6
    last = (high - 1) >> 6
    count = uint64(0)
    for w in range(first, last + 1):
        word = words[w]
        if w == first:
            word &= uint64(0xFFFFFFFFFFFFFFFF) << uint64(low & 63)
        if w == last:
            word &= uint64(0xFFFFFFFFFFFFFFFF) >> uint64(63 - ((high - 1) & 63))
        count += popcount(word)
    return types.int64(count)


@compiled(types.int64(READ_U64, types.int64, types.int64, I64))
def find_ones(
    words: Words, low: int, high: int, out: npt.NDArray[np.int64]
) -> int:  # pragma: no cover - compiled
    """Write the numbers of the ones in [low, high), ascending; return how many.

    `out` must have room for all of them.
    """
    if low >= high:
        return 0
    first = low >> 6
    last = (high - 1) >> 6
    n = 0
    for w in range(first, last + 1):
        word = words[w]
        if w == first:
            word &= uint64(0xFFFFFFFFFFFFFFFF) << uint64(low & 63)
        if w == last:
            word &= uint64(0xFFFFFFFFFFFFFFFF) >> uint64(63 - ((high - 1) & 63))
        while word != uint64(0):
            out[n] = (w << 6) + types.int64(trailing_zeros(word))
            n += 1
            word &= word - uint64(1)
    return n


@compiled(I64(READ_U64, types.int64, types.int64, types.int64, types.int64))
def find_ones_at_edges(
    words: Words, low: int, begin: int, end: int, high: int
) -> npt.NDArray[np.int64]:  # pragma: no cover - compiled
    """Return the numbers of the ones in [low, begin) and [end, high), ascending."""
    head = count_ones(words, low, begin)
    out = np.empty(head + count_ones(words, end, high), np.int64)
    find_ones(words, low, begin, out)
    find_ones(words, end, high, out[head:])
    return out


@compiled(types.void(READ_U32, U64))
def set_ones(rows: npt.NDArray[np.uint32], words: Words) -> None:  # pragma: no cover - compiled
    """Set the bits with these numbers."""
    for row in rows:
        words[row >> 6] |= uint64(1) << uint64(row & 63)


def words_for(bits: int) -> int:
    """Count the words that hold so many bits.

    >>> words_for(0), words_for(64), words_for(65)
    (0, 1, 2)
    """
    return (bits + 63) >> 6


def rows_of_bits(words: Words, low: int, high: int) -> npt.NDArray[np.int64]:
    """Return the numbers in [low, high) whose bits are set, ascending.

    >>> rows_of_bits(bits_of_rows(np.array([3, 64, 100]), 128), 4, 128)
    array([ 64, 100])
    """
    out = np.empty(count_ones(words, low, high), np.int64)
    find_ones(words, low, high, out)
    return out


def bits_of_rows(rows: npt.NDArray[Any], bits: int) -> Words:
    """Make words for `bits` bits in which those with the given numbers are set."""
    words = np.zeros(words_for(bits), np.uint64)
    set_ones(np.ascontiguousarray(rows, np.uint32), words)
    return words
