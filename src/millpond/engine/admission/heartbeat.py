"""Heartbeats: no element with a smaller timestamp will come (SEMANTICS, section 1)."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.catalog.objects import StreamDef
from millpond.model.time import BEGINNING, END


@dataclass(frozen=True)
class StreamProgress:
    """How far a stream has come; its heartbeat follows from this.

    Attributes:
        high: The greatest timestamp seen, or None.
        heartbeat: H as of the last epoch that touched the stream.
        arrived_at: The clock at the last arrival or HEARTBEAT, or None.
        ended: Whether a bounded source has been read to its end.
    """

    high: int | None = None
    heartbeat: int = BEGINNING
    arrived_at: int | None = None
    ended: bool = False


def current_heartbeat(progress: StreamProgress, stream: StreamDef, clock: int) -> int:
    """Compute the heartbeat H when the clock shows `clock` and no floor is in flight.

    Application time: H as of the last epoch. Once IDLE AFTER has passed without arrivals, H stays
    as far behind the clock as it was at the last arrival or HEARTBEAT. System time: the clock. A
    derived stream: the instant up to which its elements are made.
    """
    if progress.ended:
        return END
    if stream.derived is not None:
        return progress.heartbeat
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


def latest_allowed(stream: StreamDef, clock: int, default: int) -> int:
    """Return the greatest timestamp a stream takes while the clock shows `clock`.

    Args:
        stream: The stream; one on system time, or a derived one, has no such limit.
        clock: The arrival time of the rows.
        default: How far ahead of the clock elements may be where the stream does not say; END for
            any distance.
    """
    if stream.timestamp_by is None or stream.derived is not None:
        return END
    ahead = default if stream.ahead is None else stream.ahead
    return END if ahead >= END else clock + ahead


def after_arrivals(
    progress: StreamProgress, stream: StreamDef, high: int | None, arrival: int
) -> StreamProgress:
    """Return the progress after a batch with greatest timestamp `high`, accepted at `arrival`."""
    floor = current_heartbeat(progress, stream, arrival)
    if high is None:
        return StreamProgress(
            progress.high, max(progress.heartbeat, floor), arrival, progress.ended
        )
    highest = high if progress.high is None else max(progress.high, high)
    reached = floor if stream.timestamp_by is None else max(floor, highest - stream.delay)
    return StreamProgress(highest, reached, arrival, progress.ended)


def after_heartbeat(
    progress: StreamProgress, stream: StreamDef, at: int, clock: int
) -> StreamProgress:
    """Return the progress after `HEARTBEAT … AT at`; a heartbeat never goes back.

    IDLE AFTER is counted anew from `clock`. Otherwise an idle stream would be taken to be as far
    ahead of its last arrival as `at` is, and H would run ahead of `at`.
    """
    reached = max(current_heartbeat(progress, stream, clock), at)
    return StreamProgress(progress.high, reached, clock, progress.ended)


def merge_progress(one: StreamProgress, other: StreamProgress) -> StreamProgress:
    """Merge two progresses of one stream: each part is the further of the two."""

    def later(a: int | None, b: int | None) -> int | None:
        return b if a is None else a if b is None else max(a, b)

    return StreamProgress(
        later(one.high, other.high),
        max(one.heartbeat, other.heartbeat),
        later(one.arrived_at, other.arrived_at),
        one.ended or other.ended,
    )
