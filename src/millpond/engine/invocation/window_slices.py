"""Slices: the rows of a stream that a window holds at an instant.

PSoup applies windows lazily, at invocation, to the rows that match by the Results Structure (VLDB
2002, section 3.3). Segments are ordered by time, so a time window is two binary searches per
segment and a read of the slot's bits between them. ROWS windows count matching elements backwards
from τ.

INV-SLICE-1: a slice depends only on the elements and the window, never on how elements are spread
over segments: neither its rows nor their order, which is that of (timestamp, sequence). So
whatever is computed from a slice, even the last digit of a sum, is the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.kept_property import kept_property
from millpond.model.nested_values import needs_keys, rank
from millpond.model.windows import Rows, Window, interval


class SegmentView(Protocol):
    """A segment as one leaf of one query sees it.

    `ts` is ascending. `matching(lo, hi)` gives the ascending row numbers in [lo, hi) that satisfy
    the leaf's predicate and belong to its sample; None stands for all of them.
    """

    @property
    def ts(self) -> np.ndarray: ...

    @property
    def min_ts(self) -> int: ...

    @property
    def max_ts(self) -> int: ...

    def matching(self, lo: int, hi: int) -> np.ndarray | None: ...

    def sequence(self, rows: np.ndarray) -> np.ndarray: ...

    def take(self, rows: np.ndarray, columns: Sequence[str]) -> pa.Table: ...

    def span(self, lo: int, hi: int, columns: Sequence[str]) -> pa.Table: ...

    def row_bytes(self, columns: Sequence[str] | None) -> float:
        """Return the bytes of columns (None: roughly, of all) in a row, on average."""
        ...

    def last_per_key(
        self, by: tuple[str, ...], count: int, every: bool, compute: Callable[[], np.ndarray]
    ) -> np.ndarray:
        """Return `compute()` over the whole segment, which never changes; cached by the segment.

        Args:
            every: Whether it is of all rows, and not of those that match.
        """
        ...


class WindowSlice:
    """The rows of a window, found and not yet read."""

    def __init__(self, parts: list[_WindowPart]) -> None:
        self._parts = parts

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(part.size for part in self._parts)

    def measure(self, columns: Sequence[str] | None = None) -> int:
        """Estimate the bytes of columns, by what a row of each segment has on average."""
        return int(sum(part.size * part.segment.row_bytes(columns) for part in self._parts))

    def read(self, columns: Sequence[str]) -> list[pa.Table]:
        """Read columns: tables that, end to end, are in (timestamp, sequence) order."""
        return _in_order(self._parts, columns)


def find_slice(
    segments: Sequence[SegmentView], window: Window, at: int, counts_all: bool = False
) -> WindowSlice:
    """Find the window's rows at `at`.

    Segments may overlap in time and come in any order.

    Args:
        counts_all: Whether a window of rows counts all elements, and the slice is those of the
            last `count` (of each partition) that match; else it counts only elements that match.
    """
    if isinstance(window, Rows):
        if window.by:
            parts = _rows_by(segments, window, at, counts_all)
        else:
            parts = _latest(_candidates(segments, window.count, at, counts_all), window.count)
        if counts_all:
            found = (part.select_matching() for part in parts)
            parts = [part for part in found if part is not None]
        return WindowSlice(parts)
    low, high = interval(window, at)
    parts = []
    for segment in segments:
        lo, hi = _between(segment, low, high)
        if lo < hi and (part := _matching_part(segment, lo, hi)) is not None:
            parts.append(part)
    return WindowSlice(parts)


def full_since(
    segments: Sequence[SegmentView], window: Rows, at: int, counts_all: bool
) -> int | None:
    """Return the timestamp of a ROWS window's first row; None while there are too few rows."""
    if window.by:
        return None
    parts = _latest(_candidates(segments, window.count, at, counts_all), window.count)
    enough = sum(part.size for part in parts) == window.count
    return min(part.first for part in parts) if enough else None


class _WindowPart:
    """The rows a window holds of one segment: some, or all from `lo` to before `hi`."""

    def __init__(self, segment: SegmentView, lo: int, hi: int, rows: np.ndarray | None) -> None:
        self.segment = segment
        self.lo, self.hi = lo, hi
        self.rows = rows
        self.first, self.last = int(segment.ts[lo]), int(segment.ts[hi - 1])

    @kept_property
    def stamps(self) -> np.ndarray:
        ts = self.segment.ts
        return ts[self.lo : self.hi] if self.rows is None else ts[self.rows]

    @property
    def size(self) -> int:
        return self.hi - self.lo if self.rows is None else len(self.rows)

    @kept_property
    def sequence(self) -> np.ndarray:
        return self.sequence_of(0, self.size)

    def sequence_of(self, low: int, high: int) -> np.ndarray:
        """Return the sequence of its rows from the `low`-th to before the `high`-th."""
        if self.rows is None:
            return self.segment.sequence(np.arange(self.lo + low, self.lo + high))
        return self.segment.sequence(self.rows[low:high])

    def since(self, start: int) -> _WindowPart:
        """Return the part from its `start`-th row on; there is at least one such row."""
        if start == 0:
            return self
        if self.rows is None:
            return _WindowPart(self.segment, self.lo + start, self.hi, None)
        return _WindowPart(self.segment, int(self.rows[start]), self.hi, self.rows[start:])

    def select_matching(self) -> _WindowPart | None:
        """Return the part's rows that match; None if there are none."""
        found = _matching_part(self.segment, self.lo, self.hi)
        if self.rows is None or found is None:
            return found
        if found.rows is None:
            return self
        rows = np.intersect1d(self.rows, found.rows, assume_unique=True)
        return (
            _WindowPart(self.segment, int(rows[0]), int(rows[-1]) + 1, rows) if len(rows) else None
        )

    def take(self, columns: Sequence[str]) -> pa.Table:
        if self.rows is None:
            return self.segment.span(self.lo, self.hi, columns)
        return self.segment.take(self.rows, columns)

    def between(self, low: int, high: int) -> _WindowPart | None:
        """Return the part with low ≤ ts ≤ high; None if it is empty."""
        if low <= self.first and self.last <= high:
            return self
        lo = int(np.searchsorted(self.stamps, low))
        hi = int(np.searchsorted(self.stamps, high, side="right"))
        if lo >= hi:
            return None
        if self.rows is None:
            return _WindowPart(self.segment, self.lo + lo, self.lo + hi, None)
        rows = self.rows[lo:hi]
        return _WindowPart(self.segment, int(rows[0]), int(rows[-1]) + 1, rows)


def _in_order(parts: list[_WindowPart], columns: Sequence[str]) -> list[pa.Table]:
    """Put the parts' rows in (timestamp, sequence) order.

    A segment's rows are in order already, and segments overlap little in time: rows are merged
    only where segments overlap, all other rows are passed through.
    """
    parts.sort(key=lambda part: (part.first, part.last))
    tables: list[pa.Table] = []
    active: list[_WindowPart] = []
    coming = 0
    for low, high in _stretches(parts):
        while coming < len(parts) and parts[coming].first <= high:
            active.append(parts[coming])
            coming += 1
        within = [piece for part in active if (piece := part.between(low, high)) is not None]
        active = [part for part in active if part.last > high]
        rows = [piece.take(columns) for piece in within]
        if len(within) > 1:
            stamps = np.concatenate([piece.stamps for piece in within])
            sequence = np.concatenate([piece.sequence for piece in within])
            order = np.lexsort((sequence, stamps))
            rows = [pa.concat_tables(rows).take(pa.array(order))]
        tables += rows
    return tables


def _stretches(parts: list[_WindowPart]) -> Iterator[tuple[int, int]]:
    """Divide the time of the parts, in ascending order, at the edges of where parts overlap.

    Yields (first, last) of each span of time, ends included. The rows of a span are either those of
    one part, or those of several, which have to be merged.
    """
    if not parts:
        return
    start, reached = parts[0].first, parts[0].last
    shared: int | None = None  # the end of the overlap being collected, which began at `start`
    for part in parts[1:]:
        if shared is not None and part.first > shared:
            yield start, shared
            start, shared = shared + 1, None
        if part.first > reached:
            yield start, reached
            start = part.first
        else:
            if shared is None and part.first > start:
                yield start, part.first - 1
                start = part.first
            both = min(part.last, reached)
            shared = both if shared is None else max(shared, both)
        reached = max(reached, part.last)
    if shared is not None:
        yield start, shared
        start = shared + 1
    yield start, reached


def _between(segment: SegmentView, low: int | None, high: int) -> tuple[int, int]:
    """Find the rows [lo, hi) with low ≤ ts ≤ high."""
    if segment.min_ts > high or (low is not None and segment.max_ts < low):
        return 0, 0
    lo = 0 if low is None or low <= segment.min_ts else int(np.searchsorted(segment.ts, low))
    if high >= segment.max_ts:
        return lo, len(segment.ts)
    return lo, int(np.searchsorted(segment.ts, high, side="right"))


def _matching(segment: SegmentView, hi: int) -> np.ndarray:
    rows = segment.matching(0, hi)
    return np.arange(hi, dtype=np.int64) if rows is None else rows


def _candidates(
    segments: Sequence[SegmentView], count: int, at: int, every: bool
) -> list[_WindowPart]:
    """Find parts that hold the last `count` elements up to `at`: of all, or of those that match."""
    parts: list[_WindowPart] = []
    found, since = 0, at
    # Latest segments first, so that older segments that can hold no successor are never opened.
    for segment in sorted(segments, key=lambda s: s.max_ts, reverse=True):
        if found >= count and segment.max_ts < since:
            break
        _, hi = _between(segment, None, at)
        if hi == 0:
            continue
        part = _WindowPart(segment, 0, hi, None) if every else _matching_part(segment, 0, hi)
        if part is not None:
            part = part.since(max(0, part.size - count))
            parts.append(part)
            found += part.size
            since = min(since, part.first)
    return parts


def _matching_part(segment: SegmentView, lo: int, hi: int) -> _WindowPart | None:
    """Return the matching rows in [lo, hi); None if no row matches."""
    rows = segment.matching(lo, hi)
    if rows is None:
        return _WindowPart(segment, lo, hi, None)
    return _WindowPart(segment, int(rows[0]), int(rows[-1]) + 1, rows) if len(rows) else None


def _latest(parts: list[_WindowPart], count: int) -> list[_WindowPart]:
    """Return the last `count` rows of the parts in (timestamp, sequence) order.

    These rows are the end of each part, so only where the end begins is searched for. It is found
    by the timestamp that divides the rows, as in selecting the n-th of several sorted lists, and
    among the rows of that very timestamp by their sequence. Of parts that have all rows, only
    what the search looks at is read.
    """
    if sum(part.size for part in parts) <= count:
        return parts
    low, high, lacking = [0] * len(parts), [part.size for part in parts], count
    while True:
        widest = max(range(len(parts)), key=lambda i: high[i] - low[i])
        pivot = parts[widest].stamps[(low[widest] + high[widest]) // 2]
        within = [part.stamps[lo:hi] for part, lo, hi in zip(parts, low, high, strict=True)]
        left = [lo + int(np.searchsorted(w, pivot)) for lo, w in zip(low, within, strict=True)]
        right = [
            lo + int(np.searchsorted(w, pivot, side="right"))
            for lo, w in zip(low, within, strict=True)
        ]
        later, equal = sum(high) - sum(right), sum(right) - sum(left)
        if lacking <= later:
            low = right
            continue
        lacking -= later
        if lacking > equal:
            lacking -= equal
            high = left
            continue
        tied = [p.sequence_of(lo, hi) for p, lo, hi in zip(parts, left, right, strict=True)]
        least = np.partition(np.concatenate(tied), equal - lacking)[equal - lacking]
        starts = [
            lo + int(np.searchsorted(sequence, least))
            for lo, sequence in zip(left, tied, strict=True)
        ]
        return [p.since(at) for p, at in zip(parts, starts, strict=True) if at < p.size]


def _rows_by(
    segments: Sequence[SegmentView], window: Rows, at: int, every: bool
) -> list[_WindowPart]:
    """Find the last `count` of every partition up to `at`: of all elements, or of those that match.

    Each segment gives at most `count` candidates a key. For a segment wholly before `at` they are
    computed once and kept, so an invocation costs what the partitions hold, not what the store
    keeps.
    """
    numbers: list[np.ndarray] = []
    candidates: list[np.ndarray] = []
    keys: list[pa.Table] = []
    for number, segment in enumerate(segments):
        _, hi = _between(segment, None, at)
        if hi == 0:
            continue

        def compute(segment: SegmentView = segment, hi: int = hi) -> np.ndarray:
            rows = np.arange(hi, dtype=np.int64) if every else _matching(segment, hi)
            codes = _codes(segment.take(rows, window.by))
            return rows[_last_of_each(codes, window.count)]

        if hi == len(segment.ts):
            rows = segment.last_per_key(window.by, window.count, every, compute)
        else:
            rows = compute()
        if len(rows):
            candidates.append(rows)
            numbers.append(np.full(len(rows), number, np.int64))
            keys.append(segment.take(rows, window.by))
    if not candidates:
        return []
    segment_of, row_of = np.concatenate(numbers), np.concatenate(candidates)
    stamps = np.concatenate(
        [segments[n[0]].ts[r] for n, r in zip(numbers, candidates, strict=True)]
    )
    sequence = np.concatenate(
        [segments[n[0]].sequence(r) for n, r in zip(numbers, candidates, strict=True)]
    )
    order = np.lexsort((sequence, stamps))
    codes = _codes(pa.concat_tables(keys))[order]
    chosen = order[_last_of_each(codes, window.count)]
    return _gather(segments, segment_of[chosen], row_of[chosen])


def _codes(keys: pa.Table) -> np.ndarray:
    """Number rows by key: equal for equal keys; NULLs are equal to each other, as are NaNs."""
    codes = np.zeros(keys.num_rows, dtype=np.int64)
    for column in keys.columns:
        if pa.types.is_floating(column.type):
            column = pc.add(column, pa.scalar(0.0, column.type))  # −0.0 and 0.0 are one key
        values = column.combine_chunks()
        if needs_keys(values.type):
            values = rank(values)
        encoded = values.dictionary_encode(null_encoding="encode")
        own = np.asarray(encoded.indices, dtype=np.int64)
        pair = codes * (int(own.max(initial=0)) + 1) + own
        codes = np.unique(pair, return_inverse=True)[1].astype(np.int64)
    return codes


def _last_of_each(codes: np.ndarray, count: int) -> np.ndarray:
    """Find the positions, ascending, of the last `count` occurrences of every code."""
    if not len(codes):
        return np.empty(0, np.int64)
    order = np.argsort(codes, kind="stable")
    grouped = codes[order]
    ends = np.flatnonzero(np.append(grouped[1:] != grouped[:-1], True))
    end_of = np.repeat(ends, np.diff(np.concatenate([[-1], ends])))
    return np.sort(order[end_of - np.arange(len(codes)) < count])


def _gather(
    segments: Sequence[SegmentView], numbers: np.ndarray, rows: np.ndarray
) -> list[_WindowPart]:
    """Gather rows, given by segment number and row."""
    parts = []
    for number in np.unique(numbers):
        own = np.sort(rows[numbers == number])
        parts.append(_WindowPart(segments[int(number)], int(own[0]), int(own[-1]) + 1, own))
    return parts
