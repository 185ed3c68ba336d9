"""The sequencer: one total order of batches, registrations, drops and relation updates.

This is PSoup's new-tuple pool (VLDB 2002, section 4.1): each epoch is published as a whole, in
order, so a reader always sees the effects of a prefix of (data, queries) in arrival order.

INV-SEQ-1: an element that is committed while a heartbeat H is published for its stream has a
timestamp ≥ H. Batches are judged by the floor fixed at their plan, so the heartbeat that readers
rely on is capped by the floors in flight.
"""

from __future__ import annotations

import threading
import time as clock_time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

from millpond.catalog.objects import StreamDef
from millpond.catalog.option_values import parse_memory
from millpond.catalog.options import OPTIONS
from millpond.engine.admission import heartbeat
from millpond.engine.admission.heartbeat import Attendance, PartitionProgress, StreamProgress
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, END
from millpond.runtime.batch_tasks import BatchPlan, BuiltSegment, StreamPlan
from millpond.runtime.kafka.chunks import partition_name
from millpond.runtime.protocol import INBOX, NO_PARTITIONS, Pipeline, Waiting
from millpond.service.events import EpochTimes, Events
from millpond.service.ingest.actions import Actions
from millpond.service.ingest.floors import ClockReading, FloorsInFlight
from millpond.service.ingest.intake import Intake
from millpond.service.ingest.pressure import Pressure
from millpond.service.ingest.segment_refs import match_ref, number_runs, segment_ref
from millpond.service.ingest.source_door import SourceDoor
from millpond.service.queries.deferral import Deferral
from millpond.service.queries.query_stems import QueryStems
from millpond.state.epoch.epoch_change import EpochChange, StaleChange, new_segment_id
from millpond.state.epoch_log import EpochLog
from millpond.state.inbox.inbox import InboxRow
from millpond.state.store import remove_marked
from millpond.state.version import DATA, REJECTS, SHED, MatchRef, SegmentRef, StreamClock, Version


def progress_of(clock: StreamClock) -> StreamProgress:
    """The part of a stream's clock that determines its heartbeat."""
    partitions = {name: PartitionProgress(*known) for name, known in clock.partitions.items()}
    return StreamProgress(clock.high, clock.heartbeat, clock.arrived_at, clock.ended, partitions)


def with_progress(clock: StreamClock, progress: StreamProgress) -> StreamClock:
    """A stream's clock with new progress."""
    return replace(
        clock,
        high=progress.high,
        heartbeat=progress.heartbeat,
        arrived_at=progress.arrived_at,
        ended=progress.ended,
        partitions={name: (p.high, p.arrived_at) for name, p in progress.partitions.items()},
    )


#: Of how many failed batches files are looked for again.
_ABANDONED = 64


def file_growth(version: Version) -> int | None:
    """How many bytes of rows a file may become beyond some times its length; None: any number."""
    given = version.settings.get("file_growth", OPTIONS["file_growth"].default)
    return None if given == "unbounded" else parse_memory(given)


class Sequencer(Pipeline):
    """Plans and commits batches; implements `runtime.protocol.Pipeline`."""

    def __init__(
        self,
        log: EpochLog,
        intake: Intake,
        stems: QueryStems,
        floors: FloorsInFlight,
        store: str,
        events: Events,
        pressure: Pressure,
        source_door: SourceDoor,
        actions: Actions,
        ahead: int = END,
    ) -> None:
        self._source_door = source_door
        self._actions = actions
        self._pressure = pressure
        self._deferral = Deferral()
        self._ahead = ahead
        self._log = log
        self._intake = intake
        self._stems = stems
        self._floors = floors
        self._store = store
        self._events = events
        self._source_locks: dict[str, threading.RLock] = defaultdict(threading.RLock)
        self._lock = threading.Lock()
        self._abandoned: deque[str] = deque(maxlen=_ABANDONED)
        self.troubles: dict[int, Exception] = {}
        #: The clock when the last batch of a stream's source was committed, by this process.
        self._committed_at: dict[int, int] = {}

    # -- Pipeline ------------------------------------------------------------------------------

    def is_committed(self, source: str, batch_id: int) -> bool:
        return self._log.is_committed(source, batch_id)

    def last_batch(self, source: str) -> int:
        return self._log.last_batch(source)

    def plan(
        self,
        source: str,
        stream_ids: Sequence[int] | None,
        find_waiting: Callable[[], Waiting | None] = lambda: None,
    ) -> BatchPlan:
        sheddings = {
            stream_id: self._source_door.decide(self._log.version, stream_id, find_waiting)
            for stream_id in stream_ids or ()
        }
        with self.stream_lock(source):
            version = self._log.version
            if source == INBOX:  # pushed rows were judged, and are held, from their acceptance on
                pushed = [i for i in self._intake.list_waiting_streams() if i in version.streams]
                return BatchPlan(self._store, {i: self._plan_of(version, i, 0, 0) for i in pushed})
            streams = [version.streams[i] for i in stream_ids or () if i in version.streams]
            token, now, floors = self._floors.hold(
                lambda now: {s.id: self._floor(version, s, now) for s in streams}
            )
            plans = {
                s.id: self._plan_of(version, s.id, floors[s.id], self._arrival(version, s, now))
                for s in streams
            }
            plans = {id: replace(plan, shedding=sheddings[id]) for id, plan in plans.items()}
            return BatchPlan(self._store, plans, token)

    def _arrival(self, version: Version, stream: StreamDef, now: int) -> int:
        """The arrival time of a batch: the clock, never going back."""
        return max(now, version.clock(stream.id).arrived_at or now)

    def _floor(self, version: Version, stream: StreamDef, now: int) -> int:
        progress = progress_of(version.clock(stream.id))
        arrival = self._arrival(version, stream, now)
        return heartbeat.current_heartbeat(progress, stream, arrival, self._floors.idle.of(stream))

    def _plan_of(self, version: Version, stream_id: int, floor: int, arrival: int) -> StreamPlan:
        stream = version.streams[stream_id]
        low = 0
        deferred: tuple[int, ...] = ()
        if weight := self._pressure.deferred_weight:
            divided = self._deferral.divide(version, stream_id, weight)
            low, deferred = divided.low, divided.waiting
            stem, upto = self._stems.snapshot_of(version, stream_id, divided.matched)
        else:
            stem, upto = self._stems.snapshot_at_hand(version, stream_id)
        accounts = self._stems.accounts(stream_id)
        return StreamPlan(
            stream_id,
            stream.schema,
            stream.timestamp_by,
            floor,
            arrival,
            stem,
            upto,
            self._stems.routing,
            accounts,
            heartbeat.latest_allowed(stream, arrival, self._ahead),
            low,
            deferred,
            file_growth(version),
            stream.instants_taken,
            stream.reads_history,
        )

    def commit(
        self,
        source: str,
        batch_id: int,
        plan: BatchPlan,
        built: Sequence[BuiltSegment],
        inbox_done: Sequence[int] = (),
        partitions: Mapping[str, bool] = NO_PARTITIONS,
        turn: bool = False,
    ) -> None:
        times = EpochTimes(plan.began, clock_time.time_ns())
        with ExitStack() as locks:
            for stream_id in plan.streams if turn else ():
                # Pushes are judged by a heartbeat that the turn moves.
                locks.enter_context(self._intake.stream_lock(stream_id))
            locks.enter_context(self.stream_lock(source))
            try:
                if not self._intake.are_waiting(inbox_done):
                    raise StaleChange("some of these pushes are part of an epoch already")

                def change(before: Version) -> EpochChange:
                    return self._change(
                        before, source, batch_id, plan, built, inbox_done, partitions, turn
                    )

                if steps := self._source_door.list_steps(plan.streams):
                    with self._actions.prepare(steps) as recorded:
                        version = self._log.commit(lambda now: recorded.add_to(change(now), now))
                else:
                    version = self._log.commit(change)
            except (StaleChange, MillpondError):
                # Nothing was done, and the batch may come again and again while the disk is full.
                for item in built if self._log.is_decided else ():
                    item.discard()
                raise
            self._intake.mark_committed(inbox_done)
            self._source_door.settle(plan.streams)
            if source != INBOX:
                self._note_read(plan.streams)
        self.release(plan)
        self._events.batch_committed(version, built, times)

    def _note_read(self, stream_ids: Iterable[int]) -> None:
        """A batch of a source is committed: what came before the one before it was, is read.

        When its own end was fixed is not known: after a failure a batch is planned again, with the
        end it had.
        """
        now = self._floors.capture().now
        for stream_id in stream_ids:
            before = self._committed_at.get(stream_id)
            self._committed_at[stream_id] = now
            if before is not None:
                self._floors.note_read(stream_id, before)

    def release(self, plan: BatchPlan) -> None:
        self._source_door.forget(plan.streams)
        if plan.token is not None:
            self._floors.release(plan.token)

    def abandon(self, plan: BatchPlan) -> None:
        self._source_door.forget(plan.streams)
        # A task that was told to end may write for a while; the next failure removes that too.
        self._abandoned.append(plan.mark)
        with suppress(OSError):  # the store may be what failed
            remove_marked(plan.store, tuple(self._abandoned))

    def waiting_pushes(self) -> dict[int, InboxRow]:
        return self._intake.find_waiting()

    def check_pushes(self) -> None:
        for problem in self._intake.check_waiting():
            self._events.file_damaged(problem)

    def put_back(self, error: MillpondError) -> bool:
        return self._log.put_back(error.primary)

    def counts_idle(self, stream_id: int) -> bool:
        stream = self._log.version.streams.get(stream_id)
        return stream is not None and stream.idle_after is not None

    def report_read(self, stream_id: int, seconds: float) -> None:
        self._floors.note_read_until(stream_id, seconds)

    def report_stopped(self, stream_id: int, reason: Exception) -> None:
        self.troubles[stream_id] = reason
        with suppress(MillpondError):  # a step that cannot be recorded is tried again later
            self._source_door.pause(stream_id)

    def report_resumed(self, stream_id: int) -> None:
        self.troubles.pop(stream_id, None)

    def report_runtime(self, reason: MillpondError | None) -> None:
        self._events.runtime_changed(reason)

    # -- for the rest of the service -----------------------------------------------------------

    def stream_lock(self, source: str) -> threading.RLock:
        """Held while a source's batch is planned or committed, and while its clock is set."""
        with self._lock:
            return self._source_locks[source]

    def heartbeat(self, version: Version, stream: StreamDef, reading: ClockReading) -> int:
        """The heartbeat readers of `version` may rely on; `reading` was captured before that."""
        if stream.is_pseudo:
            # On system time; what is in flight for the stream may bring more.
            return BEGINNING if stream.id in reading.floors else reading.now
        reached = heartbeat.current_heartbeat(
            progress_of(version.clock(stream.id)), stream, reading.now, reading.idle.of(stream)
        )
        return reading.cap(stream.id, reached)

    def attendance(self, stream: StreamDef) -> Attendance:
        """While which time a stream may have been idle."""
        return self._floors.idle.of(stream)

    def heartbeat_to(self, stream: StreamDef, at: int) -> None:
        """`HEARTBEAT … AT at` on a stream with a source; its lock is held by the caller."""

        reading = self._floors.capture()

        def change(version: Version) -> EpochChange:
            clock = version.clock(stream.id)
            promised = heartbeat.after_heartbeat(
                progress_of(clock),
                stream,
                at,
                self._arrival(version, stream, reading.now),
                reading.idle.of(stream),
            )
            after = with_progress(clock, promised)
            return EpochChange(kind="heartbeat", clocks={stream.id: after})

        self._log.commit(change)

    def end(self, stream: StreamDef) -> None:
        """Commit that a bounded source was read to its end: H = +∞."""
        with self.stream_lock(source_key(stream)):

            def change(version: Version) -> EpochChange:
                clock = version.clock(stream.id)
                return EpochChange(
                    kind="end", clocks={stream.id: replace(clock, ended=True, heartbeat=END)}
                )

            self._log.commit(change)

    def _change(
        self,
        version: Version,
        source: str,
        batch_id: int,
        plan: BatchPlan,
        built: Sequence[BuiltSegment],
        inbox_done: Sequence[int],
        partitions: Mapping[str, bool],
        turn: bool,
    ) -> EpochChange:
        clocks: dict[int, StreamClock] = {}
        segments: list[SegmentRef] = []
        matches: list[MatchRef] = []
        turned: list[StreamDef] = []
        by_stream: dict[int, list[BuiltSegment]] = defaultdict(list)
        for item in built:
            by_stream[item.stream_id].append(item)
        for stream_id, items in by_stream.items():
            clock = version.clock(stream_id)
            data = [b for b in items if b.kind == DATA]
            rejects = [b for b in items if b.kind == REJECTS]
            shed = [b for b in items if b.kind == SHED]
            accepted, runs = number_runs(data, clock.next_seq)
            rejected, reject_runs = number_runs(rejects, clock.rejected)
            # Counts of shed elements never expire, so those that are kept are all there were.
            counted = sum(s.rows for s in version.segments(stream_id, SHED))
            _, shed_runs = number_runs(shed, counted)
            numbered = zip([*data, *rejects, *shed], [*runs, *reject_runs, *shed_runs], strict=True)
            for item, run in numbered:
                if item.matches is not None:
                    owner = new_segment_id(len(segments))
                    matches.append(match_ref(owner, item.low, item.upto, item.matches))
                segments.append(segment_ref(item, run))
            clocks[stream_id] = replace(clock, next_seq=accepted, rejected=rejected)
        if source == INBOX:
            for stream_id, progress in self._intake.progress_after(inbox_done).items():
                clock = clocks.get(stream_id, version.clock(stream_id))
                reached = heartbeat.merge_progress(progress_of(clock), progress)
                clocks[stream_id] = with_progress(clock, reached)
        else:
            for stream_id, stream_plan in plan.streams.items():
                stream = version.streams.get(stream_id)
                if stream is None:
                    continue
                clock = clocks.get(stream_id, version.clock(stream_id))
                data = [b for b in by_stream[stream_id] if b.kind == DATA]
                highs = [b.max_ts for b in data]
                lost = (run.high for b in by_stream[stream_id] if b.kind == SHED for run in b.runs)
                high = max([*highs, *(h for h in lost if h is not None)], default=None)
                before = progress_of(clock)
                came: dict[str, int | None] = {n: None for n, c in partitions.items() if c}
                arrived = heartbeat.after_partitions(
                    before,
                    came | _highs(by_stream[stream_id]) if partitions else {},
                    partitions,
                    stream_plan.arrival,
                )
                if turn and stream.history is not None and stream.reads_history:
                    after = heartbeat.after_history(before, stream, stream_plan.arrival, arrived)
                    clocks[stream_id] = with_progress(clock, after)
                    history = replace(stream.history, is_read=True)
                    turned.append(replace(stream, history=history))
                elif by_stream[stream_id] or arrived:
                    clocks[stream_id] = with_progress(
                        clock,
                        heartbeat.after_arrivals(
                            before,
                            stream,
                            high,
                            stream_plan.arrival,
                            arrived,
                            self._floors.idle.of(stream),
                        ),
                    )
        return EpochChange(
            kind="batch",
            replace=turned,
            # What the inbox holds is known by number, so its batches need no identity.
            batches=[] if source == INBOX else [(source, batch_id)],
            segments=segments,
            matches=matches,
            clocks=clocks,
            inbox_done=inbox_done,
        )


def source_key(stream: StreamDef) -> str:
    """The name a stream's own source has in the epoch log."""
    return f"stream:{stream.id}"


def _highs(built: Sequence[BuiltSegment]) -> dict[str, int | None]:
    """By name, the partitions of which rows came, and the greatest timestamp of their elements."""
    highs: dict[str, int | None] = {}
    for item in built:
        for run in item.runs:
            name = partition_name(*run.key[:2])
            known = [h for h in (highs.get(name), run.high) if h is not None]
            highs[name] = max(known, default=None)
    return highs
