"""Rows waiting for their expiration: the state structures of the update-pattern paper's 5.3.2.

    structure      finding the rows that are due       serves
    queue          from the front                      WEAKEST
    partitions     sort a partition when it comes up   WEAK (calendar queue, figure 7)
    arrival order  look at every row, every time       WEAK in the direct approach

The paper compares with the last ("if the state buffer is sorted by tuple arrival time, then
insertions are simple, but deletions require a sequential scan of the buffer", 2.3.3). The calendar
queue also has buffers in arrival order, for new rows: it scans them until there are enough rows
that putting them into partitions pays.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import numpy as np
import pyarrow as pa

from millpond.model.patterns import Pattern
from millpond.model.time import END
from millpond.operators.protocol.delta import Delta, Ints
from millpond.operators.structures.row_store import RowStore
from millpond.synopses.mapped_memory import grow_array

#: Chunks with fewer rows than this are merged, so that small steps do not leave long lists.
SMALL = 4_096
#: Chunks of more rows are not merged.
_MERGED = 1 << 17
#: Partitions by expiration time, unless a plan says otherwise (the paper's default).
PARTITIONS = 10
#: Instead of a number of partitions: rows are kept in the order of arrival.
ARRIVAL_ORDER = 0


class ExpirationQueue(Protocol):
    """Keeps rows with known expirations and returns them when they are due."""

    def add(self, rows: Delta) -> None:
        """Add rows; every `until` is known."""

    def take_due(self, upto: int) -> list[Delta]:
        """Remove the rows with until ≤ upto; return their negative tuples."""
        ...

    def size(self) -> int:
        """Rows kept."""
        ...


class FifoQueue:
    """A queue, for rows that come in the order of their expiration."""

    def __init__(self) -> None:
        self._chunks: deque[Delta] = deque()

    def add(self, rows: Delta) -> None:
        if not len(rows):
            return
        if self._chunks and len(self._chunks[-1]) + len(rows) < SMALL:
            rows = _concatenate([self._chunks.pop(), rows])
        self._chunks.append(rows)

    def take_due(self, upto: int) -> list[Delta]:
        taken = []
        while self._chunks and self._chunks[0].until[0] <= upto:
            chunk = self._chunks.popleft()
            count = int(np.searchsorted(chunk.until, upto, side="right"))
            taken.append(_negate_rows(chunk.slice(0, count)))
            if count < len(chunk):
                self._chunks.appendleft(chunk.slice(count, len(chunk)))
                break
        return taken

    def size(self) -> int:
        return sum(len(c) for c in self._chunks)


class ScannedQueue:
    """Rows in the order they came; all are scanned whenever some may be due."""

    def __init__(self) -> None:
        self._rows: RowStore | None = None
        self._until: Ints = np.empty(0, np.int64)
        self._weight: Ints = np.empty(0, np.int64)
        self._gone = 0

    def add(self, rows: Delta) -> None:
        if not len(rows):
            return
        if self._rows is None:
            self._rows = RowStore(rows.rows.schema)
        low, high = len(self._rows), len(self._rows) + len(rows)
        self._until = grow_array(self._until, high, END)
        self._weight = grow_array(self._weight, high, 0)
        self._until[low:high] = rows.until
        self._weight[low:high] = rows.weight
        self._rows.add(rows.rows)

    def take_due(self, upto: int) -> list[Delta]:
        if self._rows is None:
            return []
        places = np.flatnonzero(self._until[: len(self._rows)] <= upto)
        return self._take(places) if len(places) else []

    def _take(self, places: Ints) -> list[Delta]:
        assert self._rows is not None
        until = self._until[places]
        order = np.argsort(until, kind="stable")
        places, until = places[order], until[order]
        rows = self._rows.pick(places)
        taken = Delta.of(rows, until, None, -self._weight[places])
        # Rows taken out are marked, and dropped when most rows have been taken out.
        self._until[places] = END
        self._gone += len(places)
        if 2 * self._gone > len(self._rows):
            self._tidy()
        return [taken]

    def _tidy(self) -> None:
        assert self._rows is not None
        count = len(self._rows)
        held = self._until[:count] < END
        self._rows.keep(held)
        self._until, self._weight = self._until[:count][held], self._weight[:count][held]
        self._gone = 0

    def take_everything(self) -> Delta | None:
        """Remove all rows and return them; their `at` means nothing."""
        if self._rows is None or not len(self._rows):
            return None
        if self._gone:
            self._tidy()
        count = len(self._rows)
        until, weight = self._until[:count], self._weight[:count]
        found = Delta(self._rows.everything(), until, until, weight)
        self.__init__()  # type: ignore[misc]
        return found if count else None

    def size(self) -> int:
        return len(self._rows) - self._gone if self._rows is not None else 0


class PartitionedQueue:
    """Partitions by expiration time, of equal width, so that there are about `partitions` of them.

    New rows are scanned at every step until there are some thousands; then they are distributed to
    their partitions, unsorted. A partition is sorted when its time comes. Rows that come to it
    later are again scanned, until there are enough to sort them in. So a row is copied a few times
    in all, however short the steps are and however large the state.

    The width is set by the first rows and doubled when the rows spread over four times as many
    partitions as asked for.
    """

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self._partitions = partitions
        self._width = 0
        self._fresh = ScannedQueue()
        self._held: dict[int, list[Delta]] = {}
        #: The partition whose time has come, sorted; its rows that came later; where it ends.
        self._current: Delta | None = None
        self._late = ScannedQueue()
        self._bound = 0

    def add(self, rows: Delta) -> None:
        self._fresh.add(rows)
        if self._fresh.size() < SMALL:
            return
        fresh = self._fresh.take_everything()
        assert fresh is not None
        if not self._width:
            spread = int(fresh.until.max()) - int(rows.at.min())
            self._width = max(1, spread // self._partitions)
        if self._bound:
            now = fresh.until < self._bound
            if now.any():
                self._late.add(fresh.where(now))
                fresh = fresh.where(~now)
        if len(fresh):
            self._put(fresh)
        while len(self._held) > 4 * self._partitions:
            self._width *= 2
            narrow, self._held = self._held, {}
            for number, chunks in sorted(narrow.items()):
                self._held.setdefault(number // 2, []).extend(chunks)

    def _put(self, rows: Delta) -> None:
        numbers = rows.until // self._width
        first, last = int(numbers.min()), int(numbers.max())
        if first == last:
            self._put_into(first, rows)
            return
        order = np.argsort(numbers, kind="stable")
        ordered, sorted_numbers = rows.take(order), numbers[order]
        edges = np.flatnonzero(np.diff(sorted_numbers)) + 1
        for lo, hi in zip([0, *edges.tolist()], [*edges.tolist(), len(order)], strict=True):
            self._put_into(int(sorted_numbers[lo]), ordered.slice(lo, hi))

    def _put_into(self, number: int, rows: Delta) -> None:
        """Add rows to a partition, which keeps chunks as a row store does."""
        chunks = self._held.setdefault(number, [])
        chunks.append(rows)
        while len(chunks) > 1 and len(chunks[-2]) <= min(2 * len(chunks[-1]), _MERGED):
            last = chunks.pop()
            chunks[-1] = _concatenate([chunks[-1], last])

    def take_due(self, upto: int) -> list[Delta]:
        taken = [*self._fresh.take_due(upto), *self._take_from_current(upto)]
        while (number := min(self._held, default=None)) is not None:
            if number * self._width > upto:
                break
            self._merge()
            rows = _sort_by_expiration(_concatenate(self._held.pop(number)))
            left = self._current
            self._current = (
                rows if left is None else _sort_by_expiration(_concatenate([left, rows]))
            )
            self._bound = max(self._bound, (number + 1) * self._width)
            taken += self._take_from_current(upto)
        if not self._held and self._current is None and not self._late.size():
            self._width = self._bound = 0
        return taken

    def _take_from_current(self, upto: int) -> list[Delta]:
        taken = self._late.take_due(upto)
        current = self._current
        if current is not None:
            count = int(np.searchsorted(current.until, upto, side="right"))
            if count:
                taken.append(_negate_rows(current.slice(0, count)))
                rest = current.slice(count, len(current))
                self._current = rest if len(rest) else None
        if self._late.size() > max(SMALL, (len(self._current) if self._current else 0) // 2):
            self._merge()
        return taken

    def _merge(self) -> None:
        """Sort in the rows that came after their partition had been sorted."""
        late = self._late.take_everything()
        if late is not None:
            parts = [late] if self._current is None else [self._current, late]
            self._current = _sort_by_expiration(_concatenate(parts))

    def size(self) -> int:
        sorted_rows = len(self._current) if self._current is not None else 0
        waiting = sum(len(chunk) for part in self._held.values() for chunk in part)
        return waiting + sorted_rows + self._late.size() + self._fresh.size()


def make_expiration_queue(pattern: Pattern, partitions: int = PARTITIONS) -> ExpirationQueue:
    """Make the structure for rows of an edge with an update pattern."""
    if pattern <= Pattern.WEAKEST:
        return FifoQueue()
    return ScannedQueue() if partitions == ARRIVAL_ORDER else PartitionedQueue(partitions)


def _negate_rows(rows: Delta) -> Delta:
    """Make the negative tuples of rows, each at its row's expiration."""
    return Delta.of(rows.rows, rows.until, None, -rows.weight)


def _concatenate(parts: list[Delta]) -> Delta:
    """Concatenate rows without sorting them by `at`."""
    if len(parts) == 1:
        return parts[0]
    return Delta(
        pa.concat_batches([p.rows for p in parts]),
        np.concatenate([p.at for p in parts]),
        np.concatenate([p.until for p in parts]),
        np.concatenate([p.weight for p in parts]),
    )


def _sort_by_expiration(rows: Delta) -> Delta:
    until: Ints = rows.until
    if bool((until[1:] >= until[:-1]).all()):
        return rows
    return rows.take(np.argsort(until, kind="stable"))
