"""Matches with like elements side by side: most words are empty, and the others are full.

What an element matches follows from the regions of its values. In the order of arrival a query's
matches are spread like noise; with elements of near regions side by side they stand in clumps, and
take half the bytes. To reorder rows so that bitmaps compress is an old remedy (Lemire, Kaser and
Aouiche, "Sorting improves word-aligned bitmap indexes", 2010); there the order is lexicographic,
here elements are sorted by cells of a grid over all attributes, as every query looks at several.

Elements themselves stay where they are. Each block of 65,536 has a permutation, two bytes an
element, which all queries share; what is read is put back in order by bits.

    data   = where each block begins (uint32 each), block 0, block 1, …, one to eight zeros
    block  = a bit for each word of 64 places: whether anything in it matches; then of each such
             word a byte that says which of its bytes are not zero, and those bytes; or a zero
             where everything matches
    place  = the element `order[place]` of the block
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import int32, int64, njit, types, uint8, uint16, uint64

from millpond.engine.values.region_codes import CodableColumn, coder_for
from millpond.model.bit_matrix import list_ones, trailing_zeros
from millpond.model.compiled import I64, READ_I64, READ_U8, U8, U64, compiled

#: Elements of a block, as a power of two: a place in it takes two bytes.
_BLOCK = 16
#: Cells of the grid at most: some elements of each are in a block.
_MOST_CELLS = 8192
#: Attributes of the grid at most, each of at least two parts then.
_MOST_ATTRIBUTES = 13
#: Elements that are looked at to divide an attribute.
_SAMPLE = 2048

_I32_2D = types.Array(types.int32, 2, "C")
_I32 = types.Array(types.int32, 1, "C")
_U16 = types.Array(types.uint16, 1, "C")
_READ_U16 = types.Array(types.uint16, 1, "C", readonly=True)
_U64_2D = types.Array(types.uint64, 2, "C")

#: Numbers of a list beyond its last, see `list_ones`.
_SLACK = 4

Order = npt.NDArray[np.uint16]
NO_ORDER: Order = np.zeros(0, np.uint16)


def cluster(columns: Sequence[CodableColumn], rows: int) -> Order:
    """Order the elements of each block by the cells of a grid over some attributes.

    Args:
        columns: The attributes' values, those first that matter most.
        rows: The number of elements.

    Returns:
        For each place, the number in its block of the element that stands there.
    """
    samples = [column.sample(max(1, rows // _SAMPLE)) for column in columns[:_MOST_ATTRIBUTES]]
    distinct = [_distinct(sample) for sample in samples]
    cell, cells = np.zeros(rows, np.int32), 1
    part = np.empty(rows, np.int32)
    parts = _divide([len(values) for values in distinct])
    for column, sample, values, of in zip(columns, samples, distinct, parts, strict=False):
        cuts = values[1:]
        if of < len(values):
            cuts = _distinct([sample[i * len(sample) // of] for i in range(1, of)])
        column.code(coder_for(column.domain, cuts), len(cuts) + 1, part)
        regions = len(cuts) + 1 + (column.nulls is not None)
        cells *= regions
        _add_part(part, regions, cell)
    order = np.empty(rows, np.uint16)
    _sort_by_cell(cell, cells, order)
    return order


def _distinct(places: Any) -> Any:
    return sorted(set(places)) if isinstance(places, list) else np.unique(places)


def _divide(distinct: Sequence[int]) -> list[int]:
    """Say in how many parts each attribute is divided: in as many, if it has so many values.

    >>> _divide([2000]), _divide([300, 300]), _divide([300, 2, 300, 300, 300, 300])
    ([2000], [91, 90], [6, 2, 5, 5, 5, 5])
    """
    parts = [1] * len(distinct)
    cells = 1
    growing = [place for place, values in enumerate(distinct) if values > 1]
    while growing:
        for place in list(growing):
            more = cells // parts[place] * (parts[place] + 1)
            if parts[place] == distinct[place] or more > _MOST_CELLS:
                growing.remove(place)
            else:
                parts[place] += 1
                cells = more
    return parts


def take_in_order(codes: npt.NDArray[np.int32], order: Order) -> npt.NDArray[np.int32]:
    """Return the codes place by place."""
    # Arrow's pool reuses memory; fresh pages would cost more than the taking.
    taken = np.frombuffer(pa.allocate_buffer(codes.nbytes), np.int32).reshape(codes.shape)
    _take(codes, order, taken)
    return taken


def restore_rows(bits: npt.NDArray[np.uint64], chosen: npt.NDArray[np.int64], order: Order) -> None:
    """Put the bits of chosen queries, which stand place by place, in the order of elements."""
    _restore(bits, np.asarray(chosen, np.int64), order)


def write_clustered(
    bits: npt.NDArray[np.uint64],
    chosen: npt.NDArray[np.int64],
    most: npt.NDArray[np.int64],
    rows: int,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Write the matches of chosen queries, whose bits stand place by place, end to end.

    Args:
        bits: A row of words a query; words beyond the elements are zero.
        chosen: The numbers of the rows to write.
        most: Of each of these, the bytes it may take. One that takes more is left out.
        rows: The number of elements.

    Returns:
        The bytes, and where each query's end: where it begins, if it is left out.
    """
    blocks = -(-rows >> _BLOCK)
    room = int(most.sum()) + blocks * 4 + _most_of_block() + 8
    data = np.frombuffer(pa.allocate_buffer(room), np.uint8)
    ends = np.empty(len(chosen), np.int64)
    used = _write(bits, np.asarray(chosen, np.int64), np.asarray(most, np.int64), rows, data, ends)
    return data[:used], ends


def _most_of_block() -> int:
    words = 1 << (_BLOCK - 6)
    return words // 8 + 9 * words


def rows_of_clustered(
    data: npt.NDArray[np.uint8],
    order: Order,
    count: int,
    low: int,
    begin: int,
    end: int,
    high: int,
) -> npt.NDArray[np.int64]:
    """Read the elements in [low, begin) and [end, high), ascending, from a list of `count`."""
    high, end = min(high, len(order)), min(end, len(order))
    out = np.empty(max(0, min(count, begin - low + high - end)) + _SLACK, np.uint64)
    return out[: _read(data, order, low, begin, end, high, out)].view(np.int64)


@compiled(types.void(_I32, int64, _I32))
def _add_part(part: Any, regions: int, cell: Any) -> None:  # pragma: no cover - compiled
    for t in range(len(cell)):
        cell[t] = cell[t] * int32(regions) + part[t]


@compiled(types.void(_I32, int64, _U16))
def _sort_by_cell(cell: Any, cells: int, order: Any) -> None:  # pragma: no cover - compiled
    """Sort the elements of each block by their cells; those of a cell stay as they came."""
    places = np.empty(cells + 1, np.int64)
    for first in range(0, len(cell), 1 << _BLOCK):
        last = min(first + (1 << _BLOCK), len(cell))
        places[:] = 0
        for t in range(first, last):
            places[uint64(cell[t]) + uint64(1)] += 1
        for c in range(cells):
            places[c + 1] += places[c]
        for t in range(first, last):
            c = uint64(cell[t])
            order[first + places[c]] = uint16(t - first)
            places[c] += 1


@compiled(types.void(_I32_2D, _READ_U16, _I32_2D))
def _take(codes: Any, order: Any, taken: Any) -> None:  # pragma: no cover - compiled
    for first in range(0, len(order), 1 << _BLOCK):
        last = min(first + (1 << _BLOCK), len(order))
        for a in range(len(codes)):
            for place in range(first, last):
                taken[a, place] = codes[a, uint64(first) + uint64(order[place])]


@compiled(types.void(_U64_2D, READ_I64, _READ_U16))
def _restore(bits: Any, chosen: Any, order: Any) -> None:  # pragma: no cover - compiled
    held = np.empty(1 << (_BLOCK - 6), np.uint64)
    words = (len(order) + 63) >> 6
    for i in range(len(chosen)):
        query = uint64(chosen[i])
        for first in range(0, words, len(held)):
            size = min(len(held), words - first)
            held[:size] = uint64(0)
            for w in range(size):
                word = bits[query, uint64(first + w)]
                base = uint64(first + w) << uint64(6)
                while word != uint64(0):
                    row = uint64(order[base + trailing_zeros(word)])
                    held[row >> uint64(6)] |= uint64(1) << (row & uint64(63))
                    word &= word - uint64(1)
            for w in range(size):
                bits[query, uint64(first + w)] = held[w]


@njit(inline="always")
def _put_number(out: Any, at: Any, number: Any) -> None:
    for k in range(4):
        out[at + uint64(k)] = uint8(number >> uint64(8 * k))


@njit(inline="always")
def _number_at(data: Any, at: Any) -> Any:
    number = uint64(0)
    for k in range(4):
        number |= uint64(data[uint64(at) + uint64(k)]) << uint64(8 * k)
    return number


@compiled(types.int64(_U64_2D, READ_I64, READ_I64, int64, U8, I64))
def _write(
    bits: Any, chosen: Any, most: Any, rows: int, out: Any, ends: Any
) -> int:  # pragma: no cover - compiled
    # Unsigned numbers throughout: an index that might be negative costs a test.
    one = uint64(1)
    words = uint64((rows + 63) >> 6)
    of_block = uint64(1 << (_BLOCK - 6))
    blocks = (words + of_block - one) // of_block
    at = uint64(0)
    for i in range(len(chosen)):
        query = uint64(chosen[i])
        begin = at
        at += uint64(4) * blocks
        for block in range(blocks):
            _put_number(out, begin + uint64(4) * block, at - begin)
            first = block * of_block
            size = min(of_block, words - first)
            flags = at
            at += (size + uint64(7)) >> uint64(3)
            for group in range((size + uint64(7)) >> uint64(3)):
                present = uint64(0)
                for k in range(min(uint64(8), size - group * uint64(8))):
                    word = bits[query, first + group * uint64(8) + k]
                    if word == uint64(0):
                        continue
                    present |= one << k
                    if word == ~uint64(0):
                        out[at] = uint8(0)
                        at += one
                        continue
                    mask = uint64(0)
                    place = at + one
                    for j in range(8):
                        byte = (word >> uint64(8 * j)) & uint64(255)
                        out[place] = uint8(byte)
                        is_used = uint64(byte != uint64(0))
                        mask |= is_used << uint64(j)
                        place += is_used
                    out[at] = uint8(mask)
                    at = place
                out[flags + group] = uint8(present)
            if at - begin > uint64(most[i]):
                break
        # At least one byte is behind the last, as reading looks at one too many.
        for _ in range(uint64(8) - (at & uint64(7))):
            out[at] = uint8(0)
            at += one
        if at - begin > uint64(most[i]):
            at = begin
        ends[i] = at
    return int64(at)


@njit(inline="always")
def _open_block(data: Any, order: Any, block: Any, places: Any, held: Any) -> None:
    """Set the bits of a block's elements that match."""
    base = uint64(block) << uint64(_BLOCK)
    size = min(uint64(1 << _BLOCK), uint64(len(order)) - base)
    flags = _number_at(data, uint64(4) * uint64(block))
    groups = (size + uint64(511)) >> uint64(9)
    at = flags + groups
    found = uint64(0)
    for group in range(groups):
        present = uint64(data[flags + group])
        while present != uint64(0):
            first = (uint64(group) * uint64(8) + trailing_zeros(present)) << uint64(6)
            present &= present - uint64(1)
            mask = uint64(data[at])
            at += uint64(1)
            word = uint64(0) - uint64(mask == uint64(0))
            for j in range(8):
                is_used = (mask >> uint64(j)) & uint64(1)
                # Without one it is the next byte, which is masked out.
                word |= (uint64(data[at]) & (uint64(0) - is_used)) << uint64(8 * j)
                at += is_used
            found = list_ones(word, base + first, places, found)
    held[:] = uint64(0)
    for i in range(found):
        row = uint64(order[places[uint64(i)]])
        held[row >> uint64(6)] |= uint64(1) << (row & uint64(63))


@njit(inline="always")
def _list_held(held: Any, base: Any, low: Any, high: Any, out: Any, found: Any) -> Any:
    """Write the elements of an open block that are in [low, high), counted from its first."""
    if low >= high:
        return found
    first = low >> uint64(6)
    last = (high - uint64(1)) >> uint64(6)
    for w in range(first, last + uint64(1)):
        word = held[w]
        if w == first:
            word &= uint64(0xFFFFFFFFFFFFFFFF) << (low & uint64(63))
        if w == last:
            word &= uint64(0xFFFFFFFFFFFFFFFF) >> (uint64(63) - ((high - uint64(1)) & uint64(63)))
        found = list_ones(word, base + (uint64(w) << uint64(6)), out, found)
    return found


@compiled(types.int64(READ_U8, _READ_U16, int64, int64, int64, int64, U64))
def _read(
    data: Any, order: Any, low: int, begin: int, end: int, high: int, out: Any
) -> int:  # pragma: no cover - compiled
    places = np.empty((1 << _BLOCK) + _SLACK, np.uint64)
    held = np.empty(1 << (_BLOCK - 6), np.uint64)
    found = uint64(0)
    for block in range(low >> _BLOCK, ((high - 1) >> _BLOCK) + 1):
        base = block << _BLOCK
        upto = base + (1 << _BLOCK)
        has_head = max(low, base) < min(begin, upto)
        has_tail = max(end, base) < min(high, upto)
        if not has_head and not has_tail:
            continue
        _open_block(data, order, block, places, held)
        if has_head:
            near, far = uint64(max(low, base) - base), uint64(min(begin, upto) - base)
            found = _list_held(held, uint64(base), near, far, out, found)
        if has_tail:
            near, far = uint64(max(end, base) - base), uint64(min(high, upto) - base)
            found = _list_held(held, uint64(base), near, far, out, found)
    return int64(found)
