"""Sets the clock of a stream back: ALTER STREAM … RESET CLOCK TO TIMESTAMP ….

One element of a wrong date far ahead, or one HEARTBEAT, ends a stream: all that comes after is
late. An operator puts that right. What is after the instant becomes rejects, and the heartbeat is
that of the elements which are left, as if the others had never come. Instants that are not final
any more are taken back from all that is derived: change logs and derived streams lose their
elements of these instants, and they are made anew. Their cursors are of before, and are refused
(`cursor.py`).

All of this is one epoch, so a crash leaves the stream as it was or as it is to be.

INV-RESET-1: while it is made, nobody else changes what it is made of: no round of maintenance or of
the advancer, no push to the stream, no batch of its source, no query that comes or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from millpond.catalog.objects import Definition, StreamDef
from millpond.engine.admission.heartbeat import (
    PartitionProgress,
    StreamProgress,
    after_arrivals,
)
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, END, format_instant
from millpond.runtime.maintenance_tasks import CutJob, CutResult, cut
from millpond.runtime.protocol import Runtime
from millpond.runtime.shared_log_task import CutLogsJob, CutLogsResult, cut_logs
from millpond.service.answers.summary_states import SummaryStates
from millpond.service.changes.advancer import Advancer
from millpond.service.changes.derivation import find_start
from millpond.service.changes.derivation_reads import list_read
from millpond.service.changes.derivations import Derivations
from millpond.service.ingest.intake import Intake, check_heartbeat
from millpond.service.ingest.segment_refs import segment_ref
from millpond.service.ingest.sequencer import Sequencer, progress_of, source_key, with_progress
from millpond.service.maintenance.maintenance import Maintenance
from millpond.service.queries.registration import Registrar
from millpond.state.epoch.epoch_change import EpochChange, StaleChange
from millpond.state.epoch_log import EpochLog
from millpond.state.join_state import JoinChange
from millpond.state.version import DATA, WAITING, SegmentRef, StreamClock, StreamState, Version

#: How long pushes that were acknowledged may take to become an epoch, in seconds.
_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class ClockReset:
    """What a reset did: how many elements became rejects, and whose changes were taken back."""

    rejected: int
    taken_back: tuple[str, ...]


@dataclass
class _Plan:
    """The one epoch, as it is put together."""

    version: Version
    clocks: dict[int, StreamClock] = field(default_factory=dict)
    segments: list[SegmentRef] = field(default_factory=list)
    replaced: list[int] = field(default_factory=list)
    streams: list[StreamDef] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    #: By change log, how many of its changes were taken out of its shared log.
    removed: dict[int, int] = field(default_factory=dict)

    def put(self, stream: StreamDef, clock: StreamClock) -> None:
        """Note the clock of a stream that was set back."""
        self.clocks[stream.id] = clock
        self.streams.append(replace(stream, resets=stream.resets + 1))

    def seen(self) -> Version:
        """The version as it will be, as far as clocks are looked at."""
        states = dict(self.version.states)
        for id, clock in self.clocks.items():
            states[id] = replace(states.get(id, StreamState()), clock=clock)
        return replace(self.version, states=MappingProxyType(states))


class ClockResets:
    """Sets clocks of streams back. The caller holds the lock of the definitions."""

    def __init__(
        self,
        store: Path,
        log: EpochLog,
        runtime: Runtime,
        intake: Intake,
        sequencer: Sequencer,
        registrar: Registrar,
        derivations: Derivations,
        advancer: Advancer,
        maintenance: Maintenance,
        summaries: SummaryStates,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._log = log
        self._runtime = runtime
        self._intake = intake
        self._sequencer = sequencer
        self._registrar = registrar
        self._derivations = derivations
        self._advancer = advancer
        self._maintenance = maintenance
        self._summaries = summaries
        self._clock = clock

    def reset(self, stream: StreamDef, to: int) -> ClockReset:
        """Set the clock of a stream on application time back.

        Args:
            stream: The stream.
            to: The instant after which its elements become rejects, µs.

        Raises:
            MillpondError: POND-409, its clock is not its own; POND-405, pushes still wait;
                STORE-602, a segment is corrupt; STORE-603, the disk is full.
        """
        check_heartbeat(stream, StreamProgress(), END)
        with ExitStack() as held:
            held.enter_context(self._maintenance.round)
            held.enter_context(self._advancer.round)
            held.enter_context(self._intake.hold(stream, _WAIT_SECONDS))
            held.enter_context(self._sequencer.stream_lock(source_key(stream)))
            held.enter_context(self._registrar.lock)
            version = held.enter_context(self._log.pin())
            plan = _Plan(version)
            try:
                done = self._plan(plan, version.streams[stream.id], to)
            except (StaleChange, MillpondError):
                for path in plan.paths if self._log.is_decided else ():
                    path.unlink(missing_ok=True)
                raise
            self._intake.forget_progress(stream.id)
            for summary in version.summaries.values():
                if summary.stream_id in plan.clocks:
                    self._summaries.forget(summary)
            self._advancer.begin_again(plan.clocks)
        self._maintenance.wake()
        return done

    def _plan(self, plan: _Plan, stream: StreamDef, to: int) -> ClockReset:
        version, now = plan.version, self._clock()
        before = version.clock(stream.id)
        reason = f"the clock was set back to {format_instant(to)}, and this is after it"
        cuts = self._cut(plan, stream, to, reason, now)
        rejected = 0
        for number, found in enumerate(cuts):
            if found.rejects is not None:
                runs = ((0, before.rejected + rejected),)
                plan.segments.append(segment_ref(found.rejects, runs))
                cuts[number] = replace(found, rejects=None)
            rejected += found.removed
        high = self._find_high(plan, stream)
        partitions = _set_back_partitions(progress_of(before).partitions, to, high)
        heartbeat = END if before.ended else BEGINNING
        fresh = StreamProgress(None, heartbeat, None, before.ended, partitions)
        progress = after_arrivals(fresh, stream, high, now)
        if before.ended:
            progress = replace(progress, heartbeat=END)
        clock = replace(
            with_progress(before, progress),
            rejected=before.rejected + rejected,
            kept_from=min(before.kept_from, to + 1),
        )
        plan.put(replace(stream, taken_back=stream.taken_back + rejected), clock)
        final = min(progress.heartbeat - 1, to)
        taken_back = self._take_back(plan, stream, final)
        self._log.commit(
            EpochChange(
                kind="reset clock",
                clocks=plan.clocks,
                segments=plan.segments,
                replaced=plan.replaced,
                replace=[*plan.streams, *self._find_queries(plan, final)],
                joins=self._forget_pairs(plan),
                add_summaries=[
                    replace(s, file=None)
                    for s in version.summaries.values()
                    if s.stream_id in plan.clocks and s.file is not None
                ],
            )
        )
        return ClockReset(rejected, tuple(version.name_of(s) for s in taken_back))

    # -- elements ------------------------------------------------------------------------------

    def _cut(
        self, plan: _Plan, stream: StreamDef, after: int, reason: str | None, now: int
    ) -> list[CutResult]:
        """Take the elements after an instant out of a stream's segments."""
        leaving = [s for s in plan.version.segments(stream.id) if s.max_ts > after]
        jobs = [
            CutJob(
                str(self._store),
                stream.id,
                (ref.path, ref.checksum, ref.seq_runs, ref.rows),
                after,
                reason,
                stream.schema,
                now,
            )
            for ref in leaving
            if reason is not None or ref.min_ts <= after
        ]
        cuts: list[CutResult] = self._runtime.run(cut, jobs) if jobs else []
        for found in cuts:
            written = [built for built in (found.kept, found.rejects) if built is not None]
            plan.paths += [built.file.path for built in written]
        plan.replaced += [ref.id for ref in leaving]
        worked = [ref for ref in leaving if reason is not None or ref.min_ts <= after]
        for ref, found in zip(worked, cuts, strict=True):
            if found.kept is not None:
                runs = ((0, found.base),)
                plan.segments.append(segment_ref(found.kept, runs, ref.level, ref.epoch))
        return cuts

    def _find_high(self, plan: _Plan, stream: StreamDef) -> int | None:
        """The greatest timestamp that is left in a stream."""
        gone = set(plan.replaced)
        left = [s.max_ts for s in plan.version.segments(stream.id) if s.id not in gone]
        left += [s.max_ts for s in plan.segments if s.stream_id == stream.id and s.kind == DATA]
        return max(left, default=None)

    # -- what is derived -----------------------------------------------------------------------

    def _take_back(self, plan: _Plan, stream: StreamDef, final: int) -> list[StreamDef]:
        """Set back what is derived from a stream and went beyond the last final instant."""
        version = plan.version
        left = list(self._derivations.list_streams(version))
        reads = {d.id: {s.id for s in list_read(self._derivations, version, d)} for d in left}
        below, found = {stream.id}, list[StreamDef]()
        while left:
            waiting = {derived.id for derived in left}
            ready = [d for d in left if not (reads[d.id] - {d.id}) & waiting] or left
            left = [d for d in left if d not in ready]
            # A log that left its shared log has some of its changes there.
            for derived in sorted(ready, key=lambda d: not d.is_shared_log):
                if not reads[derived.id] & below:
                    continue
                if derived.is_shared_log:
                    found += self._set_back_shared(plan, derived, final)
                elif version.clock(derived.id).position > final:
                    self._set_back(plan, derived, final)
                    found.append(derived)
                    below.add(derived.id)
        return found

    def _set_back_shared(self, plan: _Plan, shared: StreamDef, final: int) -> list[StreamDef]:
        """Set back a shared log and the change logs in it; return these."""
        version = plan.version
        logs = [log for log in version.streams.values() if log.shared_log == shared.id]
        reached = [version.clock(stream.id).position for stream in (shared, *logs)]
        if max(reached) <= final:
            return []
        start = self._find_start(plan, shared, final)
        is_begun_anew = start > final
        after = BEGINNING - 1 if is_begun_anew else final
        leaving = [s for s in version.segments(shared.id) if s.max_ts > after]
        jobs = [
            CutLogsJob(str(self._store), shared.id, (s.path, s.checksum), after) for s in leaving
        ]
        cuts: list[CutLogsResult] = self._runtime.run(cut_logs, jobs) if jobs else []
        plan.replaced += [ref.id for ref in leaving]
        for ref, done in zip(leaving, cuts, strict=True):
            if done.built is not None:
                plan.paths.append(done.built.file.path)
                plan.segments.append(segment_ref(done.built, ((0, 0),), ref.level, ref.epoch))
            for id, count in zip(done.logs.tolist(), done.removed.tolist(), strict=True):
                plan.removed[id] = plan.removed.get(id, 0) + count
        clock = version.clock(shared.id)
        goes_on = start == final and clock.kept_from <= final + 1
        plan.put(shared, replace(clock, heartbeat=start + 1, high=self._find_high(plan, shared)))
        for log in logs:
            own = version.own_clock(log.id)
            left = 0 if is_begun_anew else own.next_seq - plan.removed.get(log.id, 0)
            began_later = is_begun_anew or own.position > final
            plan.put(
                log,
                replace(
                    own,
                    heartbeat=start + 1 if began_later else own.heartbeat,
                    high=min(own.high, final) if left and own.high is not None else None,
                    next_seq=left,
                    kept_from=own.kept_from if goes_on else max(start + 1, BEGINNING),
                ),
            )
        return logs

    def _find_start(self, plan: _Plan, derived: StreamDef, final: int) -> int:
        """The instant to which a derivation is set back, from which on it can be computed."""
        derivation = self._derivations.find_of(plan.version, derived)
        if derivation is None:
            return final
        return find_start(plan.seen(), derivation.bound, derivation.plan, final)

    def _set_back(self, plan: _Plan, derived: StreamDef, final: int) -> None:
        """Set a derivation back to an instant, or to the first one it can be computed from."""
        derivation = self._derivations.find_of(plan.version, derived)
        if derivation is not None and derivation.line:  # a step is taken back as a whole
            final = (final + 1) // derivation.line * derivation.line - 1
        clock, start = plan.version.clock(derived.id), self._find_start(plan, derived, final)
        marks = derived.derived.marks if derived.derived is not None else ()
        # What lies before a mark was another query's: it would not go on as this one's.
        is_other = any(mark.at > final for mark in marks)
        is_begun_anew = (start > final or is_other) and derived.is_change_log
        after = BEGINNING - 1 if is_begun_anew else final
        whole = {s.id: s for s in plan.version.segments(derived.id) if s.min_ts > after}
        cuts = self._cut(plan, derived, after, None, 0)
        if is_begun_anew:  # else the next step finds what waits, and what of it was taken back
            plan.replaced += [s.id for s in plan.version.segments(derived.id, WAITING)]
        removed = sum(s.rows for s in whole.values()) + sum(c.removed for c in cuts)
        removed += plan.removed.get(derived.id, 0)  # of those in the shared log that it left
        next_seq = 0 if is_begun_anew else clock.next_seq - removed
        if derived.derived is not None and derived.derived.apart_from is not None:
            apart_from = min(derived.derived.apart_from, next_seq)
            derived = replace(derived, derived=replace(derived.derived, apart_from=apart_from))
        if is_begun_anew and derived.derived is not None:
            derived = replace(derived, derived=replace(derived.derived, marks=()))
        if derived.derived is not None and derived.derived.periods:
            # Reductions that began later are taken back with the difference they began with.
            kept = tuple(p for p in derived.derived.periods if p[0] < after)
            derived = replace(derived, derived=replace(derived.derived, periods=kept))
        goes_on = start == final and clock.kept_from <= final + 1 and not is_begun_anew
        plan.put(
            derived,
            replace(
                clock,
                heartbeat=start + 1,
                high=self._find_high(plan, derived),
                next_seq=next_seq,
                kept_from=clock.kept_from if goes_on else max(start + 1, BEGINNING),
                relations_epoch=clock.relations_epoch if goes_on else plan.version.epoch,
            ),
        )

    def _find_queries(self, plan: _Plan, final: int) -> Sequence[Definition]:
        """The queries whose changes were to begin at an instant that is not final any more."""
        return [
            replace(query, changes_after=final)
            for query in plan.version.queries.values()
            if query.changes_after > final
            and any(x.stream_id in plan.clocks for x in plan.version.leaves(query.id))
        ]

    def _forget_pairs(self, plan: _Plan) -> JoinChange:
        """Have the pairs of joins over these streams looked for anew: they name elements."""
        joins = plan.version.joins
        cores = [c for c in joins.cores.values() if plan.clocks.keys() & set(c.stream_ids)]
        return JoinChange(
            cores=[replace(c, upto=0, covered=(), epoch=0, since=()) for c in cores],
            drop_pairs=[file for core in cores for file in joins.pairs(core.id)],
        )


def _set_back_partitions(
    partitions: Mapping[str, PartitionProgress], to: int, high: int | None
) -> dict[str, PartitionProgress]:
    """Set back the partitions of a source that went beyond an instant.

    How far such a partition had come before, nobody knows: no further than the slowest of those
    that did not, or than the last element which is left.
    """
    within = [p.high for p in partitions.values() if p.high is not None and p.high <= to]
    before = min(within, default=high)
    return {
        name: p if p.high is None or p.high <= to else replace(p, high=before)
        for name, p in partitions.items()
    }
