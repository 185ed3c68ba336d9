"""The compiled loop over led queries: region codes in, pairs of query and element out."""

from __future__ import annotations

from typing import Any

from numba import int64, njit, types, uint64

from millpond.engine.matching.predicate_columns import BELOW, MORE, NULLS
from millpond.model.compiled import I64, U32, U64, compiled

_I32 = types.Array(types.int32, 1, "C")
_I32_2D = types.Array(types.int32, 2, "C")
_U8 = types.Array(types.uint8, 1, "C")

_BELOW, _NULLS, _MORE = int(BELOW), int(NULLS), int(MORE)
#: Cuts of a part up to which they are counted one after the other.
_FEW = 8


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

    Args:
        lowest, highest: Only queries with places in [lowest, highest) are written.
        pairs: Has room for every such query of one element.
        came: For each lead, counts the elements that were led to a query.

    Returns:
        The number of pairs, and the first element not done (their number if all are).
    """
    room = len(pairs)
    found = 0
    for t in range(first, codes.shape[1]):
        before = found
        for k in range(len(lead_axis)):
            code = int64(codes[lead_axis[k], t])
            cell = uint64(lead_base[k] + (code >> lead_shift[k]))
            begin = int64(cell_start[cell])
            end = int64(cell_start[cell + uint64(1)])
            came[k] += int64(end > begin)
            for e in range(begin, end):
                code = int64(codes[entries[e, 1], t])
                if code < entries[e, 2] or code >= entries[e, 3]:
                    continue
                query = int64(entries[e, 0] >> 1)
                if query < lowest or query >= highest:
                    continue
                holds = True
                if entries[e, 0] & 1:
                    holds = _asks(
                        codes,
                        t,
                        of_null,
                        part_axis,
                        part_flags,
                        cut_start,
                        cuts,
                        part_start[query],
                        part_start[query + 1],
                        done[query],
                    )
                if holds:
                    if found == room:
                        return before, t
                    pairs[found] = (uint64(query) << uint64(32)) | uint64(t)
                    found += 1
    return found, codes.shape[1]


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
