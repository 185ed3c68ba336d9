"""The compiled loop over led queries: region codes in, pairs of query and element out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, njit, types, uint32, uint64

from millpond.engine.matching.predicate_columns import BELOW, MORE, NULLS
from millpond.engine.values.prefetch import prefetch, prefetch_row
from millpond.model.compiled import I64, U32, U64, compiled

_I32 = types.Array(types.int32, 1, "C")
_I32_2D = types.Array(types.int32, 2, "C")
_U8 = types.Array(types.uint8, 1, "C")

_BELOW, _NULLS, _MORE = int(BELOW), int(NULLS), int(MORE)
#: Cuts of a part up to which they are counted one after the other.
_FEW = 8
#: Elements whose cells and entries are asked of memory together.
_AHEAD = 32
#: Of an entry's first number: the next entry is another test of the same query; the query has
#: further parts to be looked at. The query's place is in the bits above.
NEXT, ASKS, PLACE = 1, 2, 2
#: The most bits of a place that one pass of a sort looks at.
_DIGIT = 11


@njit(inline="always")
def _holds(code: Any, of_null: Any, flags: Any, cuts: Any, start: Any, end: Any) -> Any:
    """Whether a value with this code belongs to a part."""
    odd = (flags & _BELOW) != 0
    if code == of_null:
        odd = (flags & _NULLS) != 0
    elif end - start <= _FEW:
        for i in range(start, end):
            odd ^= cuts[i] <= code
    else:
        low, high = start, end
        while low < high:
            middle = (low + high) >> 1
            if cuts[middle] <= code:
                low = middle + 1
            else:
                high = middle
        odd ^= ((low - start) & 1) != 0
    return odd


@njit(inline="always")
def _asks(
    codes: Any,
    t: Any,
    of_null: Any,
    part_axis: Any,
    part_flags: Any,
    cut_start: Any,
    cuts: Any,
    part: Any,
    stop: Any,
    done: Any,
) -> Any:
    """Whether an element satisfies the clauses of parts from `part` to `stop`, except `done`."""
    holds = True
    while part < stop and holds:
        if part != done:
            axis = part_axis[part]
            flags = part_flags[part]
            start, end = cut_start[part], cut_start[part + 1]
            holds = _holds(codes[axis, t], of_null[axis], flags, cuts, start, end)
            # Its alternatives: until one holds, and then over the others.
            while flags & _MORE:
                part += 1
                flags = part_flags[part]
                if not holds:
                    axis = part_axis[part]
                    start, end = cut_start[part], cut_start[part + 1]
                    holds = _holds(codes[axis, t], of_null[axis], flags, cuts, start, end)
        part += 1
    return holds


@compiled(
    types.UniTuple(int64, 2)(
        _I32_2D,
        I64,
        I64,
        I64,
        I64,
        U32,
        _I32_2D,
        I64,
        I64,
        _I32,
        _U8,
        I64,
        _I32,
        int64,
        int64,
        int64,
        U64,
        I64,
    )
)
def find_led(
    codes: Any,
    of_null: Any,
    lead_axis: Any,
    lead_shift: Any,
    lead_base: Any,
    cell_start: Any,
    entries: Any,
    done: Any,
    part_start: Any,
    part_axis: Any,
    part_flags: Any,
    cut_start: Any,
    cuts: Any,
    first: int,
    lowest: int,
    highest: int,
    pairs: Any,
    came: Any,
) -> tuple[int, int]:  # pragma: no cover - compiled
    """Write pairs, query << 32 | element, from element `first` on, as long as there is room.

    Some elements are taken together: first all their cells are asked for, then all entries of the
    cells, and then the entries are read. So memory serves many requests at once. The tests of an
    entry have no branches, because nobody can predict which tests hold.

    Args:
        lowest, highest: Only queries with places in [lowest, highest) are written.
        pairs: Longer than there are entries.
        came: For each lead, counts the elements that were led to a query.

    Returns:
        The number of pairs, and the first element not done (their number if all are). The elements
        of each query ascend.
    """
    room = len(pairs)
    leads = len(lead_axis)
    begins = np.empty(_AHEAD * leads, np.int64)
    ends = np.empty(_AHEAD * leads, np.int64)
    owners = np.empty(_AHEAD * leads, np.int64)
    starts = np.zeros(leads + 1, np.int64)
    ahead = _AHEAD
    found = uint64(0)
    t = first
    while t < codes.shape[1]:
        step = min(ahead, codes.shape[1] - t)
        for k in range(leads):
            axis, base, shift = lead_axis[k], lead_base[k], lead_shift[k]
            for i in range(step):
                cell = base + (int64(codes[axis, t + i]) >> shift)
                begins[k * step + i] = cell
                prefetch(cell_start, cell)
        led = 0
        asked = int64(0)
        for k in range(leads):
            for i in range(step):
                cell = uint64(begins[k * step + i])
                begin = int64(cell_start[cell])
                end = int64(cell_start[cell + uint64(1)])
                prefetch_row(entries, begin)
                prefetch_row(entries, end - 1)
                # The cells not read yet are further on.
                begins[led] = begin
                ends[led] = end
                owners[led] = t + i
                led += int64(end > begin)
                asked += end - begin
            starts[k + 1] = led
        if asked >= room - int64(found):
            if ahead == 1:
                return int64(found), t
            ahead >>= 1
            continue
        for k in range(leads):
            came[k] += starts[k + 1] - starts[k]
        for i in range(led):
            element = uint64(owners[i])
            holds = True
            for e in range(uint64(begins[i]), uint64(ends[i])):
                head = entries[e, 0]
                code = codes[uint64(entries[e, 1]), element]
                holds &= (code >= entries[e, 2]) & (code < entries[e, 3])
                query = int64(head >> PLACE)
                if (head & ASKS) and holds:
                    holds = _asks(
                        codes,
                        element,
                        of_null,
                        part_axis,
                        part_flags,
                        cut_start,
                        cuts,
                        part_start[query],
                        part_start[query + 1],
                        done[query],
                    )
                is_last = (head & NEXT) == 0
                pairs[found] = (uint64(query) << uint64(32)) | element
                found += uint64(holds & is_last & (query >= lowest) & (query < highest))
                holds |= is_last
        t += step
    return int64(found), t


@compiled(types.UniTuple(int64, 2)(U64, U64, int64, _U8, I64, I64, U32))
def group_pairs(
    pairs: Any, spare: Any, queries: int, gone: Any, members: Any, counts: Any, rows: Any
) -> tuple[int, int]:  # pragma: no cover - compiled
    """Group pairs by query, queries ascending; each query's elements stay in their order.

    Args:
        pairs, spare: The pairs, and as much room; both are overwritten.
        queries: More than the greatest place.
        gone: For each query, whether its pairs are left out; or nothing.
        members, counts, rows: Take the queries, how many elements each has, and the elements.

    Returns:
        How many queries have an element, and how many elements they have together.
    """
    bits = 1
    while (1 << bits) < queries:
        bits += 1
    passes = (bits + _DIGIT - 1) // _DIGIT
    width = (bits + passes - 1) // passes
    mask = uint64((1 << width) - 1)
    for p in range(passes):
        shift = uint64(32 + p * width)
        places = np.zeros((1 << width) + 1, np.int64)
        for i in range(len(pairs)):
            places[((pairs[i] >> shift) & mask) + uint64(1)] += 1
        for d in range(1 << width):
            places[d + 1] += places[d]
        for i in range(len(pairs)):
            pair = pairs[i]
            digit = (pair >> shift) & mask
            spare[uint64(places[digit])] = pair
            places[digit] += 1
        pairs, spare = spare, pairs
    known = int64(0)
    upto = int64(0)
    latest = int64(-1)
    for i in range(len(pairs)):
        query = int64(pairs[i] >> uint64(32))
        if len(gone) and gone[query]:
            continue
        is_new = int64(query != latest)
        known += is_new
        members[known - 1] = query
        counts[known - 1] = (1 - is_new) * counts[known - 1] + 1
        rows[upto] = uint32(pairs[i])
        latest = query
        upto += 1
    return known, upto


@compiled(types.void(U32, I64, I64, types.Array(types.boolean, 1, "C"), I64, U32))
def copy_lists(
    rows: Any, counts: Any, ends: Any, chosen: Any, to: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Copy the rows of the chosen queries, each to an even place of `out`.

    Args:
        counts: How many rows each query has in `rows`, and `ends` where they end.
        to: Where the lists of the chosen queries end in `out`, padding included.
    """
    at = 0
    chosen_before = 0
    for i in range(len(counts)):
        if chosen[i]:
            for k in range(ends[i] - counts[i], ends[i]):
                out[at] = rows[k]
                at += 1
            at = to[chosen_before]
            chosen_before += 1
