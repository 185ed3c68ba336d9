"""Totals of a segment's matches, over all of its rows or over some.

With blocked totals at hand (`millpond.synopses.blocked_totals`), only the matches between the ends
of the range and the nearest blocks are read; else all matches in the range are.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from millpond.synopses.blocked_totals import BlockedTotals, block_rows, block_values
from millpond.synopses.totals import NOTHING, Total, merge, read_values, total_of


class AggregatedSegment(Protocol):
    """A segment as one leaf of one query sees it, for its aggregates.

    `ts` is ascending. `matching` is as for `millpond.engine.invocation.window_slices.SegmentView`.
    """

    @property
    def ts(self) -> np.ndarray: ...

    def matching(self, lo: int, hi: int) -> np.ndarray | None: ...

    def column(self, name: str) -> pa.Array:
        """Return a column of all the segment's rows."""
        ...


def find_rows(segment: AggregatedSegment, low: int | None, high: int) -> tuple[int, int]:
    """Find the rows [lo, hi) with low ≤ ts ≤ high."""
    lo = 0 if low is None else int(np.searchsorted(segment.ts, low))
    return lo, int(np.searchsorted(segment.ts, high, side="right"))


def compute_total(segment: AggregatedSegment, column: str | None, lo: int, hi: int) -> Total:
    """Compute the total of the matches in rows [lo, hi), by reading them."""
    if lo >= hi:
        return NOTHING
    rows = segment.matching(lo, hi)
    if column is None:
        return Total(hi - lo if rows is None else len(rows))
    if rows is not None and not len(rows):
        return NOTHING
    values = segment.column(column).slice(lo, hi - lo)
    return total_of(read_values(values, None if rows is None else rows - lo))


def compute_blocks(segment: AggregatedSegment, column: str | None) -> BlockedTotals:
    """Compute the blocked totals of all the segment's matches."""
    size = len(segment.ts)
    rows = segment.matching(0, size)
    if column is None:
        return block_rows(rows, size)
    return block_values(rows, read_values(segment.column(column), rows))


def read_total(
    segment: AggregatedSegment, column: str | None, blocks: BlockedTotals, lo: int, hi: int
) -> Total:
    """Compute the total of the matches in rows [lo, hi), from blocks where they lie inside."""
    size = len(segment.ts)
    if lo >= hi:
        return NOTHING
    first = blocks.first_from(lo)
    if hi == size:
        last, end = blocks.blocks, hi
    else:
        # The block before the first one behind the range may reach beyond it.
        last = blocks.first_from(hi) - 1
        end = blocks.start(last) if last >= first else lo
    if last < first:
        return compute_total(segment, column, lo, hi)
    begin = blocks.start(first) if first < blocks.blocks else size
    return merge(
        (
            compute_total(segment, column, lo, min(begin, hi)),
            blocks.total(first, last),
            compute_total(segment, column, end, hi),
        )
    )
