"""A counted B+ tree for compiled functions; `ordered_multiset` keeps each group in such a tree.

All trees share one pool of nodes. A node has up to 16 entries. In a leaf an entry is a key and its
count; above, it is a child, a lower bound of the child's keys, and the count of everything in the
child. The first entry's bound is not read (it stands for minus infinity), so a new least key
changes nothing above its leaf. Full nodes are split on the way down. On the way back a node of less
than a quarter is merged with a neighbour if both fit in three quarters, so that a tree that empties
returns its nodes.

INV-TREE-1: every count is positive, and the count of an entry above a leaf is the sum of its
child's. INV-TREE-2: keys of a child are at least its bound and less than the next one's.

The arguments of every function: `keys`, `counts`, `child` by node and entry; `sizes` by node (how
many entries); `free`, the numbers of free nodes; `state[0]`, how many nodes are free; `root`, one
tree: its top node (−1: empty), its height, its number of keys with copies, and of distinct keys.
"""

from __future__ import annotations

from numba import int64

from millpond.model.compiled import called

#: Entries of a node.
WIDTH = 16
#: Nodes that must be free before a key is put in: more than any path is long.
RESERVE = 40
#: A node with fewer entries than this is merged with a neighbour where possible.
_THIN = WIDTH // 4
_TOGETHER = 3 * WIDTH // 4


@called
def _split(node, parent, place, keys, counts, child, sizes, free, state):  # type: ignore[no-untyped-def]
    """Move the upper half of a full node into a new node, whose entry in the parent comes next."""
    state[0] -= 1
    fresh = free[state[0]]
    half = WIDTH // 2
    moved = int64(0)
    for i in range(WIDTH - half):
        keys[fresh, i] = keys[node, half + i]
        counts[fresh, i] = counts[node, half + i]
        child[fresh, i] = child[node, half + i]
        moved += counts[node, half + i]
    sizes[fresh] = WIDTH - half
    sizes[node] = half
    for i in range(sizes[parent], place + 1, -1):
        keys[parent, i] = keys[parent, i - 1]
        counts[parent, i] = counts[parent, i - 1]
        child[parent, i] = child[parent, i - 1]
    keys[parent, place + 1] = keys[fresh, 0]
    counts[parent, place + 1] = moved
    counts[parent, place] -= moved
    child[parent, place + 1] = fresh
    sizes[parent] += 1


@called
def insert(root, key, weight, keys, counts, child, sizes, free, state):  # type: ignore[no-untyped-def]
    """Add a key; return whether it is new. `root`: node, height, count, distinct keys."""
    if root[0] < 0:
        state[0] -= 1
        root[0] = free[state[0]]
        root[1] = 0
        sizes[root[0]] = 0
    if sizes[root[0]] == WIDTH:
        state[0] -= 1
        top = free[state[0]]
        keys[top, 0] = keys[root[0], 0]
        counts[top, 0] = root[2]
        child[top, 0] = root[0]
        sizes[top] = 1
        _split(root[0], top, 0, keys, counts, child, sizes, free, state)
        root[0] = top
        root[1] += 1
    node = root[0]
    for _ in range(root[1]):
        place = sizes[node] - 1
        while place > 0 and keys[node, place] > key:
            place -= 1
        if sizes[child[node, place]] == WIDTH:
            _split(child[node, place], node, place, keys, counts, child, sizes, free, state)
            if keys[node, place + 1] <= key:
                place += 1
        counts[node, place] += weight
        node = int64(child[node, place])
    root[2] += weight
    size = sizes[node]
    place = int64(0)
    while place < size and keys[node, place] < key:
        place += 1
    if place < size and keys[node, place] == key:
        counts[node, place] += weight
        return False
    for i in range(size, place, -1):
        keys[node, i] = keys[node, i - 1]
        counts[node, i] = counts[node, i - 1]
    keys[node, place] = key
    counts[node, place] = weight
    sizes[node] = size + 1
    root[3] += 1
    return True


@called
def _drop_entry(node, place, keys, counts, child, sizes):  # type: ignore[no-untyped-def]
    for i in range(place, sizes[node] - 1):
        keys[node, i] = keys[node, i + 1]
        counts[node, i] = counts[node, i + 1]
        child[node, i] = child[node, i + 1]
    sizes[node] -= 1


@called
def _mend(parent, place, leaf, keys, counts, child, sizes, free, state):  # type: ignore[no-untyped-def]
    """Drop a child that is empty, or merge a thin child with a neighbour."""
    node = int64(child[parent, place])
    if sizes[node] == 0:
        free[state[0]] = node
        state[0] += 1
        _drop_entry(parent, place, keys, counts, child, sizes)
        return
    left = place
    if place + 1 >= sizes[parent] or sizes[node] + sizes[child[parent, place + 1]] > _TOGETHER:
        left = place - 1
    if left < 0:
        return
    first, second = int64(child[parent, left]), int64(child[parent, left + 1])
    if sizes[first] + sizes[second] > _TOGETHER:
        return
    at = sizes[first]
    for i in range(sizes[second]):
        keys[first, at + i] = keys[second, i]
        counts[first, at + i] = counts[second, i]
        child[first, at + i] = child[second, i]
    if not leaf:
        # A first entry's bound is never read, and may be wrong: the bound of its node is right.
        keys[first, at] = keys[parent, left + 1]
    sizes[first] += sizes[second]
    counts[parent, left] += counts[parent, left + 1]
    free[state[0]] = second
    state[0] += 1
    _drop_entry(parent, left + 1, keys, counts, child, sizes)


@called
def remove(root, key, weight, keys, counts, child, sizes, free, state, path, places):  # type: ignore[no-untyped-def]
    """Take out a key `weight` times: 1 if that was the last of it, 0 if not, −1 if it fails."""
    if root[0] < 0:
        return int64(-1)
    node = root[0]
    height = root[1]
    for level in range(height):
        place = sizes[node] - 1
        while place > 0 and keys[node, place] > key:
            place -= 1
        path[level] = node
        places[level] = place
        node = int64(child[node, place])
    size = sizes[node]
    place = int64(0)
    while place < size and keys[node, place] < key:
        place += 1
    if place == size or keys[node, place] != key or counts[node, place] < weight:
        return int64(-1)
    for level in range(height):
        counts[path[level], places[level]] -= weight
    root[2] -= weight
    counts[node, place] -= weight
    if counts[node, place] > 0:
        return int64(0)
    _drop_entry(node, place, keys, counts, child, sizes)
    root[3] -= 1
    level = height - 1
    while level >= 0 and sizes[node] < _THIN:
        leaf = level == height - 1
        _mend(path[level], places[level], leaf, keys, counts, child, sizes, free, state)
        node = path[level]
        level -= 1
    node = root[0]
    while root[1] > 0 and sizes[node] == 1:
        free[state[0]] = node
        state[0] += 1
        node = int64(child[node, 0])
        root[0] = node
        root[1] -= 1
    if sizes[node] == 0:
        free[state[0]] = node
        state[0] += 1
        root[0] = -1
        root[1] = 0
    return int64(1)


@called
def select(root, rank, keys, counts, child):  # type: ignore[no-untyped-def]
    """Return the key with `rank` keys before it in order, copies counted."""
    node = root[0]
    for _ in range(root[1]):
        place = int64(0)
        while rank >= counts[node, place]:
            rank -= counts[node, place]
            place += 1
        node = int64(child[node, place])
    place = int64(0)
    while rank >= counts[node, place]:
        rank -= counts[node, place]
        place += 1
    return keys[node, place]


@called
def find_rank(root, key, keys, counts, child, sizes):  # type: ignore[no-untyped-def]
    """Return how many copies of lesser keys there are, and how many of the key itself."""
    before = int64(0)
    if root[0] < 0:
        return before, int64(0)
    node = root[0]
    for _ in range(root[1]):
        place = int64(0)
        while place + 1 < sizes[node] and keys[node, place + 1] <= key:
            before += counts[node, place]
            place += 1
        node = int64(child[node, place])
    place = int64(0)
    while place < sizes[node] and keys[node, place] < key:
        before += counts[node, place]
        place += 1
    if place == sizes[node] or keys[node, place] != key:
        return before, int64(0)
    return before, counts[node, place]


@called
def find_extreme(root, greatest, keys, child, sizes):  # type: ignore[no-untyped-def]
    """Return the least or the greatest key."""
    node = root[0]
    for _ in range(root[1]):
        node = int64(child[node, sizes[node] - 1 if greatest else 0])
    return keys[node, sizes[node] - 1 if greatest else 0]


@called
def list_entries(root, skip, room, keys, counts, child, sizes, path, places, out):  # type: ignore[no-untyped-def]
    """List keys and counts, at most `room` copies, from the `skip`-th on; return both numbers."""
    found, copies = int64(0), int64(0)
    if root[0] < 0 or skip >= root[2] or room == 0:
        return found, copies
    node = root[0]
    height = root[1]
    rank = skip
    for level in range(height + 1):
        place = int64(0)
        while rank >= counts[node, place]:
            rank -= counts[node, place]
            place += 1
        path[level] = node
        places[level] = place
        if level < height:
            node = int64(child[node, place])
    while copies < room:
        place = places[height]
        taken = min(counts[node, place] - rank, room - copies)
        rank = 0
        out[found, 0] = keys[node, place]
        out[found, 1] = taken
        found += 1
        copies += taken
        # Next entry: go up until there is an entry to the right, then down its left side.
        level = height
        while level >= 0 and places[level] + 1 >= sizes[path[level]]:
            level -= 1
        if level < 0:
            break
        places[level] += 1
        for below in range(level + 1, height + 1):
            path[below] = int64(child[path[below - 1], places[below - 1]])
            places[below] = 0
        node = path[height]
    return found, copies
