"""Retention: which segments to evict, and the instant from which everything is still kept.

An element is needed if its timestamp is at or after `keep_from`, or if it is among the last
`keep_rows` of the stream. What registered windows and RETAIN need is for the caller to fold into
those two. Segments are dropped whole, so more is kept than is needed, never less.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millpond.model.time import BEGINNING
from millpond.state.version import SegmentRef


@dataclass(frozen=True)
class Eviction:
    """Segments to drop, and the stream's `kept_from` once they are."""

    segment_ids: tuple[int, ...]
    kept_from: int


def plan_eviction(
    segments: Iterable[SegmentRef],
    kept_from: int = BEGINNING,
    keep_from: int = BEGINNING,
    keep_rows: int | None = None,
) -> Eviction:
    """What of a stream's segments can be dropped whole.

    Args:
        segments: All of one stream and kind.
        kept_from: The stream's `StreamClock.kept_from` so far.
        keep_from: Elements with timestamps from here on are needed; `END` if time asks for none.
        keep_rows: That many last elements are needed too, or None if no count is asked for.
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
    """The instant from which everything is still kept, once `dropped` are gone.

    It never goes back, and is `BEGINNING` until something is dropped.
    """
    return max([kept_from, *(segment.max_ts + 1 for segment in dropped)])
