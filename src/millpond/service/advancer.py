"""The advancer: derivations are brought as far as they can come while data flow.

One thread, woken by every commit, and by the clock where time alone brings changes: on system
time, for idle streams, and when an expiration is due. A round finds the derivations that something
is new for, deals them out in groups that are at one position over the same streams, has the runtime
advance the groups, and commits what they gained with their new positions: one epoch a round,
whatever the number of derivations. Derived streams of derived streams come a round later each.

INV-ADVANCER-1: a derivation's position moves only in the epoch that holds its changes up to there.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time as clock_time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.errors import MillpondError
from millpond.runtime import advance as tasks
from millpond.runtime.advance import Advanced, AdvanceJob
from millpond.runtime.protocol import Runtime
from millpond.runtime.tasks import Built
from millpond.service.derivations import Derivation, Derivations
from millpond.service.promises import Moment, Promises
from millpond.service.relations import Relations
from millpond.service.sequencer import match_ref, segment_ref
from millpond.service.stems import QueryStems
from millpond.state.epoch_change import EpochChange, StaleChange, new_segment_id
from millpond.state.epoch_log import EpochLog
from millpond.state.version import DATA, REJECTS, SegmentRef, StreamClock, Version

log = logging.getLogger("millpond.advancer")

#: Elements a round feeds a group at most, about: it bounds the memory of a task.
_STEP_ROWS = 500_000
#: Derivations of one group: more of them share more, fewer of them use more workers.
_GROUP = 256
#: How long changes that come by the clock alone may wait.
_TICK_SECONDS = 0.2
_RETRY_SECONDS = 15.0


@dataclass(frozen=True, eq=False)
class _Due:
    """A derivation that is to be advanced, from where to where."""

    derivation: Derivation
    clock: StreamClock
    upto: int


class Advancer:
    """Advances derivations; one thread of its own, its methods safe to call from any."""

    def __init__(
        self,
        store: Path,
        epochs: EpochLog,
        derivations: Derivations,
        relations: Relations,
        promises: Promises,
        stems: QueryStems,
        runtime: Runtime,
    ) -> None:
        self._store = store
        self._log = epochs
        self._derivations = derivations
        self._relations = relations
        self._promises = promises
        self._stems = stems
        self._runtime = runtime
        self._life = uuid.uuid4().hex
        self._wake = threading.Event()
        self._moved = threading.Condition()
        self._asked = 0
        self._done = 0
        self._stopping = False
        #: Why the last round failed, which is nobody's query's fault; it is tried again.
        self._failure: Exception | None = None
        #: Per derivation how far it is known that there is nothing new.
        self._reached: dict[int, int] = {}
        #: Derived streams that cannot be advanced, and why. Tried again when the pond is opened.
        self.troubles: dict[int, MillpondError] = {}
        self.on_commit: Callable[[Version, Sequence[Built]], None] = lambda version, built: None
        self.on_failure: Callable[[StreamDef, MillpondError], None] = lambda stream, error: None
        self._listeners: set[Callable[[], None]] = set()
        self._round = threading.RLock()
        self._thread: threading.Thread | None = None

    # -- the thread ----------------------------------------------------------------------------

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name="advancer", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Something was committed or registered; look soon."""
        with self._moved:
            self._asked += 1
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=30)
        self._tell()

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        """Have `heard` called, from any thread, whenever changes were committed; gives its end."""
        self._listeners.add(heard)
        return lambda: self._listeners.discard(heard)

    def _tell(self) -> None:
        with self._moved:
            self._moved.notify_all()
        for heard in list(self._listeners):
            heard()

    def _loop(self) -> None:
        while not self._stopping:
            self._wake.wait(_RETRY_SECONDS if self._failure else self._patience())
            self._wake.clear()
            with self._moved:
                asked = self._asked
            if self._stopping:
                return
            try:
                while not self._stopping and self.step():
                    pass
                self._failure = None
            except Exception as error:
                self._failure = error
                if not self._stopping:
                    log.warning("advancing failed and will be tried again: %s", error)
            with self._moved:
                self._done = max(self._done, asked)
            self._tell()

    def _patience(self) -> float | None:
        """How long nothing can become due if nothing is committed; None for ever."""
        version = self._log.version
        for stream in self._derivations.all(version):
            if self._is_on_the_clock(version, stream):
                return _TICK_SECONDS
        return None

    def _is_on_the_clock(self, version: Version, stream: StreamDef) -> bool:
        """Whether the passing of time may make something final that brings changes."""
        if self._idles(version, stream) or stream.id in self.troubles:
            return False
        try:
            derivation = self._derivations.of(version, stream)
        except MillpondError:
            return False
        named = not stream.is_change_log
        if not named and not derivation.moves_by_itself:
            return False
        sources = [version.streams[i] for i in derivation.streams if i in version.streams]
        return any(
            s.derived is None and (s.timestamp_by is None or s.idle_after is not None)
            for s in sources
        )

    # -- waiting -------------------------------------------------------------------------------

    def catch_up(self, streams: Iterable[StreamDef], timeout: float | None = None) -> bool:
        """Wait until these derivations, and those they read, are as far as they can be now.

        Raises:
            MillpondError: STORE-603 when what they gained cannot be written.
        """
        version = self._log.version
        wanted: dict[int, StreamDef] = {}
        waiting = [s for s in streams if s.derived is not None]
        while waiting:
            stream = waiting.pop()
            if stream.id in wanted or self._idles(version, stream):
                continue
            wanted[stream.id] = stream
            reads = self._derivations.of(version, stream).streams
            waiting += [s for i in reads if (s := version.streams.get(i)) is not None and s.derived]
        if not wanted:
            return True
        deadline = None if timeout is None else clock_time.monotonic() + timeout
        self.wake()
        with self._moved:
            asked = self._asked
            left = None if deadline is None else max(0.0, deadline - clock_time.monotonic())
            heard = self._moved.wait_for(lambda: self._done >= asked or self._stopping, left)
        if self._failure is not None and not self._stopping:
            raise self._failure
        return heard

    def wait(self, heard: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until `heard` is true, which is asked whenever changes were committed."""
        with self._moved:
            return self._moved.wait_for(lambda: heard() or self._stopping, timeout)

    def reached(self, version: Version, stream: StreamDef) -> int:
        """The last instant up to which all of a derivation's changes are known to be there."""
        position = version.clock(stream.id).position
        return max(position, self._reached.get(stream.id, position))

    # -- a round -------------------------------------------------------------------------------

    def step(self) -> bool:
        """Do one round; False when nothing was to be done."""
        with self._round:
            moment = self._promises.capture()
            with self._log.pin() as version:
                due: list[_Due] = []
                moved: dict[int, int] = {}
                for stream in self._derivations.all(version):
                    if self._stopping:
                        return False
                    self._look(version, moment, stream, due, moved)
                busy = bool(moved)
                if moved:
                    self._move(moved)
                if due:
                    busy |= self._advance(version, due)
                return busy

    def _idles(self, version: Version, stream: StreamDef) -> bool:
        """Whether a derivation is not to be advanced: its query is inactive or suspended."""
        assert stream.derived is not None
        if stream.derived.query_id is None:
            return stream.id in self.troubles
        query = version.queries.get(stream.derived.query_id)
        return query is None or not query.active

    def _look(
        self,
        version: Version,
        moment: Moment,
        stream: StreamDef,
        due: list[_Due],
        moved: dict[int, int],
    ) -> None:
        """Find out what is to be done for a derivation."""
        if self._idles(version, stream):
            return
        try:
            derivation = self._derivations.of(version, stream)
        except MillpondError as error:
            self._blame(stream, error)
            return
        clock = version.clock(stream.id)
        upto = self._derivations.target(version, moment, derivation)
        if upto <= self.reached(version, stream):
            return
        if self._is_touched(version, derivation, clock, upto):
            due.append(_Due(derivation, clock, self._step_end(version, derivation, clock, upto)))
        elif stream.is_change_log:
            self._reached[stream.id] = upto
        else:
            moved[stream.id] = upto

    def _is_touched(
        self, version: Version, derivation: Derivation, clock: StreamClock, upto: int
    ) -> bool:
        """Whether anything may change in the instants after the position up to `upto`."""
        if derivation.moves_by_itself:
            return True
        if self._derivations.is_corrected(version, derivation):
            return True
        for relation_id in derivation.relations:
            held = self._relations.held(version, version.relations[relation_id])
            if held.changes_within(clock.position, upto):
                return True
        return any(
            segment.max_ts > clock.position and segment.min_ts <= upto
            for _, segments in self._sources(version, derivation)
            for segment in segments
        )

    def _sources(
        self, version: Version, derivation: Derivation
    ) -> Iterable[tuple[str, tuple[SegmentRef, ...]]]:
        """The streams a derivation reads, by name, with their segments."""
        for name in derivation.plan.needs:
            found = version.find(name)
            if isinstance(found, StreamDef):
                kind = REJECTS if found.rejects_of else DATA
                yield name, version.segments(found.id, kind)

    def _step_end(
        self, version: Version, derivation: Derivation, clock: StreamClock, upto: int
    ) -> int:
        """Where this round's step ends: at the target, or earlier if there is much to read."""
        ahead = sorted(
            (s.max_ts, s.rows)
            for _, segments in self._sources(version, derivation)
            for s in segments
            if s.max_ts > clock.position and s.min_ts <= upto
        )
        rows = 0
        for max_ts, count in ahead:
            rows += count
            if rows >= _STEP_ROWS:
                return min(upto, max_ts)
        return upto

    def _move(self, moved: dict[int, int]) -> None:
        """Derived streams nothing is new for: their heartbeats go on."""

        def change(now: Version) -> EpochChange:
            clocks = {
                id: replace(now.clock(id), heartbeat=max(now.clock(id).heartbeat, upto + 1))
                for id, upto in moved.items()
                if id in now.streams
            }
            return EpochChange(kind="heartbeat", clocks=clocks)

        self._log.commit(change)

    def _advance(self, version: Version, due: list[_Due]) -> bool:
        groups = self._grouped(due)
        with ExitStack() as kept:
            jobs = []
            for members in groups:
                sinks = tuple(self._sink(version, item.derivation, kept) for item in members)
                jobs.append(self._job(version, members, sinks))
            done = self._runtime.run(tasks.advance, jobs)
        gained = list(zip(groups, jobs, done, strict=True))
        self._commit(gained)
        for members, _, result in gained:
            for item in members:
                if item.derivation.id in result.failures:
                    self._blame(item.derivation.stream, result.failures[item.derivation.id])
        return True

    def _grouped(self, due: list[_Due]) -> list[list[_Due]]:
        """Derivations at one position over the same inputs, which one dataflow can advance."""
        groups: defaultdict[tuple[object, ...], list[_Due]] = defaultdict(list)
        for item in due:
            reads = (item.derivation.streams, item.derivation.relations)
            where = (item.clock.position, item.clock.relations_epoch, item.upto)
            groups[(*reads, *where)].append(item)
        return [
            members[start : start + _GROUP]
            for members in groups.values()
            for start in range(0, len(members), _GROUP)
        ]

    def _sink(self, version: Version, derivation: Derivation, kept: ExitStack) -> tasks.Sink:
        stream = derivation.stream
        if stream.is_change_log:
            return tasks.Sink(stream.id, derivation.plan, None)
        stem, upto, slots = self._stems.snapshot(version, stream.id)
        kept.enter_context(self._stems.kept(stem))
        order = self._stems.order(stream.id)
        columns = stream.schema.to_arrow()
        return tasks.Sink(stream.id, derivation.plan, columns, stem, upto, slots, order)

    def _job(
        self, version: Version, members: list[_Due], sinks: tuple[tasks.Sink, ...]
    ) -> AdvanceJob:
        first = members[0]
        position = first.clock.position
        since: dict[str, int | None] = {}
        for item in members:
            for name, at in item.derivation.plan.reach(position).items():
                before = since.get(name, at)
                since[name] = None if at is None or before is None else min(at, before)
        streams: dict[str, tuple[tasks.SegmentFile, ...]] = {}
        relations: dict[str, tasks.RelationInput] = {}
        for item in members:
            for name, segments in self._sources(version, item.derivation):
                low = since.get(name, position + 1)
                streams[name] = tuple(
                    tasks.SegmentFile(s.path, s.checksum, s.seq_runs, s.min_ts, s.max_ts)
                    for s in segments
                    if s.min_ts <= first.upto
                    and (low is None or s.max_ts >= min(low, position + 1))
                )
            for name in item.derivation.plan.relations:
                found = version.find(name)
                assert isinstance(found, RelationDef)
                relations[name] = self._relation(version, found)
        # The group's name says what it reads, so that who joins it finds the dataflow there.
        reads = (sorted(first.derivation.streams), sorted(first.derivation.relations))
        label = hashlib.blake2b(repr((reads, _part(sinks))).encode(), digest_size=8)
        return AdvanceJob(
            str(self._store),
            self._life,
            label.hexdigest(),
            position,
            first.clock.relations_epoch,
            first.upto,
            version.epoch,
            since,
            streams,
            relations,
            sinks,
        )

    def _relation(self, version: Version, relation: RelationDef) -> tasks.RelationInput:
        deltas = version.relation_deltas(relation.id)
        files = tuple(tasks.RelationFile(d.path, d.checksum, d.epoch) for d in deltas)
        return tasks.RelationInput(relation.schema.to_arrow(), files)

    def _blame(self, stream: StreamDef, error: MillpondError) -> None:
        if stream.derived is not None and stream.derived.query_id is None:
            self.troubles[stream.id] = error
        self.on_failure(stream, error)

    def _commit(self, gained: list[tuple[list[_Due], AdvanceJob, Advanced]]) -> None:
        built = [b for _, _, result in gained for b in result.built]

        def change(now: Version) -> EpochChange:
            segments: list[SegmentRef] = []
            matches = []
            clocks: dict[int, StreamClock] = {}
            for members, job, result in gained:
                for item in members:
                    id = item.derivation.id
                    if id in result.failures or id not in now.streams:
                        continue
                    if now.clock(id).position == job.position:
                        clocks[id] = replace(
                            now.clock(id), heartbeat=job.upto + 1, relations_epoch=job.now
                        )
                for piece in result.built:
                    clock = clocks.get(piece.stream_id)
                    if clock is None:
                        continue  # dropped meanwhile
                    if piece.matches is not None:
                        owner = new_segment_id(len(segments))
                        matches.append(match_ref(owner, 0, piece.upto, piece.matches))
                    segments.append(segment_ref(piece, ((0, clock.next_seq),)))
                    clocks[piece.stream_id] = replace(
                        clock,
                        high=max(piece.max_ts, clock.high or piece.max_ts),
                        next_seq=clock.next_seq + piece.file.rows,
                    )
            return EpochChange(kind="advance", segments=segments, matches=matches, clocks=clocks)

        try:
            after = self._log.commit(change)
        except (StaleChange, MillpondError):
            for piece in built:
                for file in (piece.file, piece.matches):
                    if file is not None:
                        file.path.unlink(missing_ok=True)
            raise
        self.on_commit(after, built)
        self._tell()


def _part(sinks: Sequence[tasks.Sink]) -> int:
    """Which part of a large group this is: groups are cut where numbers of streams are full."""
    return sinks[0].stream_id if len(sinks) == _GROUP else 0
