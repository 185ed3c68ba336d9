"""Totals of a segment's matches, over all of its rows or over some.

With blocked totals at hand (`millpond.synopses.blocked_totals`), only the matches between the ends
of the range and the nearest blocks are read; else all matches in the range are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from millpond.synopses.blocked_totals import BlockedTotals, block_rows, block_values
from millpond.synopses.totals import NOTHING, OpenColumn, Total, read_values, total_of

_NO_ROWS = np.zeros(0, np.int64)


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
    return block_values(rows, read_values(segment.column(column), rows))


def read_totals(
    segment: AggregatedSegment,
    asked: Sequence[Asked],
    blocks: Sequence[BlockedTotals],
    lo: int,
    hi: int,
) -> list[Total]:
    """Compute the totals of the matches in rows [lo, hi), from blocks where they lie inside.

    Args:
        segment: The segment.
        asked: What totals are asked of.
        blocks: The blocked totals of each, which all begin at the same rows.
        lo: The first row.
        hi: The row behind the last.
    """
    if lo >= hi:
        return [NOTHING] * len(asked)
    cut, size = blocks[0], len(segment.ts)
    first = cut.first_from(lo)
    if hi == size:
        last, end = cut.blocks, hi
    else:
        # The block before the first one behind the range may reach beyond it.
        last = cut.first_from(hi) - 1
        end = cut.start(last) if last >= first else lo
    if last < first:
        return compute_totals(segment, asked, lo, hi)
    # Before the first block nothing matches.
    begin = lo if not first else min(cut.start(first), hi) if first < cut.blocks else hi
    edges = [_find_matches(segment, *edge) for edge in ((lo, begin), (end, hi))]
    edges = [edge for edge in edges if len(edge)]
    rows = edges[0] if len(edges) == 1 else np.concatenate([_NO_ROWS, *edges])
    columns = [None if each.column is None else segment.column(each.column) for each in asked]
    return [
        own.total_with(first, last, column, rows, each.sums)
        for each, own, column in zip(asked, blocks, columns, strict=True)
    ]


def _find_matches(segment: AggregatedSegment, lo: int, hi: int) -> np.ndarray:
    """Find the rows in [lo, hi) that match."""
    if lo >= hi:
        return _NO_ROWS
    rows = segment.matching(lo, hi)
    return np.arange(lo, hi) if rows is None else rows
