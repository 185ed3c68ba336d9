"""The last rows of each key, and pointers that trail behind each key's newest row.

A pointer trails by a number of rows or by a length of time. So a step costs what it brings, however
many keys there are: each new row moves the pointers of its own key. Rows lie in one store, in the
order they came; the rows of a key are a linked list of places in it. Rows that all pointers of
their key have passed are dropped when they are half of the store.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.operators.protocol.delta import Ints
from millpond.operators.structures.row_store import RowStore
from millpond.synopses.mapped_memory import choose_like, grow_array

#: Stores of fewer rows are not looked through for rows that are not needed.
_FEW = 1_024


@compiled(types.void(types.int64, READ_I64, I64, I64))
def _link_rows(base, numbers, following, last):  # type: ignore[no-untyped-def]
    """Put new rows, whose places begin at `base`, at the ends of their keys' lists."""
    for i in range(len(numbers)):
        key = numbers[i]
        if last[key] >= 0:
            following[last[key]] = base + i
        last[key] = base + i


@compiled(types.void(types.int64, types.int64, READ_I64, READ_I64, I64, I64, I64))
def _trail_by_rows(lag, base, numbers, following, pointer, between, out):  # type: ignore[no-untyped-def]
    """Find for each new row the place of the row `lag` rows before in its key; -1: none.

    `between` counts the rows from a key's pointer to its newest row, up to `lag`.
    """
    for i in range(len(numbers)):
        key = numbers[i]
        if pointer[key] < 0:
            pointer[key] = base + i
        if between[key] < lag:
            between[key] += 1
            out[i] = -1
            continue
        out[i] = pointer[key]
        pointer[key] = following[pointer[key]]


@compiled(types.int64(types.int64, types.int64, READ_I64, READ_I64, READ_I64, I64, I64, I64))
def _trail_by_time(span, base, numbers, at, following, pointer, left, by):  # type: ignore[no-untyped-def]
    """Move pointers past the rows that are more than `span` older than a new row of their key.

    The places of these rows go to `left`, and which new row moved the pointer to `by`.
    """
    found = 0
    for i in range(len(numbers)):
        key, now = numbers[i], at[base + i]
        if pointer[key] < 0:
            pointer[key] = base + i
        while at[pointer[key]] < now - span:
            left[found] = pointer[key]
            by[found] = i
            found += 1
            pointer[key] = following[pointer[key]]
    return found


class TrailingRows:
    """The last rows of each key, as far back as a pointer trails.

    Attributes:
        lags: The numbers of rows by which pointers trail, each at least 1.
        spans: The lengths of time by which pointers trail.
    """

    def __init__(self, schema: pa.Schema, lags: Sequence[int], spans: Sequence[int]) -> None:
        self.lags, self.spans = tuple(lags), tuple(spans)
        self._rows = RowStore(schema)
        #: For each place, when its row came, its key, and the next place of the key.
        self._at = np.zeros(0, np.int64)
        self._key = np.zeros(0, np.int64)
        self._following = np.zeros(0, np.int64)
        #: For each key the place of its newest row, and of each pointer.
        self._last = np.zeros(0, np.int64)
        self._pointers = [np.zeros(0, np.int64) for _ in (*self.lags, *self.spans)]
        self._between = [np.zeros(0, np.int64) for _ in self.lags]
        self._look_at = _FEW

    def add(self, rows: pa.RecordBatch, numbers: Ints, at: Ints, keys: int) -> int:
        """Add rows at the ends of their keys' lists.

        Args:
            rows: The rows, each no older than those before.
            numbers: The key of each, in [0, keys).
            at: The instant at which each came.
            keys: The bound of the keys.

        Returns:
            The place of the first; the others follow.
        """
        self._forget()
        base = len(self._rows)
        size = base + len(numbers)
        self._rows.add(rows)
        self._at, self._key = grow_array(self._at, size), grow_array(self._key, size)
        self._following = grow_array(self._following, size, -1)
        self._at[base:size], self._key[base:size] = at, numbers
        self._following[base:size] = -1
        self._last = grow_array(self._last, keys, -1)
        self._pointers = [grow_array(pointer, keys, -1) for pointer in self._pointers]
        self._between = [grow_array(between, keys) for between in self._between]
        _link_rows(base, numbers, self._following, self._last)
        return base

    def trail_by_rows(self, number: int, numbers: Ints, base: int) -> Ints:
        """Move the pointer of `lags[number]`; find the row at which it was for each added row.

        Returns:
            For each row that was added the place of the row so many rows before; -1: none.
        """
        out = np.empty(len(numbers), np.int64)
        pointer, between = self._pointers[number], self._between[number]
        _trail_by_rows(self.lags[number], base, numbers, self._following, pointer, between, out)
        return out

    def trail_by_time(self, number: int, numbers: Ints, base: int) -> tuple[Ints, Ints]:
        """Move the pointer of `spans[number]` for the added rows.

        Returns:
            The places of the rows that it passed, and for each the number of the added row that is
            more than the span younger, ascending.
        """
        left, by = (np.empty(base + len(numbers), np.int64) for _ in range(2))
        pointer = self._pointers[len(self.lags) + number]
        span = self.spans[number]
        found = _trail_by_time(span, base, numbers, self._at, self._following, pointer, left, by)
        return left[:found], by[:found]

    def pick(self, places: Ints) -> pa.RecordBatch:
        """Pick rows by their places, until rows are added again."""
        return self._rows.pick(places)

    def _forget(self) -> None:
        """Drop the rows that all pointers have passed, when there may be many."""
        size = len(self._rows)
        if size < self._look_at:
            return
        oldest = np.minimum.reduce(self._pointers)
        alive = np.arange(size) >= oldest[self._key[:size]]
        moved = np.cumsum(alive) - 1
        self._rows.keep(alive)
        self._at = choose_like(self._at[:size], alive)
        self._key = choose_like(self._key[:size], alive)
        # The newest row of a key has no next place: its entry stays -1.
        following = choose_like(self._following[:size], alive)
        known = following >= 0
        following[known] = moved[following[known]]
        self._following = following
        for places in (self._last, *self._pointers):
            used = places >= 0
            places[used] = moved[places[used]]
        self._look_at = max(_FEW, 2 * len(self._rows))

    def size(self) -> int:
        return len(self._rows)
