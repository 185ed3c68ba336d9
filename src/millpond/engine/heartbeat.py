"""Heartbeats: no element with a smaller timestamp will come (SEMANTICS, section 1)."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.catalog.objects import StreamDef
from millpond.model.time import BEGINNING, END


@dataclass(frozen=True)
class Progress:
    """How far a stream has come: what its heartbeat follows from.

    Attributes:
        high: The greatest timestamp seen, or None.
        heartbeat: H as of the last epoch that touched the stream.
        arrived_at: The clock at the last arrival, or None.
        ended: Whether a bounded source has been read to its end.
    """

    high: int | None = None
    heartbeat: int = BEGINNING
    arrived_at: int | None = None
    ended: bool = False


def current(progress: Progress, stream: StreamDef, clock: int) -> int:
    """H when the clock shows `clock` and nothing is in flight.

    Application time: as of the last epoch, or, once IDLE AFTER has passed without arrivals, as far
    behind the clock as the stream was at its last arrival. System time: the clock.
    """
    if progress.ended:
        return END
    if stream.timestamp_by is None:
        return max(progress.heartbeat, clock)
    if (
        stream.idle_after is not None
        and progress.arrived_at is not None
        and progress.heartbeat > BEGINNING
        and clock - progress.arrived_at >= stream.idle_after
    ):
        return max(progress.heartbeat, clock - (progress.arrived_at - progress.heartbeat))
    return progress.heartbeat


def after_arrivals(
    progress: Progress, stream: StreamDef, high: int | None, arrival: int
) -> Progress:
    """The progress after a batch whose greatest timestamp is `high` was accepted at `arrival`."""
    floor = current(progress, stream, arrival)
    if high is None:
        return Progress(progress.high, max(progress.heartbeat, floor), arrival, progress.ended)
    highest = high if progress.high is None else max(progress.high, high)
    reached = floor if stream.timestamp_by is None else max(floor, highest - stream.delay)
    return Progress(highest, reached, arrival, progress.ended)


def promised(progress: Progress, at: int) -> Progress:
    """The progress after `HEARTBEAT … AT at`; a heartbeat never goes back."""
    return Progress(progress.high, max(progress.heartbeat, at), progress.arrived_at, progress.ended)
