"""Maintenance: background work that makes answers cheaper and never changes exact ones.

- *Backfill*: matches kept segments with slots they lack (new queries probe old data), for many new
  queries at once.
- *Merging*: merges the segment tree's levels, so that an invocation opens few segments.
- *Eviction*: removes segments that neither RETAIN nor a registered window needs.
- *Reductions*: chooses anew how far queries are reduced that need more than they are granted.
- *Totals*: computes the totals of segments' matches that queries' aggregates are merged from.
- *Collection*: removes files that no pinned version refers to.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from millpond.catalog.objects import SYSTEM_STREAMS, StreamDef
from millpond.model.time import END
from millpond.runtime import batch_tasks, maintenance_tasks
from millpond.runtime.protocol import Runtime
from millpond.service.answers.kept_totals import KeptTotals
from millpond.service.answers.summary_states import SummaryStates
from millpond.service.background import Background
from millpond.service.events import Events, FollowerNeeds
from millpond.service.ingest.actions import Actions
from millpond.service.ingest.segment_refs import match_ref, segment_ref
from millpond.service.maintenance.aggregate_maintenance import AggregateMaintenance
from millpond.service.maintenance.backfill import Backfill
from millpond.service.maintenance.join_maintenance import JoinMaintenance
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.maintenance.reduction_maintenance import ReductionMaintenance
from millpond.service.maintenance.segment_tasks import SegmentTasks
from millpond.service.maintenance.shared_log_maintenance import SharedLogMaintenance
from millpond.service.maintenance.summary_maintenance import SummaryMaintenance, needed_since
from millpond.service.maintenance.suspensions import Suspensions
from millpond.service.queries.query_stems import QueryStems
from millpond.service.queries.registration import Registrar
from millpond.service.queries.weights import StreamWeights
from millpond.service.queries.window_needs import WindowNeeds
from millpond.state.epoch.epoch_change import EpochChange, StaleChange, new_segment_id
from millpond.state.epoch_log import EpochLog
from millpond.state.inbox.inbox import Inbox
from millpond.state.retention import plan_eviction
from millpond.state.segment_tree import divide_by_numbers, plan_merges
from millpond.state.version import DATA, REJECTS, SHED, MatchRef, SegmentRef, StreamState, Version

log = logging.getLogger("millpond.maintenance")

_RETRY_SECONDS = 15.0
#: No merge makes a larger segment. It holds a core for as long as batches may have to wait, some
#: tenths of a second for a thousand queries; from here on merging saves readers little.
_MERGED_ROWS = 1 << 18
#: Segments of a stream from which on they are merged though matching waits.
_MOST_UNMERGED = 200


class Maintenance(Background):
    """One thread that wakes when something was committed or registered."""

    def __init__(
        self,
        store: Path,
        epochs: EpochLog,
        inbox: Inbox,
        stems: QueryStems,
        registrar: Registrar,
        runtime: Runtime,
        events: Events,
        followers: FollowerNeeds,
        summaries: SummaryStates,
        kept: KeptTotals,
        actions: Actions,
        settings: JoinSettings | None = None,
        defers: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__("maintenance")
        #: Whether matching can wait, because there is too much to do.
        self._defers = defers
        self._store = store
        self._log = epochs
        self._inbox = inbox
        self._stems = stems
        self._registrar = registrar
        self._runtime = runtime
        self._failed = False
        self._needs = WindowNeeds(registrar, self.check_going)
        self._weights = StreamWeights()
        #: Per stream and kind of work, the state in which there was nothing to do.
        self._up_to_date: defaultdict[int, dict[str, StreamState]] = defaultdict(dict)
        #: Per stream, its definition and state in which there was nothing to do for it at all.
        self._settled: dict[int, tuple[StreamDef, StreamState | None]] = {}
        #: The streams, their states and the summaries when all of them were settled.
        self._all_settled: tuple[object, ...] = ()
        #: Matches found torn or missing, to be made again.
        self._torn: set[MatchRef] = set()
        self._followers = followers
        self._events = events
        self._tasks = SegmentTasks(store, runtime, events)
        self.suspensions = Suspensions(epochs, registrar)
        self._backfill = Backfill(store, epochs, stems, runtime, self._tasks, self.suspensions)
        self._summaries = SummaryMaintenance(store, epochs, summaries, self._tasks)
        self._kept = kept
        self._totals = AggregateMaintenance(
            store, epochs, registrar, kept, self._tasks, self.check_going
        )
        self._reductions = ReductionMaintenance(epochs, registrar, actions)
        self._shared_logs = SharedLogMaintenance(store, epochs, self._tasks, _MERGED_ROWS)
        #: Held in each round, and by who needs segments, joins and summaries to stay as they are.
        self.round = threading.RLock()
        #: What is about joins.
        self.joins = JoinMaintenance(store, epochs, self._tasks, settings)

    def rebuild_matches(self, matches: MatchRef) -> None:
        """Have torn matches made again; until then, invocation matches the segment itself."""
        with self._progress:
            self._torn.add(matches)
        self.wake()

    def look_again(self, stream_id: int) -> None:
        """Forget that there was nothing to do for a stream; for the thread, or when it is still."""
        self._up_to_date.pop(stream_id, None)
        self._settled.pop(stream_id, None)
        self._all_settled = ()

    def wait_seconds(self) -> float | None:
        # What failed is tried again after a while even if nothing else happens.
        return _RETRY_SECONDS if self._failed else None

    def work(self) -> None:
        try:
            self._failed = False
            while not self.stopping and self.step():
                pass
        except Exception as error:
            self._note(error)

    def step(self) -> bool:
        """Do one round; False when there was nothing to do."""
        with self.round:
            return self._step()

    def _step(self) -> bool:
        version = self._log.version
        busy = self._forget_torn()
        streams = self._list_unsettled(version)
        for stream_id in streams:
            busy |= self._run_guarded(self.backfill, stream_id)
            busy |= self._run_guarded(self._summaries.step, stream_id)
        # Before merging, while what is new lies apart from what is old.
        busy |= self._run_guarded(lambda _: self.joins.run_rounds(), 0)
        self._run_guarded(lambda _: self.joins.tidy(), 0)
        self._run_guarded(lambda _: self._totals.tidy(), 0)
        busy |= self._run_guarded(lambda _: self._reductions.step(), 0)
        for work in (self._drop_unneeded, self._merge):
            for stream_id in (*streams, *SYSTEM_STREAMS):
                busy |= self._run_guarded(work, stream_id)
        for stream_id in self._weights.order(version, self._totals.wanted()):
            busy |= self._run_guarded(self._totals.run_round, stream_id)
        if removed := self._log.collect():
            self._kept.close()
            self._events.files_collected(removed)
        self._run_guarded(lambda _: self._log.snapshot_if_due(), 0)
        lost = self._inbox.recovered.lost
        waiting = [row.number for row in self._inbox.list_pending() if row.number not in lost]
        self._inbox.collect((waiting[0] if waiting else self._inbox.last_number() + 1) - 1)
        for gone in self._up_to_date.keys() - version.streams.keys():
            del self._up_to_date[gone]
        if len(self._settled) > len(version.streams):
            for gone in self._settled.keys() - version.streams.keys():
                del self._settled[gone]
        self._settle(version, streams)
        return busy

    def _list_unsettled(self, version: Version) -> list[int]:
        """The streams for which there may be something to do, those of weighty queries first.

        Of thousands of change logs hardly any has changed since the last round.
        """
        settled, states, streams = self._settled, version.states, version.streams
        now = streams, states, version.summaries
        if self._all_settled and all(a is b for a, b in zip(self._all_settled, now, strict=True)):
            return []
        summarized = {s.stream_id for s in version.summaries.values()}
        left = []
        for id, stream in streams.items():
            state = states.get(id)
            known = settled.get(id)
            if known is not None and known[1] is state and known[0] is stream:
                if id in summarized:
                    left.append(id)
            elif stream.shared_log is not None and (state is None or not state.data):
                # It has nothing of its own, but for segments of before.
                settled[id] = stream, state
            else:
                left.append(id)
        if not left:
            self._all_settled = now
        return self._weights.order(version, left)

    def _settle(self, version: Version, streams: Iterable[int]) -> None:
        """Note the streams for which there is nothing more to do until they change.

        What only waits for somebody, as segments that are kept for a query, is looked at again.
        """
        for id in streams:
            stream, state = version.streams.get(id), version.states.get(id)
            if stream is None or state is None:
                continue
            known = self._up_to_date[id]
            if known.get("backfill") is known.get("merge") is known.get("drop") is state:
                self._settled[id] = stream, state

    def _run_guarded(self, work: Callable[[int], bool], stream_id: int) -> bool:
        """Run a step for one stream; its failure (corrupt segment, full disk) stops no other."""
        if self.stopping:
            return False
        try:
            return work(stream_id)
        except Exception as error:
            self._note(error)
            return False

    def _note(self, error: Exception) -> None:
        self._failed = True
        if not self.stopping:
            log.warning("maintenance failed and will be tried again: %s", error)

    def _is_up_to_date(self, work: str, stream_id: int, version: Version) -> bool:
        """Whether a stream is as it was when there was nothing to do for it."""
        state = self._up_to_date[stream_id].get(work)
        return state is not None and state is version.states.get(stream_id)

    def _mark_up_to_date(self, work: str, stream_id: int, version: Version) -> None:
        state = version.states.get(stream_id)
        if state is not None:
            self._up_to_date[stream_id][work] = state

    def _filter_readable(self, segments: Iterable[SegmentRef]) -> list[SegmentRef]:
        return [s for s in segments if self._tasks.is_readable(s)]

    # -- torn matches ------------------------------------------------------------------------------

    def _forget_torn(self) -> bool:
        """Drop torn matches, and the later matches of their segments, so that backfill makes them.

        Where a segment's matches end says which slots it has been matched with (`backfill`), so no
        matches may be missing before that.
        """
        with self._progress:
            torn, self._torn = self._torn, set()
        version = self._log.version
        leaving: dict[int, MatchRef] = {}
        for ref in torn:
            own = version.matches(ref.segment_id)
            if ref in own:
                leaving.update((m.id, m) for m in own if m.low >= ref.low)
                segment = version.segment(ref.segment_id)
                if segment is not None:
                    self.look_again(segment.stream_id)
        if leaving:
            log.warning("matches are made again: %s", ", ".join(m.path for m in leaving.values()))
            try:
                self._log.commit(EpochChange(kind="torn", drop_matches=list(leaving.values())))
            except BaseException:
                with self._progress:
                    self._torn |= torn
                raise
        return bool(leaving)

    # -- backfill ------------------------------------------------------------------------------

    def backfill(self, stream_id: int) -> bool:
        """Match kept segments against the slots they lack."""
        if self._defers():
            return False
        with self._log.pin() as version:
            if self._is_up_to_date("backfill", stream_id, version):
                return False
            segments = self._filter_readable(version.segments(stream_id))
            busy = self._backfill.step(version, stream_id, segments)
            if not busy:
                self._mark_up_to_date("backfill", stream_id, version)
            return busy

    # -- merging and expiry --------------------------------------------------------------------

    def _merge(self, stream_id: int) -> bool:
        with self._log.pin() as version:
            if self._defers() and len(version.segments(stream_id)) < _MOST_UNMERGED:
                return False  # what is merged is matched again
            if self._is_up_to_date("merge", stream_id, version):
                return False
            stream = version.streams.get(stream_id)
            if stream is not None and stream.is_shared_log:
                readable = self._filter_readable(version.segments(stream_id))
                if self._shared_logs.step(version, stream, readable):
                    return True
                self._mark_up_to_date("merge", stream_id, version)
                return False
            busy = [self._merge_kind(version, stream_id, kind) for kind in (DATA, REJECTS, SHED)]
            if not any(busy):
                self._mark_up_to_date("merge", stream_id, version)
            return any(busy)

    def _merge_kind(self, version: Version, stream_id: int, kind: str) -> bool:
        readable = self._filter_readable(version.segments(stream_id, kind))
        plans = [
            plan
            for alike in divide_by_numbers(readable, _list_marks(version, stream_id))
            for plan in plan_merges(
                alike, max_rows=_MERGED_ROWS, max_bytes=batch_tasks.SEGMENT_BYTES
            )
        ]
        if not plans:
            return False
        stem, upto = None, 0
        if kind == DATA and stream_id in version.streams:
            stem, upto = self._stems.snapshot(version, stream_id)
        jobs = [
            maintenance_tasks.MergeJob(
                str(self._store),
                stream_id,
                kind,
                max(s.level for s in plan) + 1,
                tuple((s.id, s.path, s.checksum, s.seq_runs, s.rows) for s in plan),
                stem,
                upto,
                version.added_columns(stream_id) if kind == DATA else (),
            )
            for plan in plans
        ]
        with self._stems.keep_files(stem):
            merged = self._tasks.run(
                maintenance_tasks.merge, jobs, [s for plan in plans for s in plan]
            )
        for plan, item in zip(plans if merged else (), merged, strict=True):
            self._replace(plan, item)
            self.suspensions.suspend_failed(stream_id, item.built.failed)
        return True

    def _replace(self, plan: tuple[SegmentRef, ...], item: maintenance_tasks.MergeResult) -> None:
        built = item.built
        runs = ((0, item.base),)
        segment = segment_ref(built, runs, level=item.level, epoch=max(s.epoch for s in plan))
        matches = []
        if built.matches is not None:
            matches.append(match_ref(new_segment_id(0), 0, built.upto, built.matches))
        try:
            self._log.commit(
                EpochChange(
                    kind="merge", segments=[segment], matches=matches, replaced=item.replaced
                )
            )
        except StaleChange:  # the stream was dropped meanwhile
            built.discard()

    def _drop_unneeded(self, stream_id: int) -> bool:
        version = self._log.version
        stream = version.streams.get(stream_id) or SYSTEM_STREAMS.get(stream_id)
        if stream is None or (stream.retain is None and stream.retain_rows is None):
            self._mark_up_to_date("drop", stream_id, version)
            return False
        clock = version.clock(stream_id)
        if clock.high is None:
            self._mark_up_to_date("drop", stream_id, version)
            return False
        promised = END if stream.retain is None else clock.high - stream.retain
        segments = version.segments(stream_id)
        if not plan_eviction(segments, clock.kept_from, promised, stream.retain_rows).segment_ids:
            self._mark_up_to_date("drop", stream_id, version)
            return False
        needed = min(promised, self._needs.since(version, stream, clock.high))
        needed = min(needed, self._followers.needed_since(version, stream))
        needed = min(needed, needed_since(version, stream))
        due = plan_eviction(segments, clock.kept_from, needed, stream.retain_rows)
        if not due.segment_ids:
            return False

        def change(now: Version) -> EpochChange:
            if (
                now.queries is not version.queries
                or now.streams is not version.streams
                or (now.summaries.keys() - version.summaries.keys())
            ):
                raise StaleChange("somebody came who may need what was to be dropped")
            after = replace(now.clock(stream_id), kept_from=due.kept_from)
            return EpochChange(kind="expire", expired=due.segment_ids, clocks={stream_id: after})

        with suppress(StaleChange):
            self._log.commit(change)
        return True


def _list_marks(version: Version, stream_id: int) -> list[int]:
    """The numbers of changes behind which a query has another definition, and other columns."""
    stream = version.streams.get(stream_id)
    derived = None if stream is None else stream.derived
    return [] if derived is None else [mark.number for mark in derived.marks]
