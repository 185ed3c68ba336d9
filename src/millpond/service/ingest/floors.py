"""Floors in flight: they keep readers from taking a heartbeat too far.

A batch or a push is judged by a floor, which is computed from the clock: rows before it are late.
Until the epoch of the batch is published, a reader that computes the heartbeat from a later clock
could call an instant final for which the batch still has elements. So the sequencer or the intake
reads the clock and holds the floors computed from it in one step, and a reader captures the clock
and the least held floors in one step, *before* it pins a version:

The clock of streams never goes back, since what readers were told stays true. When the machine's
clock is set back, the clock of streams goes on from where it was at half its speed, until the
machine's has caught up: if it stood still, changes would wait as long as that takes. So it is
after a restart too: it begins no earlier than the last arrival of a stream on system time.

INV-FLOORS-1: with a `ClockReading` r captured before a version v was pinned, min(H(v, r.now),
r.floors) is never above the timestamp of an element that is not in v.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millpond.model.time import END
from millpond.service.ingest.idle_time import ALWAYS_OPEN, IdleTime, IdleTimes

#: Microseconds by which the clock of streams goes on in a second while it waits for the machine's.
_HALF_SPEED = 500_000


@dataclass(frozen=True)
class ClockReading:
    """A clock reading and, per stream, the least floor in flight at it.

    `behind` is how far the machine's clock is behind `now`, in microseconds: it has gone back, and
    for streams time goes slower until it has caught up. `idle` says while which time streams may
    have been idle.
    """

    now: int
    floors: Mapping[int, int]
    behind: int = 0
    idle: IdleTimes = ALWAYS_OPEN

    def cap(self, stream_id: int, reached: int) -> int:
        """The heartbeat readers may rely on, when the stream's clock has reached `reached`."""
        return min(reached, self.floors.get(stream_id, END))


class FloorsInFlight:
    """The floors in flight; safe to use from any thread.

    Args:
        clock: The machine's clock, or a test's.
        start: What the clock of streams had shown before the pond was opened, or None.
        count_seconds: A clock that nobody sets; by default one that stands still.
        idle: While which time streams may have been idle; by default none was ever away.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        start: int | None = None,
        count_seconds: Callable[[], float] = lambda: 0.0,
        idle: IdleTime | None = None,
    ) -> None:
        self._idle = idle
        self._clock = clock
        self._last = start
        self._count_seconds = count_seconds
        self._counted = count_seconds()
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

    @property
    def idle(self) -> IdleTimes:
        """While which time streams may have been idle; the same all through `judge` of `hold`."""
        return ALWAYS_OPEN if self._idle is None else self._idle.known

    def note_read(self, stream_id: int, upto: int) -> None:
        """All that came into a stream's source up to a moment of the clock is committed."""
        if self._idle is not None:
            with self._lock:
                self._idle.note_read(stream_id, upto)

    def note_read_until(self, stream_id: int, seconds: float) -> None:
        """The same, some seconds ago."""
        self.note_read(stream_id, self.capture().now - int(seconds * 1e6))

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
            return ClockReading(now, least, now - self._shown, self.idle)

    def _now(self) -> int:
        """The clock, which for streams never goes back: what readers were told stays true."""
        now = self._count()
        if self._idle is not None:
            self._idle.show(now)
        return now

    def _count(self) -> int:
        self._shown = now = self._clock()
        counted = self._count_seconds()
        if self._last is not None and now < self._last:
            slowly = int((counted - self._counted) * _HALF_SPEED)
            if slowly <= 0:
                return self._last  # what is left of a microsecond counts next time
            now = self._last + slowly
        self._last, self._counted = now, counted
        return now
