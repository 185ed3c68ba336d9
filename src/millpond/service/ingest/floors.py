"""Floors in flight: they keep readers from taking a heartbeat too far.

A batch or a push is judged by a floor, which is computed from the clock: rows before it are late.
Until the epoch of the batch is published, a reader that computes the heartbeat from a later clock
could call an instant final for which the batch still has elements. So the sequencer or the intake
reads the clock and holds the floors computed from it in one step, and a reader captures the clock
and the least held floors in one step, *before* it pins a version:

INV-FLOORS-1: with a `ClockReading` r captured before a version v was pinned, min(H(v, r.now),
r.floors) is never above the timestamp of an element that is not in v.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millpond.model.time import END


@dataclass(frozen=True)
class ClockReading:
    """A clock reading and, per stream, the least floor in flight at it.

    `behind` is how far the machine's clock is behind `now`, in microseconds: it has gone back, and
    for streams time stands still until it has caught up.
    """

    now: int
    floors: Mapping[int, int]
    behind: int = 0

    def cap(self, stream_id: int, reached: int) -> int:
        """The heartbeat readers may rely on, when the stream's clock has reached `reached`."""
        return min(reached, self.floors.get(stream_id, END))


class FloorsInFlight:
    """The floors in flight; safe to use from any thread."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._last: int | None = None
        self._shown = 0
        self._lock = threading.Lock()
        self._tokens = itertools.count(1)
        self._floors: dict[int, Mapping[int, int]] = {}

    def hold(self, judge: Callable[[int], Mapping[int, int]]) -> tuple[int, int, Mapping[int, int]]:
        """Read the clock, compute floors from it, and hold them: (token, now, floors)."""
        with self._lock:
            now = self._now()
            floors = judge(now)
            token = next(self._tokens)
            self._floors[token] = floors
            return token, now, floors

    def release(self, token: int) -> None:
        """Release the floors of a batch or push that is published or given up.

        To release them again does nothing.
        """
        with self._lock:
            self._floors.pop(token, None)

    def capture(self) -> ClockReading:
        """The clock and the least floors in flight, together."""
        with self._lock:
            least: dict[int, int] = {}
            for floors in self._floors.values():
                for stream_id, floor in floors.items():
                    least[stream_id] = min(floor, least.get(stream_id, END))
            now = self._now()
            return ClockReading(now, least, now - self._shown)

    def _now(self) -> int:
        """The clock, which for streams never goes back: what readers were told stays true."""
        self._shown = now = self._clock()
        self._last = now if self._last is None else max(self._last, now)
        return self._last
