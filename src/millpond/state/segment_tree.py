"""The segment tree's policy: which segments to merge into one, and when.

Every batch makes a segment, and a reader pays for each segment it opens, so segments are merged as
they accumulate. Sizes are in geometric progression: a segment of n rows is on level
⌊log_fanout(n / base_rows)⌋ (below zero for what trickles in), and when `fanout` neighbours are
about as large as the largest of them they become one, a level up. Whatever the sizes of the
batches, an element is rewritten about log_fanout(max_rows / batch) times in all, and a stream of n
rows has about fanout · log_fanout(n / batch) segments plus n / max_rows full ones.

Only neighbours in the order of arrival are merged: elements that arrived together mostly have
timestamps close together, and a segment with a short span of time is skipped by most windows and
expires as a whole. This module only decides; it reads no file and knows no clock.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millpond.state.version import SegmentRef

#: How far below the greatest level of a run a segment may be and still count for it.
_LEVEL_SPAN = 0.75


def level(rows: int, fanout: int = 8, base_rows: int = 65_536) -> int:
    """Compute the level of a segment with that many rows.

    >>> level(65_536), level(8 * 65_536), level(65_535), level(1)
    (0, 1, -1, -6)
    """
    return math.floor(_height(rows, fanout, base_rows))


def arrival_order(segments: Iterable[SegmentRef]) -> list[SegmentRef]:
    """Sort segments in the order in which their elements arrived."""
    return sorted(segments, key=lambda s: (s.epoch, s.min_ts, s.id))


def divide_by_numbers(
    segments: Sequence[SegmentRef], numbers: Sequence[int]
) -> list[list[SegmentRef]]:
    """Divide segments of changes by the numbers of their first changes; no merge crosses one.

    Args:
        segments: The segments, each with consecutive numbers.
        numbers: Ascending numbers of changes; each is the first of a part.
    """
    if not numbers:
        return [list(segments)]
    parts: list[list[SegmentRef]] = [[] for _ in range(len(numbers) + 1)]
    for segment in segments:
        parts[bisect_right(numbers, segment.seq_runs[0][1])].append(segment)
    return parts


def plan_merges(
    segments: Iterable[SegmentRef],
    fanout: int = 8,
    base_rows: int = 65_536,
    max_rows: int = 4_000_000,
    expiring_before: int | None = None,
    max_span: int | None = None,
    max_bytes: int | None = None,
) -> list[tuple[SegmentRef, ...]]:
    """Plan the groups to merge now, each in the order of arrival; no segment is in two groups.

    Args:
        segments: One stream's segments of one kind, in any order.
        fanout: How many neighbours become one.
        base_rows: The size that is level 0.
        max_rows: No merged segment has more rows.
        expiring_before: Segments with no element from here on are evicted soon and not merged.
        max_span: No merged segment spans more time, in microseconds: a long span is evicted late.
        max_bytes: No merged segment has more bytes of rows.

    Returns:
        Groups whose merging at least halves the number of their segments. An empty list means that
        nothing needs merging. After merging, call again: levels can overflow one after the other.
    """
    most = _Most(max_rows, max_bytes or sys.maxsize, max_span or sys.maxsize)
    groups: list[tuple[SegmentRef, ...]] = []
    run: list[SegmentRef] = []
    for segment in arrival_order(segments):
        if expiring_before is not None and segment.max_ts < expiring_before:
            continue
        full = segment.rows > max_rows // 2 or segment.bytes > most.bytes // 2
        if full:  # no merge reaches across a full segment
            groups += _merges_of_run(run, fanout, base_rows, most)
            run = []
        else:
            run.append(segment)
    groups += _merges_of_run(run, fanout, base_rows, most)
    return groups


@dataclass(frozen=True)
class _Most:
    """The limits of a merged segment."""

    rows: int
    bytes: int
    span: int


def _merges_of_run(
    run: Sequence[SegmentRef], fanout: int, base_rows: int, most: _Most
) -> list[tuple[SegmentRef, ...]]:
    """Plan merges among neighbours: the largest level first, then the segments that arrived later.

    The members of a level are the segments from `start` up to the last segment about as large as
    the largest. Smaller segments in between are merged with them; otherwise these would stand
    between their neighbours for ever.
    """
    groups: list[tuple[SegmentRef, ...]] = []
    heights = [_height(segment.rows, fanout, base_rows) for segment in run]
    start = 0
    while start < len(run):
        bottom = max(heights[start:]) - _LEVEL_SPAN
        end = max(i for i in range(start, len(run)) if heights[i] >= bottom) + 1
        while end - start >= fanout:
            size = _count_fitting(run[start : start + fanout], most)
            if size >= max(2, fanout // 2):
                groups.append(tuple(run[start : start + size]))
            start += max(size, 1)
        start = end
    return groups


def _count_fitting(group: Sequence[SegmentRef], most: _Most) -> int:
    """Count how many of the group's first segments fit into one segment."""
    rows, bytes, low, high = 0, 0, group[0].min_ts, group[0].max_ts
    for size, segment in enumerate(group):
        rows += segment.rows
        bytes += segment.bytes
        low, high = min(low, segment.min_ts), max(high, segment.max_ts)
        if size and (rows > most.rows or bytes > most.bytes or high - low > most.span):
            return size
    return len(group)


def _height(rows: int, fanout: int, base_rows: int) -> float:
    # A rounded logarithm, so that fanout^k · base_rows is on level k and not just below it.
    return round(math.log(max(rows, 1) / base_rows, fanout), 9)
