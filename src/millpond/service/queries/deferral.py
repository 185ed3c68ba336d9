"""Which slots of a stream are matched as elements come while lighter queries wait."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from millpond.service.queries.weights import weight_of
from millpond.state.version import SlotRef, Version


@dataclass(frozen=True)
class Deferred:
    """The slots of a stream, divided.

    Attributes:
        matched: The slots that are matched: those of some weightier query.
        low: The first slot that counts as matched. It is at least 1, so that backfill takes the
            segment for one that has not been matched at all, and matches it whole.
        waiting: The live slots from `low` on that are not matched.
    """

    matched: tuple[SlotRef, ...]
    low: int
    waiting: tuple[int, ...]


class Deferral:
    """Divides slots by weight; safe to use from any thread.

    Cost: it looks at all queries, once for each step and each change of the queries.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: tuple[object, ...] = ()
        self._heavy: dict[int, set[int]] = {}
        self._of_stream: dict[int, Deferred] = {}

    def divide(self, version: Version, stream_id: int, weight: float) -> Deferred:
        """Divide a stream's slots while queries up to that weight wait."""
        parts = (version.queries, version.leaves_of, weight)
        with self._lock:
            if len(self._parts) < 3 or any(
                a is not b for a, b in zip(self._parts[:2], parts[:2], strict=True)
            ) or self._parts[2] != weight:  # fmt: skip
                self._parts, self._of_stream = parts, {}
                self._heavy = {}
                for query in version.queries.values():
                    if weight_of(query) > weight:
                        for leaf in version.leaves(query.id):
                            if leaf.slot is not None:
                                self._heavy.setdefault(leaf.stream_id, set()).add(leaf.slot)
            found = self._of_stream.get(stream_id)
            if found is None:
                found = self._of_stream[stream_id] = self._divide(version, stream_id)
            return found

    def _divide(self, version: Version, stream_id: int) -> Deferred:
        heavy = self._heavy.get(stream_id, set())
        matched = tuple(s for s in version.slots(stream_id) if s.slot in heavy and s.slot > 0)
        low = min((s.slot for s in matched), default=1)
        kept = {s.slot for s in matched}
        waiting = tuple(
            s.slot for s in version.slots(stream_id) if s.slot >= low and s.slot not in kept
        )
        return Deferred(matched, low, waiting)
