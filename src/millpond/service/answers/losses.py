"""What is missing of the streams an answer was computed from: expired, damaged and shed elements.

A query lacks what its windows reach back to and the pond does not have. A derived stream passes on
what its query lacks: its elements of a span of time depend on what its plan reaches back to
(`Plan.reach`), and so on down to streams that are not derived.

Cost: two binary searches for each segment of `name$shed`, of which merging leaves few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from millpond.catalog.objects import SHED, StreamDef
from millpond.model.loss import Cause, Loss, merge_losses
from millpond.model.time import BEGINNING, END
from millpond.service.answers.leaf_scan import Files
from millpond.service.events import FollowerNeeds
from millpond.service.queries.wanted import is_spared
from millpond.state.version import SegmentRef, Version

_SECOND = 1_000_000


class Damage(Protocol):
    """Who knows which acknowledged pushes were lost with their files."""

    @property
    def lost_upto(self) -> Mapping[int, int]:
        """By stream, the greatest timestamp that lost elements may have had."""
        ...


class Losses:
    """Tells what the pond does not have of streams; safe to use from any thread."""

    def __init__(self, files: Files, damage: Damage, followers: FollowerNeeds) -> None:
        self._files = files
        self._damage = damage
        self._followers = followers

    def find(
        self,
        version: Version,
        stream: StreamDef,
        low: int | None,
        high: int,
        slot: int | None = None,
    ) -> tuple[Loss, ...]:
        """Find what is missing of a stream's elements with low ≤ timestamp ≤ high.

        Args:
            version: A version that is pinned.
            stream: The stream, derived or not.
            low: The least timestamp that matters; None: all do.
            high: The greatest one.
            slot: Set if only elements matter that match this slot's predicate.

        Raises:
            MillpondError: STORE-602, a segment of `name$shed` is corrupt.
        """
        return merge_losses(self._walk(version, stream, low, high, slot, frozenset()))

    def is_whole(self, version: Version, stream: StreamDef) -> bool:
        """Whether nothing of a stream is missing, so that no window has to be looked at."""
        return version.clock(stream.id).kept_from == BEGINNING and not any(
            source.id in self._damage.lost_upto or version.segments(source.id, SHED)
            for source in self._followers.sources_of(version, stream)
            if not source.is_pseudo
        )

    def _walk(
        self,
        version: Version,
        stream: StreamDef,
        low: int | None,
        high: int,
        slot: int | None,
        above: frozenset[int],
    ) -> Iterator[Loss]:
        if stream.is_pseudo or stream.id in above or (low is not None and low > high):
            return
        least = BEGINNING if low is None else low
        if not stream.is_change_log:
            # What a change log has dropped, its cursors tell.
            kept_from = version.clock(stream.id).kept_from
            if kept_from > least and kept_from > BEGINNING:
                yield Loss(stream.name, Cause.EXPIRED, None, kept_from - 1)
        lost = self._damage.lost_upto.get(stream.id)
        if lost is not None and lost >= least:
            yield Loss(stream.name, Cause.DAMAGED, None, min(lost, END))
        if stream.derived is not None:
            # Its first elements are of the instant at which everything below was still kept.
            since = max(least, version.clock(stream.id).kept_from)
            for below, reach in self._followers.reach_below(version, stream, since - 1):
                yield from self._below(version, below, reach, high, above | {stream.id})
            return
        yield from self._shed(version, stream, low, high, slot)

    def _below(
        self,
        version: Version,
        stream: StreamDef,
        low: int | None,
        high: int,
        above: frozenset[int],
    ) -> Iterator[Loss]:
        """What a derived stream lacks: what expired before it was read does not count."""
        for loss in self._walk(version, stream, low, high, None, above):
            if loss.cause is not Cause.EXPIRED:
                yield loss

    def _shed(
        self, version: Version, stream: StreamDef, low: int | None, high: int, slot: int | None
    ) -> Iterator[Loss]:
        elements = 0
        first: int = END
        last: int = BEGINNING
        for ref in version.segments(stream.id, SHED):
            for spared, seconds, counts in self._counts(ref):
                if slot is not None and is_spared(slot, spared):
                    continue
                # The second that begins at s overlaps the span if s + 1 s > low and s ≤ high.
                lo = 0 if low is None else int(np.searchsorted(seconds, low - _SECOND, "right"))
                hi = int(np.searchsorted(seconds, high, "right"))
                if lo < hi:
                    elements += int(counts[hi] - counts[lo])
                    first = min(first, int(seconds[lo]))
                    last = max(last, int(seconds[hi - 1]))
        if elements:
            yield Loss(stream.name, Cause.SHED, first, last + _SECOND - 1, elements)

    def _counts(self, ref: SegmentRef) -> list[tuple[str, np.ndarray, np.ndarray]]:
        """By what was spared: the seconds, ascending, and how many were shed before each."""
        opened = self._files.segment(ref)
        spared = opened.table["spared"].combine_chunks().dictionary_encode()
        names = spared.dictionary.to_pylist()
        found = []
        for number, name in enumerate(names):

            def compute(number: int = number) -> np.ndarray:
                rows = np.flatnonzero(spared.indices.to_numpy(zero_copy_only=False) == number)
                seconds = opened.table["second"].cast("int64").to_numpy()[rows]
                counts = opened.table["elements"].to_numpy()[rows]
                order = np.argsort(seconds, kind="stable")
                before = np.concatenate([[0], np.cumsum(counts[order])])
                return np.stack([np.append(seconds[order], END), before])

            seconds, before = opened.get_or_compute(("shed", name), compute)
            found.append((name, seconds[:-1], before))
        return found
