"""Totals of a segment's matches, over all of its rows or over some.

With blocked totals at hand (`millpond.synopses.blocked_totals`), only the matches between the ends
of the range and the nearest blocks are read; else all matches in the range are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numba import int64, types

from millpond.model.compiled import READ_I64, compiled
from millpond.synopses.blocked_totals import (
    BlockedTotals,
    BlocksAndRows,
    block_rows,
    block_values,
)
from millpond.synopses.totals import NOTHING, OpenColumn, Total, total_of

#: Before every timestamp.
_EVER = np.iinfo(np.int64).min


class OpenMatches(Protocol):
    """The rows of a segment that match, opened for many reads."""

    def find_at_edges(self, low: int, begin: int, end: int, high: int) -> np.ndarray:
        """Return the matching rows in [low, begin) and [end, high), ascending, as int64."""
        ...


class EveryRow:
    """`OpenMatches` where every row matches."""

    def find_at_edges(self, low: int, begin: int, end: int, high: int) -> np.ndarray:
        """As `OpenMatches.find_at_edges`."""
        return np.concatenate([np.arange(low, begin), np.arange(end, high)])


class AggregatedSegment(Protocol):
    """A segment as one leaf of one query sees it, for its aggregates.

    `ts` is ascending. `matching` is as for `millpond.engine.invocation.window_slices.SegmentView`.
    """

    @property
    def ts(self) -> np.ndarray: ...

    def matching(self, lo: int, hi: int) -> np.ndarray | None: ...

    def column(self, name: str) -> OpenColumn:
        """Return a column of all the segment's rows, opened for totals."""
        ...

    def values(self, name: str) -> pa.ChunkedArray:
        """Return a column of all the segment's rows."""
        ...


class MatchedSegment(AggregatedSegment, Protocol):
    """A segment of which is known which rows match."""

    def open_matches(self) -> OpenMatches:
        """Open the matches of all rows."""
        ...


class Asked(NamedTuple):
    """What a total is asked of.

    Attributes:
        column: The column; None if rows are counted only.
        sums: Whether the sum is wanted.
        sketch: The function whose sketch is wanted instead of a total.
    """

    column: str | None
    sums: bool = True
    sketch: str | None = None


def find_rows(segment: AggregatedSegment, low: int | None, high: int) -> tuple[int, int]:
    """Find the rows [lo, hi) with low ≤ ts ≤ high."""
    ts = segment.ts
    lo = 0 if low is None or low <= ts[0] else int(ts.searchsorted(low))
    return lo, len(ts) if high >= ts[-1] else int(ts.searchsorted(high, side="right"))


def compute_totals(
    segment: AggregatedSegment, asked: Sequence[Asked], lo: int, hi: int
) -> list[Total]:
    """Compute the totals of the matches in rows [lo, hi), by reading them."""
    if lo >= hi:
        return [NOTHING] * len(asked)
    rows = segment.matching(lo, hi)
    if rows is None:
        return [_total(segment, each, slice(lo, hi), hi - lo) for each in asked]
    if not len(rows):
        return [NOTHING] * len(asked)
    return [_total(segment, each, rows, len(rows)) for each in asked]


def _total(segment: AggregatedSegment, asked: Asked, rows: Any, size: int) -> Total:
    if asked.column is None:
        return Total(size)
    return total_of(segment.column(asked.column), rows, asked.sums)


def compute_blocks(segment: AggregatedSegment, column: str | None) -> BlockedTotals:
    """Compute the blocked totals of all the segment's matches."""
    size = len(segment.ts)
    rows = segment.matching(0, size)
    if column is None:
        return block_rows(rows, size)
    return block_values(rows, segment.column(column))


@compiled(types.UniTuple(int64, 6)(READ_I64, READ_I64, int64, int64))
def _cut(ts, starts, low, high):  # type: ignore[no-untyped-def]
    """Find the rows with low ≤ ts ≤ high, and the blocks among them.

    Returns:
        lo, begin, end, hi, first, last: the rows are [lo, hi); the matches of [begin, end) are the
        blocks from `first` to before `last`. Without a block, `begin` and `end` are `hi`.
    """
    lo = np.searchsorted(ts, low)
    hi = np.searchsorted(ts, high, side="right")
    first = np.searchsorted(starts, lo)
    if hi == len(ts):
        last, end = len(starts), hi
    else:
        # The block before the first one behind the range may reach beyond it.
        last = np.searchsorted(starts, hi) - 1
        end = starts[last] if last >= 0 else int64(0)
    if lo >= hi or first >= last:
        return lo, max(lo, hi), hi, hi, int64(0), int64(0)
    # Before the first block nothing matches.
    return lo, starts[first] if first else lo, end, hi, first, last


class BlockedSegment:
    """A segment with blocked totals of its matches, opened for what is asked of it.

    Holds what it reads, and no more: arrays of the segment, of its matches and of the totals.
    """

    def __init__(
        self,
        segment: MatchedSegment,
        asked: Sequence[Asked],
        blocks: Sequence[BlockedTotals],
    ) -> None:
        """Open a segment.

        Args:
            segment: The segment.
            asked: What totals are asked of; at least one.
            blocks: The blocked totals of each, which all begin at the same rows.
        """
        self._ts = segment.ts
        self._starts = blocks[0].find_starts()
        self._matches = segment.open_matches()
        self._read = [
            BlocksAndRows(
                own, None if each.column is None else segment.column(each.column), each.sums
            ).total
            for each, own in zip(asked, blocks, strict=True)
        ]

    def read(self, low: int | None, high: int) -> list[Total]:
        """Compute the totals of the matches with low ≤ ts ≤ high, of each that is asked.

        Only the matches between the ends of this range and the nearest blocks are read.
        """
        low = _EVER if low is None else low
        lo, begin, end, hi, first, last = _cut(self._ts, self._starts, low, high)
        rows = self._matches.find_at_edges(lo, begin, end, hi)
        return [read(first, last, rows) for read in self._read]
