"""Idle time: while which time a stream without arrivals is idle (IDLE AFTER).

A heartbeat promises that nothing before it will come. The clock says so of a stream only for the
time in which rows could have come and did not: of a stream with a source, up to the moment when
the source was last found to have nothing more; of a stream that is pushed to, while the pond is
open. So what waits in a source that cannot be read, or while the pond is down, is not late.

INV-IDLE-1: a heartbeat that readers were told, by this process or one before, is never above one
that is computed later, unless the machine's clock was set back in between. What is written into
`state/read_times.py` before it is used sees to it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from millpond.catalog.objects import StreamDef
from millpond.engine.admission.heartbeat import ALWAYS, Attendance
from millpond.model.time import BEGINNING
from millpond.state.read_times import MOST_ABSENCES, ReadTimes, Times


@dataclass(frozen=True)
class IdleTimes:
    """While which time the streams of a pond may have been idle; never changed.

    Attributes:
        pushed: Of all streams that are pushed to.
        read: By a stream's id, up to when its source is known to have been read.
        unread: The same, of sources that are not in `read`.
    """

    pushed: Attendance = ALWAYS
    read: Mapping[int, int] = field(default_factory=dict)
    unread: int = BEGINNING

    def of(self, stream: StreamDef) -> Attendance:
        """While which time a stream may have been idle."""
        if stream.source is None:
            return self.pushed
        return Attendance(self.read.get(stream.id, self.unread))


#: Nobody was ever away.
ALWAYS_OPEN = IdleTimes()


class IdleTime:
    """Keeps the idle times, over restarts; the caller holds a lock.

    Args:
        times: The store's.
        clock: What the clock shows while the pond is opened.
        streams: The streams there are.

    Attributes:
        known: The idle times as of now.
    """

    def __init__(self, times: ReadTimes, clock: int, streams: Container[int]) -> None:
        self._times = times
        before = times.before
        if before is None:  # whatever the clock said may have been told
            self.known = IdleTimes(unread=clock)
        else:
            # Times that are left out count as idle: what they make final may have been told.
            away = [*before.away, (min(before.shown, clock), clock)][-MOST_ABSENCES:]
            read = {
                id: min(upto, before.shown) for id, upto in before.read.items() if id in streams
            }
            self.known = IdleTimes(Attendance(away=tuple(away)), read, before.unread)
        known = self.known
        times.begin(Times(clock, known.unread, known.pushed.away, known.read))

    def show(self, clock: int) -> None:
        """Something is about to be told by this clock."""
        self._times.show(clock)

    def note_read(self, stream_id: int, upto: int) -> None:
        """All that came into a stream's source up to a moment of the clock is committed."""
        if upto > self.known.read.get(stream_id, self.known.unread):
            self._times.note(stream_id, upto)
            self.known = replace(self.known, read={**self.known.read, stream_id: upto})
