"""The walks of ordered multisets: apply a batch's changes, and trace the values asked for.

A walk returns 0 when nodes run out, because compiled code cannot make the pool larger. Called
again with more nodes, it goes on where it was.
"""

from __future__ import annotations

import numpy as np
from numba import int64, types

from millpond.model.compiled import I64, READ_F64, READ_I64, called, compiled
from millpond.synopses.counted_tree import (
    RESERVE,
    find_extreme,
    find_rank,
    insert,
    list_entries,
    remove,
    select,
)

_KEYS = types.Array(types.int64, 2, "C")
_CHILD = types.Array(types.int32, 2, "C")
_CELLS = (READ_I64, READ_I64, READ_I64)

#: The kinds of picks: the least or the greatest key, the number of distinct keys, or a quantile:
#: DuckDB's discrete one, or the entry below or above the place of the continuous one.
LEAST, GREATEST, DISTINCT, DISCRETE, BELOW, ABOVE = range(6)

_POOL = (_KEYS, _KEYS, _CHILD, I64, I64, I64, types.Array(types.int64, 2, "C"))


@called
def _pick(root, picks, shares, keys, counts, child, sizes, out):  # type: ignore[no-untyped-def]
    total = root[2]
    out[len(picks)] = total
    if total == 0:
        for i in range(len(picks)):
            out[i] = 0
        return
    for i in range(len(picks)):
        kind = picks[i]
        if kind == LEAST:
            out[i] = find_extreme(root, False, keys, child, sizes)
        elif kind == GREATEST:
            out[i] = find_extreme(root, True, keys, child, sizes)
        elif kind == DISTINCT:
            out[i] = root[3]
        else:
            share = shares[i]
            if kind == DISCRETE:
                # DuckDB's discrete quantile: the first key with at least that share up to it.
                rank = int64(max(1, total - int64(np.floor(total - share * total))) - 1)
            else:
                exact = (total - 1) * share
                rank = int64(np.floor(exact) if kind == BELOW else np.ceil(exact))
            out[i] = select(root, rank, keys, counts, child)


@compiled(
    types.int64(READ_I64, *_CELLS, READ_I64, READ_I64, READ_I64, READ_F64, *_POOL, I64, _KEYS)
)
def walk(  # type: ignore[no-untyped-def]
    order,
    bounds,
    starts,
    groups,
    weights,
    values,
    picks,
    shares,
    keys,
    counts,
    child,
    sizes,
    free,
    state,
    roots,
    position,
    trace,
):
    """Apply changes and pick: 1 when done, 0 when nodes run out (call again), −1: a key is missing.

    `position` says where to go on: the touched group, the cell in it (if any of it was applied),
    and the change in that cell.
    """
    path = np.empty(64, np.int64)
    places = np.empty(64, np.int64)
    for t in range(position[0], len(groups)):
        root = roots[groups[t]]
        c = starts[t]
        resumed = int64(-1)
        if position[2] >= 0:
            c = position[1]
            resumed = position[2]
            position[2] = -1
        else:
            _pick(root, picks, shares, keys, counts, child, sizes, trace[c + t])
        while c < starts[t + 1]:
            # Apply additions before removals: then every removed key is there, whatever the order.
            for j in range(bounds[c] if resumed < 0 else resumed, bounds[c + 1]):
                if weights[j] > 0:
                    if state[0] < RESERVE:
                        position[0] = t
                        position[1] = c
                        position[2] = j
                        return 0
                    key = values[order[j]]
                    insert(root, key, weights[j], keys, counts, child, sizes, free, state)
            resumed = -1
            for j in range(bounds[c], bounds[c + 1]):
                if weights[j] < 0:
                    key, times = values[order[j]], -weights[j]
                    if (
                        remove(
                            root, key, times, keys, counts, child, sizes, free, state, path, places
                        )
                        < 0
                    ):
                        return -1
            _pick(root, picks, shares, keys, counts, child, sizes, trace[c + t + 1])
            c += 1
    return 1


@compiled(types.int64(READ_I64, *_CELLS, READ_I64, READ_I64, *_POOL, I64, I64))
def find_transitions(  # type: ignore[no-untyped-def]
    order,
    bounds,
    starts,
    groups,
    weights,
    values,
    keys,
    counts,
    child,
    sizes,
    free,
    state,
    roots,
    position,
    out,
):
    """Apply changes as `walk` does, but report which changes make a key appear or disappear."""
    path = np.empty(64, np.int64)
    places = np.empty(64, np.int64)
    for t in range(position[0], len(groups)):
        root = roots[groups[t]]
        c = starts[t]
        resumed = int64(-1)
        if position[2] >= 0:
            c = position[1]
            resumed = position[2]
            position[2] = -1
        while c < starts[t + 1]:
            for j in range(bounds[c] if resumed < 0 else resumed, bounds[c + 1]):
                if weights[j] > 0:
                    if state[0] < RESERVE:
                        position[0] = t
                        position[1] = c
                        position[2] = j
                        return 0
                    key = values[order[j]]
                    if insert(root, key, weights[j], keys, counts, child, sizes, free, state):
                        out[j] = 1
            resumed = -1
            for j in range(bounds[c], bounds[c + 1]):
                if weights[j] < 0:
                    key, times = values[order[j]], -weights[j]
                    gone = remove(
                        root, key, times, keys, counts, child, sizes, free, state, path, places
                    )
                    if gone < 0:
                        return -1
                    if gone == 1:
                        out[j] = -1
            c += 1
    return 1


@called
def _count_within(root, key, low, high, keys, counts, child, sizes):  # type: ignore[no-untyped-def]
    """Count a key's copies at the places [low, high) of the order."""
    before, count = find_rank(root, key, keys, counts, child, sizes)
    return max(min(before + count, high) - max(before, low), int64(0))


@compiled(types.int64(*[READ_I64] * 3, types.int64, types.int64, *_POOL, I64, _KEYS, I64, I64, I64))
def slide(  # type: ignore[no-untyped-def]
    at,
    weights,
    values,
    skip,
    room,
    keys,
    counts,
    child,
    sizes,
    free,
    state,
    roots,
    position,
    watched,
    out_at,
    out_key,
    out_by,
):
    """Slide a range: 1 when done, 0 when nodes or room run out (call again), −1: a key is missing.

    Where c copies come or go, no other copy moves by more than c places. So besides the changed
    keys only those within c places of an end of the range can come into it or leave it. These are
    `watched`: keys, and how many copies of each were in the range before the instant.

    `position`: the instant's first change to go on at, the change in it (or −1), rows of output,
    how many keys are watched (−1: the instant has not begun), how many need room.
    """
    path = np.empty(64, np.int64)
    places = np.empty(64, np.int64)
    root = roots[0]
    end = skip + room
    n = len(at)
    low = position[0]
    while low < n:
        high = low
        moved = int64(0)
        while high < n and at[high] == at[low]:
            moved += abs(weights[high])
            high += 1
        position[0] = low
        if position[3] < 0:
            near = min(2 * moved, root[3])
            position[4] = high - low + 2 * near
            if len(watched) < position[4]:
                return 0
            candidates = np.empty(position[4], np.int64)
            found = int64(0)
            for j in range(low, high):
                candidates[found] = values[j]
                found += 1
            listed = np.empty((near, 2), np.int64)
            for border in (skip, end):
                first = max(border - moved, int64(0))
                several, _ = list_entries(
                    root,
                    first,
                    max(border + moved - first, int64(0)),
                    keys,
                    counts,
                    child,
                    sizes,
                    path,
                    places,
                    listed,
                )
                for k in range(several):
                    candidates[found] = listed[k, 0]
                    found += 1
            ordered = np.sort(candidates[:found])
            position[3] = 0
            for k in range(found):
                key = ordered[k]
                if k == 0 or key != ordered[k - 1]:
                    watched[position[3], 0] = key
                    watched[position[3], 1] = _count_within(
                        root, key, skip, end, keys, counts, child, sizes
                    )
                    position[3] += 1
        if len(out_at) - position[2] < position[3]:
            return 0
        start = position[1] if position[1] >= 0 else low
        position[1] = -1
        for j in range(start, high):
            if weights[j] > 0:
                if state[0] < RESERVE:
                    position[1] = j
                    return 0
                insert(root, values[j], weights[j], keys, counts, child, sizes, free, state)
        for j in range(low, high):
            if weights[j] < 0:
                key, times = values[j], -weights[j]
                gone = remove(
                    root, key, times, keys, counts, child, sizes, free, state, path, places
                )
                if gone < 0:
                    return -1
        out = position[2]
        for k in range(position[3]):
            key = watched[k, 0]
            now = _count_within(root, key, skip, end, keys, counts, child, sizes)
            if now != watched[k, 1]:
                out_at[out] = at[low]
                out_key[out] = key
                out_by[out] = now - watched[k, 1]
                out += 1
        position[2] = out
        position[3] = -1
        low = high
    position[0] = n
    return 1
