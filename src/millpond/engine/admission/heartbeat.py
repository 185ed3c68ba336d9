"""Heartbeats: no element with a smaller timestamp will come (SEMANTICS, section 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from millpond.catalog.objects import StreamDef
from millpond.model.time import BEGINNING, END


@dataclass(frozen=True)
class Attendance:
    """In which time rows of a stream could come; only in it a stream is idle.

    Attributes:
        upto: Up to when it is known that nothing else came: then its source was looked at, and all
            that it had is committed. END for a stream that is pushed to.
        away: The times (from, to) in which nobody took what would have come.
    """

    upto: int = END
    away: Sequence[tuple[int, int]] = ()

    def reads(self, clock: int) -> int:
        """The clock, as far as it counts."""
        return min(clock, self.upto)

    def moves(self, arrived_at: int) -> int:
        """An arrival, moved on by as much as of the time behind it nobody was there."""
        behind = (end - max(begin, arrived_at) for begin, end in self.away if end > arrived_at)
        return arrived_at + sum(behind)


#: Rows could come at any time.
ALWAYS = Attendance()


@dataclass(frozen=True)
class PartitionProgress:
    """How far one partition of a source has come.

    Attributes:
        high: The greatest timestamp seen of its elements, or None.
        arrived_at: The clock when rows of it arrived last, or when it was found.
    """

    high: int | None
    arrived_at: int


@dataclass(frozen=True)
class StreamProgress:
    """How far a stream has come; its heartbeat follows from this.

    Attributes:
        high: The greatest timestamp seen, or None.
        heartbeat: H as of the last epoch that touched the stream.
        arrived_at: The clock at the last arrival or HEARTBEAT, or None.
        ended: Whether a bounded source has been read to its end.
        partitions: How far each partition has come, by name, of a source that has some.
    """

    high: int | None = None
    heartbeat: int = BEGINNING
    arrived_at: int | None = None
    ended: bool = False
    partitions: Mapping[str, PartitionProgress] = field(default_factory=dict)


def current_heartbeat(
    progress: StreamProgress, stream: StreamDef, clock: int, attended: Attendance = ALWAYS
) -> int:
    """Compute the heartbeat H when the clock shows `clock` and no floor is in flight.

    Application time: H as of the last epoch. Once IDLE AFTER has passed without arrivals, H stays
    as far behind the clock as it was at the last arrival or HEARTBEAT. System time: the clock. A
    derived stream: the instant up to which its elements are made.

    Each partition of a source has a heartbeat, and the least of them is H: records are in order
    only within their partition. A partition without arrivals for IDLE AFTER does not count; once
    none counts, H moves on from the furthest of them, as that of a stream without partitions.

    Time in which nothing could arrive, by `attended`, does not pass for a stream that is idle: what
    waits in a source that nobody reads is not late.
    """
    if progress.ended:
        return END
    if stream.derived is not None:
        return progress.heartbeat
    if stream.timestamp_by is None:
        return max(progress.heartbeat, clock)
    clock = attended.reads(clock)
    if progress.partitions:
        active = [
            p
            for p in progress.partitions.values()
            if not _is_idle(attended.moves(p.arrived_at), stream, clock)
        ]
        if active:
            return max(progress.heartbeat, _least(active, stream))
        highs = [p.high for p in progress.partitions.values() if p.high is not None]
        if stream.history is not None and progress.high is not None:
            highs.append(progress.high)
        furthest = max(highs, default=BEGINNING + stream.delay) - stream.delay
        progress = replace(progress, heartbeat=max(progress.heartbeat, furthest))
    if progress.arrived_at is not None and progress.heartbeat > BEGINNING:
        arrived_at = attended.moves(progress.arrived_at)
        if _is_idle(arrived_at, stream, clock):
            return max(progress.heartbeat, clock - (arrived_at - progress.heartbeat))
    return progress.heartbeat


def _is_idle(arrived_at: int, stream: StreamDef, clock: int) -> bool:
    return stream.idle_after is not None and clock - arrived_at >= stream.idle_after


def _least(partitions: Iterable[PartitionProgress], stream: StreamDef) -> int:
    """The least heartbeat of partitions; one that never had an element is at the beginning."""
    return min(BEGINNING if p.high is None else p.high - stream.delay for p in partitions)


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
    progress: StreamProgress,
    stream: StreamDef,
    high: int | None,
    arrival: int,
    partitions: Mapping[str, PartitionProgress] | None = None,
    attended: Attendance = ALWAYS,
) -> StreamProgress:
    """Return the progress after a batch.

    Args:
        progress: How far the stream had come before.
        stream: The stream.
        high: The greatest timestamp of the batch's elements; None if it has none.
        arrival: The clock when the batch was accepted.
        partitions: Those of the source that rows came of, or that were found; see
            `after_partitions`.
        attended: In which time rows could come before the batch.
    """
    floor = current_heartbeat(progress, stream, arrival, attended)
    if stream.reads_history:
        # Its files are in no order, and what follows them may be pushed already.
        seen = max((h for h in (progress.high, high) if h is not None), default=None)
        return StreamProgress(seen, floor, arrival, progress.ended, progress.partitions)
    if partitions or progress.partitions:
        together = {**progress.partitions, **(partitions or {})}
        highs = [h for h in (progress.high, high) if h is not None]
        known = StreamProgress(max(highs, default=None), floor, arrival, progress.ended, together)
        return replace(known, heartbeat=current_heartbeat(known, stream, arrival, attended))
    if high is None:
        return StreamProgress(
            progress.high, max(progress.heartbeat, floor), arrival, progress.ended
        )
    highest = high if progress.high is None else max(progress.high, high)
    reached = floor if stream.timestamp_by is None else max(floor, highest - stream.delay)
    return StreamProgress(highest, reached, arrival, progress.ended)


def after_heartbeat(
    progress: StreamProgress,
    stream: StreamDef,
    at: int,
    clock: int,
    attended: Attendance = ALWAYS,
) -> StreamProgress:
    """Return the progress after `HEARTBEAT … AT at`; a heartbeat never goes back.

    IDLE AFTER is counted anew from `clock`. Otherwise an idle stream would be taken to be as far
    ahead of its last arrival as `at` is, and H would run ahead of `at`.
    """
    reached = max(current_heartbeat(progress, stream, clock, attended), at)
    return StreamProgress(progress.high, reached, clock, progress.ended, progress.partitions)


def after_history(
    progress: StreamProgress,
    stream: StreamDef,
    arrival: int,
    partitions: Mapping[str, PartitionProgress],
) -> StreamProgress:
    """Return the progress once a stream's history is read, from which its heartbeat sets out.

    With UNTIL nothing before that instant will come. Without it, the next rows may be anything of
    which a stream that had the history's rows would say that they are not late; partitions of a
    topic say themselves how far they have come.

    Args:
        progress: How far the stream had come before.
        stream: The stream, whose `history` is not read yet.
        arrival: The clock at the turn.
        partitions: Those of the source that follows, if it has some.
    """
    assert stream.history is not None
    reached = progress.heartbeat
    if stream.history.until is not None:
        reached = max(reached, stream.history.until)
    elif stream.source is None and stream.timestamp_by is not None and progress.high is not None:
        reached = max(reached, progress.high - stream.delay)
    together = {**progress.partitions, **partitions}
    return StreamProgress(progress.high, reached, arrival, progress.ended, together)


def after_partitions(
    progress: StreamProgress, highs: Mapping[str, int | None], found: Iterable[str], arrival: int
) -> dict[str, PartitionProgress]:
    """Compute how far the partitions of a batch have come.

    Args:
        progress: How far the stream had come before.
        highs: The partitions of which rows came, and the greatest timestamp of their elements.
        found: All partitions that the batch knows of.
        arrival: The clock when the batch was accepted.

    Returns:
        The partitions of which rows came, and those that were not known before.
    """
    after = {}
    for name in {*highs, *found}:
        before = progress.partitions.get(name)
        if before is not None and name not in highs:
            continue
        known = [h for h in (before.high if before else None, highs.get(name)) if h is not None]
        after[name] = PartitionProgress(max(known, default=None), arrival)
    return after


def merge_progress(one: StreamProgress, other: StreamProgress) -> StreamProgress:
    """Merge two progresses of one stream: each part is the further of the two."""

    def later(a: int | None, b: int | None) -> int | None:
        return b if a is None else a if b is None else max(a, b)

    return StreamProgress(
        later(one.high, other.high),
        max(one.heartbeat, other.heartbeat),
        later(one.arrived_at, other.arrived_at),
        one.ended or other.ended,
        {**other.partitions, **one.partitions},
    )
