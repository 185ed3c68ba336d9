"""ROWS windows: an element leaves when its N-th successor comes.

On arrival it is not known when that will be, so negative tuples announce the elements that leave.
If an element's N-th successor comes in the same step, the element's interval is known, and one row
with that interval is the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.model.patterns import Edge, window_edge
from millpond.model.time import END
from millpond.model.windows import Rows
from millpond.operators.protocol.cost_model import GROUPED, EdgeEstimate, StreamStatistics
from millpond.operators.protocol.delta import Bools, Delta, Ints
from millpond.operators.protocol.node import Operator, Scalars, Unary
from millpond.operators.protocol.sharding import Sharding
from millpond.operators.structures.key_numbers import KeyNumbers
from millpond.operators.structures.row_store import RowStore
from millpond.synopses.mapped_memory import grow_array


@dataclass(frozen=True, eq=False)
class RowsWindow(Unary):
    """`[ROWS n]`, or `[PARTITION BY … ROWS n]`.

    Attributes:
        input: The elements.
        count: n.
        by: Places of the columns of PARTITION BY.
        text: The window as CQL, for EXPLAIN.
    """

    count: int
    by: tuple[int, ...] = ()
    text: str = ""

    name = "window"
    carries_expirations = False
    is_window = True
    announces = True

    @property
    def state(self) -> str:
        return "queue by key" if self.by else "queue"

    @property
    def edge(self) -> Edge:
        return window_edge(Rows(self.count))

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.count, self.by)

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        (given,) = inputs
        kept = self.count * (given.count_distinct(self.by) if self.by else 1.0)
        life = min(kept / given.arrivals, given.life) if given.arrivals else 0.0
        return replace(given, negatives=given.arrivals, life=life)

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        return GROUPED * own.changes

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        return {place: columns for place, columns in (inputs[0] or {}).items() if place in self.by}

    def operator(self) -> Operator:
        return RowsWindowing(self.count, self.by, self.schema)


@compiled(types.int64(types.int64, types.int64, READ_I64, READ_I64, I64, I64, I64, I64, I64, I64))
def _queue(count, base, numbers, at, following, first, last, length, left, left_at):  # type: ignore[no-untyped-def]
    """Put new elements at the ends of their keys' queues and take the oldest from the heads.

    An element is known by its place: the new elements have the places `base`, `base` + 1, …
    `following` has for each place the next place of its key; `first`, `last` and `length` describe
    each key's queue. The elements that leave, and when, go to `left` and `left_at`.
    """
    found = 0
    for i in range(len(numbers)):
        key, place = numbers[i], base + i
        if length[key]:
            following[last[key]] = place
        else:
            first[key] = place
        last[key] = place
        if length[key] < count:
            length[key] += 1
            continue
        left[found] = first[key]
        left_at[found] = at[i]
        first[key] = following[first[key]]
        found += 1
    return found


class RowsWindowing:
    """Runs `RowsWindow`: a queue of elements for each key, so that a step costs as its new rows do.

    Elements are known by their places in a store, in (timestamp, sequence) order; a queue consists
    of places. The store is laid out anew when most of its elements have left the window.
    """

    def __init__(self, count: int, by: tuple[int, ...], schema: pa.Schema) -> None:
        self._count, self._by = count, by
        self._keys = KeyNumbers([schema.field(place).type for place in by])
        self._rows = RowStore(schema)
        self._alive = 0
        #: For each place, when its element came, and the next place of its key.
        self._at = np.zeros(0, np.int64)
        self._following = np.zeros(0, np.int64)
        #: For each key, the first and last place of its queue, and the queue's length.
        self._first = np.zeros(0, np.int64)
        self._last = np.zeros(0, np.int64)
        self._length = np.zeros(0, np.int64)

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        if not len(delta):
            return delta
        base = len(self._rows)
        places, until = self._queue_elements(delta, base)
        self._rows.add(delta.rows)
        gone = np.full(len(delta), END, np.int64)
        is_new = places >= base
        gone[places[is_new] - base] = until[is_new]
        # An element that leaves at its own timestamp was never in the window.
        new = np.flatnonzero(gone > delta.at)
        # One that an earlier step gave leaves, even if it came at this very instant.
        passing = (until > self._at[places]) | ~is_new
        places, until = places[passing], until[passing]
        at = np.concatenate([delta.at[new], until])
        weight = np.concatenate([np.ones(len(new), np.int64), np.full(len(places), -1)])
        order = np.argsort(at, kind="stable")
        out = self._rows.pick(np.concatenate([base + new, places])[order])
        self._forget()
        return Delta.of(out, at[order], None, weight[order])

    def _queue_elements(self, delta: Delta, base: int) -> tuple[Ints, Ints]:
        """Take in new elements; return the places of the elements that leave, and when they do."""
        numbers = np.zeros(len(delta), np.int64)
        if self._by:
            numbers = self._keys.number([delta.rows.column(place) for place in self._by])
        else:
            self._keys.number_empty_rows()
        keys, size = len(self._keys), base + len(delta)
        self._first, self._last = grow_array(self._first, keys, 0), grow_array(self._last, keys, 0)
        self._length = grow_array(self._length, keys, 0)
        self._at = grow_array(self._at, size, 0)
        self._at[base:size] = delta.at
        self._following = grow_array(self._following, size, -1)
        left, until = np.empty(len(delta), np.int64), np.empty(len(delta), np.int64)
        queues = (self._following, self._first, self._last, self._length)
        at = np.ascontiguousarray(delta.at)
        found = _queue(self._count, base, numbers, at, *queues, left, until)
        self._alive += len(delta) - found
        return left[:found], until[:found]

    def _forget(self) -> None:
        """Lay out the store anew, when most of its elements have left the window."""
        size = len(self._rows)
        if size <= 2 * self._alive + 64:
            return
        alive, keys = self._find_alive(), len(self._keys)
        moved = np.cumsum(alive) - 1
        self._rows.keep(alive)
        self._at = self._at[:size][alive]
        # A queue's last place has no next place: its entry means nothing and may be any number.
        self._following = moved[np.clip(self._following[:size][alive], 0, size - 1)]
        self._first[:keys] = moved[self._first[:keys]]
        self._last[:keys] = moved[self._last[:keys]]

    def _find_alive(self) -> Bools:
        """Find the places of the elements that are in the window."""
        alive = np.zeros(len(self._rows), bool)
        keys = len(self._keys)
        place = self._first[:keys].copy()
        left = self._length[:keys].copy()
        while len(place):
            alive[place] = True
            left -= 1
            going_on = left > 0
            place, left = self._following[place[going_on]], left[going_on]
        return alive

    def list_elements(self) -> Delta:
        """List the elements that are in the window."""
        alive = np.flatnonzero(self._find_alive())
        return Delta.of(self._rows.pick(alive), self._at[alive])

    def size(self) -> int:
        return self._alive
