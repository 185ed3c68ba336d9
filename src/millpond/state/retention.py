"""Retention: which segments to evict, and the instant from which everything is still kept.

An element is needed if its timestamp is at or after `keep_from`, or if it is among the last
`keep_rows` of the stream. The caller computes these two bounds from registered windows and RETAIN.
Segments are evicted whole, so more is kept than is needed, never less.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millpond.model.time import BEGINNING
from millpond.state.version import SegmentRef


@dataclass(frozen=True)
class Eviction:
    """Segments to evict, and the stream's `kept_from` after that."""

    segment_ids: tuple[int, ...]
    kept_from: int


def plan_eviction(
    segments: Iterable[SegmentRef],
    kept_from: int = BEGINNING,
    keep_from: int = BEGINNING,
    keep_rows: int | None = None,
) -> Eviction:
    """Decide which of a stream's segments to evict.

    Args:
        segments: All segments of one stream and kind.
        kept_from: The stream's `StreamClock.kept_from` so far.
        keep_from: Elements with timestamps from here on are needed; `END` if no time needs any.
        keep_rows: This many last elements are needed too; None if no count needs any.
    """
    # Youngest first: `younger` counts the rows of the segments that lie wholly after this one.
    by_end = sorted(segments, key=lambda s: s.min_ts, reverse=True)
    oldest_first = sorted(by_end, key=lambda s: s.max_ts, reverse=True)
    dropped: list[SegmentRef] = []
    younger, following = 0, iter(by_end)
    candidate = next(following, None)
    for segment in oldest_first:
        while candidate is not None and candidate.min_ts > segment.max_ts:
            younger += candidate.rows
            candidate = next(following, None)
        if segment.max_ts < keep_from and (keep_rows is None or younger >= keep_rows):
            dropped.append(segment)
    return Eviction(
        segment_ids=tuple(sorted(segment.id for segment in dropped)),
        kept_from=kept_since(dropped, kept_from),
    )


def kept_since(dropped: Iterable[SegmentRef], kept_from: int = BEGINNING) -> int:
    """Return the instant from which everything is still kept, once `dropped` are evicted.

    The instant never goes back. It is `BEGINNING` until a segment is evicted.
    """
    return max([kept_from, *(segment.max_ts + 1 for segment in dropped)])
