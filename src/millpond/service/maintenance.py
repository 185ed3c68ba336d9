"""Maintenance: what makes answers cheaper and never changes them, done behind everyone's back.

- *Backfill*: kept segments × slots they have not been matched against (new queries probe old
  data); many new queries at once.
- *Merging*: the segment tree's levels, so that an invocation opens few segments.
- *Expiry*: segments that neither RETAIN nor a registered window needs.
- *Collection*: files no pinned version refers to.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.model.time import BEGINNING
from millpond.model.windows import Now, Period, Range
from millpond.runtime import tasks
from millpond.runtime.protocol import Runtime
from millpond.service.registration import Registrar
from millpond.service.sequencer import match_ref, segment_ref
from millpond.service.stems import QueryStems
from millpond.state.epoch_change import EpochChange, StaleChange, new_segment_id
from millpond.state.epoch_log import EpochLog
from millpond.state.inbox import Inbox
from millpond.state.retention import expiry
from millpond.state.segment_tree import plan_merges
from millpond.state.version import SegmentRef, Version

log = logging.getLogger("millpond.maintenance")


class Maintenance:
    """One thread that wakes when something was committed or registered."""

    def __init__(
        self,
        store: Path,
        epochs: EpochLog,
        inbox: Inbox,
        stems: QueryStems,
        registrar: Registrar,
        runtime: Runtime,
        parallelism: int = 2,
    ) -> None:
        self._store = store
        self._log = epochs
        self._inbox = inbox
        self._stems = stems
        self._registrar = registrar
        self._runtime = runtime
        self._parallelism = parallelism
        self._wake = threading.Event()
        self._idle = threading.Condition()
        self._asked = 0
        self._done = 0
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name="maintenance", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Something changed; look again soon."""
        with self._idle:
            self._asked += 1
        self._wake.set()

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until there is nothing left to do for what was asked so far."""
        self.wake()
        with self._idle:
            asked = self._asked
            return self._idle.wait_for(lambda: self._done >= asked or self._stopping, timeout)

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=30)
        with self._idle:
            self._idle.notify_all()

    def _loop(self) -> None:
        while not self._stopping:
            self._wake.wait()
            self._wake.clear()
            with self._idle:
                asked = self._asked
            if self._stopping:
                return
            try:
                while not self._stopping and self.step():
                    pass
            except Exception as error:  # it is tried again at the next wake; answers stay right
                if not self._stopping:
                    log.warning("maintenance failed and will be tried again: %s", error)
            with self._idle:
                self._done = max(self._done, asked)
                self._idle.notify_all()

    def step(self) -> bool:
        """Do one round; False when there was nothing to do."""
        version = self._log.version
        busy = False
        for stream_id in list(version.streams):
            busy |= self.backfill(stream_id)
        for stream_id in list(version.streams):
            busy |= self._expire(stream_id)
            busy |= self._merge(stream_id)
        self._log.collect()
        waiting = self._inbox.pending()
        self._inbox.collect((waiting[0].number if waiting else self._inbox.last_number() + 1) - 1)
        return busy

    # -- backfill ------------------------------------------------------------------------------

    def backfill(self, stream_id: int) -> bool:
        """Match kept segments against the slots they lack."""
        with self._log.pin() as version:
            slots = version.slots(stream_id)
            if not slots:
                return False
            greatest = slots[-1].slot
            lacking: dict[int, list[SegmentRef]] = defaultdict(list)
            for segment in version.segments(stream_id):
                covered = covered_upto(version, segment.id)
                if covered <= greatest:
                    lacking[covered].append(segment)
            for low, segments in lacking.items():
                self._backfill(version, stream_id, low, segments)
            return bool(lacking)

    def _backfill(
        self, version: Version, stream_id: int, low: int, segments: list[SegmentRef]
    ) -> None:
        stem, upto, files = self._stems.part(version, stream_id, low)
        if stem is None:
            return
        jobs = [
            tasks.BackfillJob(
                str(self._store),
                stream_id,
                tuple((s.id, s.path, s.checksum) for s in share),
                str(stem),
                low,
                upto,
            )
            for share in shares(segments, self._parallelism)
        ]
        done = [item for items in self._runtime.run(tasks.backfill, jobs) for item in items]
        self._log.commit(
            EpochChange(
                kind="backfill",
                matches=[match_ref(d.segment_id, d.low, d.upto, d.file) for d in done],
            )
        )
        shutil.rmtree(files[0].parent, ignore_errors=True)
        for item in done:
            self.suspend_failed(stream_id, item.failed)

    def suspend_failed(self, stream_id: int, failed: dict[int, str]) -> None:
        """A predicate that cannot be evaluated suspends its queries, and no others."""
        if not failed:
            return
        version = self._log.version
        for query in list(version.queries.values()):
            for leaf in version.leaves(query.id):
                if leaf.stream_id == stream_id and leaf.slot in failed:
                    reason = f"Its predicate could not be evaluated: {failed[leaf.slot]}"
                    self._registrar.suspend(query, reason)

    # -- merging and expiry --------------------------------------------------------------------

    def _merge(self, stream_id: int) -> bool:
        with self._log.pin() as version:
            segments = version.segments(stream_id)
            slots = len(version.slots(stream_id))
            plans = plan_merges(segments, max_rows=tasks.segment_rows(slots))
            if not plans:
                return False
            stem, upto, _ = self._stems.snapshot(version, stream_id)
            jobs = [
                tasks.MergeJob(
                    str(self._store),
                    stream_id,
                    max(s.level for s in plan) + 1,
                    tuple((s.id, s.path, s.checksum, s.seq_runs) for s in plan),
                    stem,
                    upto,
                )
                for plan in plans
            ]
            merged = self._runtime.run(tasks.merge, jobs)
            for plan, item in zip(plans, merged, strict=True):
                self._replace(plan, item)
            return True

    def _replace(self, plan: tuple[SegmentRef, ...], item: tasks.Merged) -> None:
        built = item.built
        segment = segment_ref(built, ((0, 0),), level=item.level, epoch=max(s.epoch for s in plan))
        matches = []
        if built.matches is not None:
            matches.append(match_ref(new_segment_id(0), 0, built.upto, built.matches))
        try:
            self._log.commit(
                EpochChange(
                    kind="merge", segments=[segment], matches=matches, replaced=item.replaced
                )
            )
        except StaleChange:  # the stream was dropped, or the segments expired meanwhile
            return

    def _expire(self, stream_id: int) -> bool:
        version = self._log.version
        stream = version.streams.get(stream_id)
        if stream is None or (stream.retain is None and stream.retain_rows is None):
            return False
        clock = version.clock(stream_id)
        if clock.high is None:
            return False
        needed = self._needed_from(version, stream, clock.high)
        if needed == BEGINNING:
            return False
        keep_from = needed if stream.retain is None else min(needed, clock.high - stream.retain)
        segments = version.segments(stream_id)
        due = expiry(segments, clock.kept_from, keep_from, stream.retain_rows)
        if not due.segment_ids:
            return False

        def change(now: Version) -> EpochChange:
            after = replace(now.clock(stream_id), kept_from=due.kept_from)
            return EpochChange(kind="expire", expired=due.segment_ids, clocks={stream_id: after})

        self._log.commit(change)
        return True

    def _needed_from(self, version: Version, stream: StreamDef, high: int) -> int:
        """The instant from which registered windows need the stream; BEGINNING for everything."""
        needed = high + 1
        for query in version.queries.values():
            if not any(x.stream_id == stream.id for x in version.leaves(query.id)):
                continue
            needed = min(needed, self._query_needs(version, query, stream, high))
            if needed == BEGINNING:
                return BEGINNING
        return needed

    def _query_needs(self, version: Version, query: QueryDef, stream: StreamDef, high: int) -> int:
        needed = high + 1
        for leaf in self._registrar.bind(query.text).streams:
            if leaf.stream.lower() != stream.name.lower():
                continue
            match leaf.window:
                case Range(size, slide):
                    needed = min(needed, high - size - (slide or 0))
                case Now():
                    pass
                case Period(begin, _):
                    needed = min(needed, begin.at(high))
                case _:
                    return BEGINNING
        return needed


def covered_upto(version: Version, segment_id: int) -> int:
    """The first slot a segment has not been matched against."""
    covered = 0
    for ref in version.matches(segment_id):
        if ref.low > covered:
            break
        covered = max(covered, ref.upto)
    return covered


def shares(segments: list[SegmentRef], count: int) -> list[list[SegmentRef]]:
    """Segments dealt out so that each share has about as many rows."""
    dealt: list[list[SegmentRef]] = [[] for _ in range(min(count, len(segments)))]
    rows = [0] * len(dealt)
    for segment in sorted(segments, key=lambda s: s.rows, reverse=True):
        least = rows.index(min(rows))
        dealt[least].append(segment)
        rows[least] += segment.rows
    return dealt
