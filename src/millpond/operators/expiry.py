"""Rows waiting for their expiration: the state structures of the update-pattern paper's 5.3.2.

Where rows leave in the order they came (WEAKEST), a queue: both ends are cheap. Where the time a
row leaves is known but out of order (WEAK), partitions by expiration time, as a calendar queue: a
row is put into its partition unsorted, and a partition is sorted when its time comes.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import numpy as np
import pyarrow as pa

from millpond.model.patterns import Pattern
from millpond.operators.delta import Delta, Ints

#: Chunks smaller than this are laid together, so that small steps do not leave long lists.
_SMALL = 4_096
#: Partitions by expiration time, unless a plan says otherwise (the paper's default).
PARTITIONS = 10


class Expiring(Protocol):
    """Rows with known expirations, given back when they are due."""

    def add(self, rows: Delta) -> None:
        """Keeps rows; every `until` is known."""

    def due(self, upto: int) -> list[Delta]:
        """Takes out the rows with until ≤ upto; laid end to end in ascending order of `until`."""
        ...

    def size(self) -> int:
        """Rows kept."""
        ...


class Fifo:
    """A queue, for rows that come in the order of their expiration."""

    def __init__(self) -> None:
        self._chunks: deque[Delta] = deque()

    def add(self, rows: Delta) -> None:
        if not len(rows):
            return
        if self._chunks and len(self._chunks[-1]) + len(rows) < _SMALL:
            rows = _end_to_end([self._chunks.pop(), rows])
        self._chunks.append(rows)

    def due(self, upto: int) -> list[Delta]:
        taken = []
        while self._chunks and self._chunks[0].until[0] <= upto:
            chunk = self._chunks.popleft()
            count = int(np.searchsorted(chunk.until, upto, side="right"))
            taken.append(chunk.slice(0, count))
            if count < len(chunk):
                self._chunks.appendleft(chunk.slice(count, len(chunk)))
                break
        return taken

    def size(self) -> int:
        return sum(len(c) for c in self._chunks)


class Partitioned:
    """Partitions by expiration time, each as wide as makes about `partitions` of them.

    The width is set by the first rows and doubled when the rows spread over four times as many
    partitions as asked for.
    """

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self._partitions = partitions
        self._width = 0
        self._held: dict[int, list[Delta]] = {}

    def add(self, rows: Delta) -> None:
        if not len(rows):
            return
        if not self._width:
            spread = int(rows.until.max()) - int(rows.at.min())
            self._width = max(1, spread // self._partitions)
        self._put(rows)
        while len(self._held) > 4 * self._partitions:
            self._width *= 2
            everything = [chunk for part in self._held.values() for chunk in part]
            self._held = {}
            for chunk in everything:
                self._put(chunk)

    def _put(self, rows: Delta) -> None:
        numbers = rows.until // self._width
        first, last = int(numbers.min()), int(numbers.max())
        if first == last:
            self._into(first, rows)
            return
        order = np.argsort(numbers, kind="stable")
        ordered, sorted_numbers = rows.take(order), numbers[order]
        edges = np.flatnonzero(np.diff(sorted_numbers)) + 1
        for lo, hi in zip([0, *edges.tolist()], [*edges.tolist(), len(order)], strict=True):
            self._into(int(sorted_numbers[lo]), ordered.slice(lo, hi))

    def _into(self, number: int, rows: Delta) -> None:
        chunks = self._held.setdefault(number, [])
        if chunks and len(chunks[-1]) + len(rows) < _SMALL:
            rows = _end_to_end([chunks.pop(), rows])
        chunks.append(rows)

    def due(self, upto: int) -> list[Delta]:
        taken = []
        for number in sorted(n for n in self._held if n * self._width <= upto):
            rows = _by_expiration(_end_to_end(self._held.pop(number)))
            count = int(np.searchsorted(rows.until, upto, side="right"))
            if count:
                taken.append(rows.slice(0, count))
            if count < len(rows):
                self._held[number] = [rows.slice(count, len(rows))]
        if not self._held:
            self._width = 0
        return taken

    def size(self) -> int:
        return sum(len(chunk) for part in self._held.values() for chunk in part)


def expiring(pattern: Pattern, partitions: int = PARTITIONS) -> Expiring:
    """The structure for rows of an edge of that pattern."""
    return Fifo() if pattern <= Pattern.WEAKEST else Partitioned(partitions)


def _end_to_end(parts: list[Delta]) -> Delta:
    """Rows laid end to end as they are, whatever their `at`."""
    if len(parts) == 1:
        return parts[0]
    return Delta(
        pa.concat_batches([p.rows for p in parts]),
        np.concatenate([p.at for p in parts]),
        np.concatenate([p.until for p in parts]),
        np.concatenate([p.weight for p in parts]),
    )


def _by_expiration(rows: Delta) -> Delta:
    until: Ints = rows.until
    if bool((until[1:] >= until[:-1]).all()):
        return rows
    return rows.take(np.argsort(until, kind="stable"))
