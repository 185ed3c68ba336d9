"""The advancer: computes the changes of derivations while data arrive.

It is one thread. Every commit wakes it, and so does the clock where time alone brings changes: on
system time, for idle streams, and when an expiration is due. In a round the advancer finds the
derivations that have something new, groups those at one position over the same streams, has the
runtime advance the groups, and commits their changes and new positions: one epoch a round,
whatever the number of derivations. A derived stream over a derived stream comes one round later.

Changes that time alone brings may wait (eager expiration intervals, Update patterns 2.3.2): the
advancer advances a query for them when the first of them is due by its interval, and sooner if
something else is new or a client asks for all changes. The derivations that share the query's
dataflow are advanced with it, because a dataflow is at one instant.

INV-ADVANCER-1: a derivation's position moves only in the epoch that holds its changes up to there.
"""

from __future__ import annotations

import logging
import threading
import time as clock_time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, LAST
from millpond.runtime import advance_task
from millpond.runtime.advance_job import AdvanceJob, AdvanceResult
from millpond.runtime.batch_tasks import BuiltSegment
from millpond.runtime.protocol import Runtime
from millpond.runtime.shards import advance_shard
from millpond.runtime.shards.advance_shard import ShardResult
from millpond.service.answers.leaf_scan import Files
from millpond.service.background import WokenThread
from millpond.service.changes.advance_change import (
    Gained,
    list_switches,
    make_change,
)
from millpond.service.changes.advance_jobs import AdvanceJobs, Runnable, find_memory
from millpond.service.changes.dataflow_accounts import DataflowAccounts
from millpond.service.changes.derivation import Derivation
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.giving_way.memory_ladder import MemoryLadder, is_beyond_limit
from millpond.service.changes.noticing.sharded_groups import ShardedGroups
from millpond.service.changes.progress import RunningStep, count_behind, list_steps
from millpond.service.changes.retry import Retries
from millpond.service.changes.schedule import HEARTBEAT_SECONDS, Schedule
from millpond.service.changes.shared_logs import find_joinable, join_shared_logs
from millpond.service.events import EpochTimes, Events
from millpond.service.ingest.actions import Actions
from millpond.service.ingest.floors import FloorsInFlight
from millpond.service.ingest.relations import Relations
from millpond.service.queries.query_stems import QueryStems
from millpond.state.epoch.epoch_change import EpochChange, StaleChange
from millpond.state.epoch_log import EpochLog
from millpond.state.version import Version
from millpond.work import wait_for

log = logging.getLogger("millpond.advancer")

_RETRY_SECONDS = 15.0
#: In how many processes a dataflow is made that is about to run, at most.
_PREPARED = 4


class Advancer(WokenThread):
    """Advances derivations in a thread of its own; its methods are safe to call from any thread."""

    def __init__(
        self,
        store: Path,
        epochs: EpochLog,
        derivations: Derivations,
        relations: Relations,
        floors: FloorsInFlight,
        stems: QueryStems,
        files: Files,
        runtime: Runtime,
        events: Events,
        defers: Callable[[QueryDef], bool],
        actions: Actions,
    ) -> None:
        super().__init__("advancer")
        self._log = epochs
        self._derivations = derivations
        self._relations = relations
        self._floors = floors
        self._runtime = runtime
        self._actions = actions
        self._events = events
        self._files = files
        #: By derivation, the step that runs now.
        self.running: Mapping[int, RunningStep] = {}
        #: What operators did, keep and released.
        self.accounts = DataflowAccounts()
        #: By node key, the memory that somebody set for an operator: as text, and in bytes.
        self.operator_memory: dict[str, tuple[str, int]] = {}
        self._jobs = AdvanceJobs(
            store,
            stems,
            self.accounts,
            self.operator_memory,
            lambda: runtime.workers,
            derivations.constraints_of,
        )
        #: The last ask after which a round was done.
        self._stepped = 0
        #: Derivations of which somebody wants everything that is final, by when that was asked.
        self._wanted: dict[int, int] = {}
        #: Why the last round failed, which is nobody's query's fault; it is tried again.
        self._failure: Exception | None = None
        self._moved_at = 0.0
        #: The groups that several workers advance together.
        self.sharded = ShardedGroups(lambda: runtime.workers)
        #: What gives way when state grows.
        self.ladder = MemoryLadder(actions, self.accounts, find_memory)
        #: Derived streams and change logs that cannot be advanced, and why.
        self.retries = Retries()
        #: Derivations whose changes have not begun, because their answer could not be computed at
        #: any instant since they are followed, and why.
        self.waiting: dict[int, MillpondError] = {}
        self._schedule = Schedule(
            files, derivations, relations, self.retries, self._record_failure, defers
        )
        #: Held in each round, and by who changes what derivations were made of.
        self.round = threading.RLock()

    # -- the thread ----------------------------------------------------------------------------

    def _notify(self) -> None:
        super()._notify()
        self._events.advancer_progressed()

    def _loop(self) -> None:
        while not self.stopping:
            try:
                seconds = self._wait_seconds()
            except Exception as error:  # nobody would start the thread again
                self._failure, seconds = error, _RETRY_SECONDS
            called = self._wake.wait(seconds)
            self._wake.clear()
            with self._progress:
                asked, wanted = self._asked, frozenset(self._wanted)
            if self.stopping:
                return
            is_over = True
            try:
                # One clock reading for all rounds: each would find a later one, and never end.
                now = self._floors.capture().now
                while not self.stopping and self.step(now, called, wanted):
                    with self._progress:
                        self._stepped, self._failure = asked, None
                        self._progress.notify_all()
                    if self._asked > asked:  # who asked since wants more than that reading allows
                        is_over = False
                        break
                self._failure = None
            except Exception as error:
                self._failure = error
                if not self.stopping:
                    log.warning("advancing failed and will be tried again: %s", error)
            if is_over:
                with self._progress:
                    self._done = max(self._done, asked)
                    self._wanted = {id: n for id, n in self._wanted.items() if n > asked}
            self._notify()

    def _wait_seconds(self) -> float | None:
        if self._failure is not None:
            return _RETRY_SECONDS
        reading = self._floors.capture()
        return self._schedule.wait_seconds(self._log.version, reading)

    # -- waiting -------------------------------------------------------------------------------

    def catch_up(
        self,
        streams: Iterable[StreamDef],
        timeout: float | None = None,
        *,
        expired: bool = False,
    ) -> bool:
        """Wait until these derivations, and those they read, are as far as they can be now.

        What comes meanwhile is not waited for: while elements come all the time, there is always
        more to do.

        Args:
            streams: Their change logs, or the derived streams themselves.
            timeout: How long at most, in seconds; False if that was not enough.
            expired: Whether to compute also the changes that time alone brings, without waiting.

        Raises:
            MillpondError: STORE-603 when their changes cannot be written.
        """
        version = self._log.version
        wanted: dict[int, Derivation] = {}
        waiting = [s for s in streams if s.derived is not None]
        while waiting:
            stream = version.maker(waiting.pop())
            if stream.id in wanted or self._schedule.is_idle(version, stream):
                continue
            derivation = self._schedule.find_derivation(version, stream)
            if derivation is None:
                continue
            wanted[stream.id] = derivation
            reads = derivation.streams
            waiting += [s for i in reads if (s := version.streams.get(i)) is not None and s.derived]
        if not wanted:
            return True
        goals = self._find_goals(version, wanted)
        deadline = None if timeout is None else clock_time.monotonic() + timeout
        with self._progress:
            self._asked += 1
            asked = self._asked
            if expired:
                self._wanted.update(dict.fromkeys(wanted, asked))
        self._wake.set()
        with self._progress:
            left = None if deadline is None else max(0.0, deadline - clock_time.monotonic())
            is_over = wait_for(
                self._progress,
                lambda: (
                    self._done >= asked
                    or self.stopping
                    or (self._stepped >= asked and self._have_reached(wanted, goals))
                ),
                left,
            )
        cause, failure = self._failure, self.failure
        if failure is not None and not self.stopping:
            raise failure from (None if failure is cause else cause)
        return is_over

    def _find_goals(self, version: Version, wanted: Mapping[int, Derivation]) -> Mapping[int, int]:
        """Up to which instant derivations, and those they read, can come as it is now."""
        reading, goals = self._floors.capture(), dict[int, int]()

        def find(derivation: Derivation) -> int:
            if (known := goals.get(derivation.id)) is None:
                below = [wanted.get(version.maker(s).id) for s in read_by(derivation)]
                own = self._derivations.target(version, reading, derivation)
                known = min(map(find, filter(None, below)), default=own)
                goals[derivation.id] = known
            return known

        def read_by(derivation: Derivation) -> list[StreamDef]:
            found = (version.streams.get(id) for id in derivation.streams)
            return [s for s in found if s is not None and s.derived is not None]

        for derivation in wanted.values():
            find(derivation)
        return goals

    def _have_reached(self, wanted: Mapping[int, Derivation], goals: Mapping[int, int]) -> bool:
        version = self._log.version
        return all(
            self.complete_upto(version, stream) >= goals[id]
            and not self._derivations.is_corrected(version, derivation)
            for id, derivation in wanted.items()
            if (stream := version.streams.get(id)) is not None
        )

    def wait(self, is_over: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until `is_over` is true; it is called after every round of the advancer."""
        with self._progress:
            return wait_for(self._progress, lambda: is_over() or self.stopping, timeout)

    @property
    def failure(self) -> MillpondError | None:
        """Why the last round failed, for all followers; it is tried again by itself."""
        error = self._failure
        if error is None or isinstance(error, MillpondError):
            return error
        detail = f"{type(error).__name__}: {str(error).split(chr(10), 1)[0]}"
        return MillpondError(
            "INTERNAL-901", "changes could not be made; it is tried again", detail=detail
        )

    def trouble(self, stream: StreamDef) -> MillpondError | None:
        """Why the changes of a derivation cannot be computed now; None if they can."""
        return self.retries.get(self._log.version.maker(stream).id)

    def retry(self, stream: StreamDef) -> None:
        """Retry a stopped derived stream now."""
        self.retries.retry(stream.id)
        self.wake()

    def retry_suspended(self) -> None:
        """Retry now what was suspended because of `state_limit`."""
        for id, error in self.retries.list_errors().items():
            if is_beyond_limit(error):
                self.retries.clear(id)
        self.wake()

    def begin_again(self, stream_ids: Iterable[int]) -> None:
        """Forget how far derivations had come: their clocks were set back; `round` is held."""
        for id in stream_ids:
            self.retries.clear(id)
            self._schedule.forget(id)
        self._jobs.forget_dataflows()
        self.wake()
        self._notify()

    def begin_anew(self, stream_id: int) -> None:
        """Forget what is known of a derivation whose query became another; `round` is held."""
        self.retries.clear(stream_id)
        self._schedule.forget(stream_id)
        self.wake()
        self._notify()

    def find_blocker(self, version: Version, stream: StreamDef) -> StreamDef | None:
        """A stopped stream a derivation waits for, however far below it; None if there is none."""
        waiting, seen = [stream], {stream.id}
        while waiting:
            current = waiting.pop()
            if current.derived is None:
                continue
            derivation = self._derivations.find_of(version, current)
            if derivation is None:
                self._schedule.find_derivation(version, current)  # which notes why
            if current is not stream and self.retries.get(current.id) is not None:
                return current
            for id in derivation.streams - seen if derivation is not None else ():
                if (below := version.streams.get(id)) is not None:
                    waiting.append(below)
                    seen.add(id)
        return None

    def find_gap(self, version: Version, stream: StreamDef, at: int) -> MillpondError | None:
        """POND-406 if a stream lacks elements up to `at` because it, or one below it, stopped."""
        if self.complete_upto(version, stream) >= at:
            return None
        blocker = self.find_blocker(version, stream)
        stopped = stream if self.retries.get(stream.id) else blocker
        trouble = self._failure if stopped is None else self.retries.get(stopped.id)
        if not isinstance(trouble, MillpondError):
            return None
        if stopped is None and not self._is_behind(version, stream):
            return None
        return MillpondError(
            "POND-406",
            f'stream "{(stopped or stream).name}" has stopped',
            detail=f"{trouble.code}: {trouble.primary}. {trouble.detail or ''}".strip(),
            hint="It is tried again by itself, and at once by ALTER STREAM "
            f"{(stopped or stream).name} SET (active = true). Instants before that are answered.",
        )

    def _is_behind(self, version: Version, stream: StreamDef) -> bool:
        """Whether a derivation lacks instants that are final."""
        derivation = self._schedule.find_derivation(version, stream)
        if derivation is None:
            return False
        target = self._derivations.target(version, self._floors.capture(), derivation)
        return self.complete_upto(version, stream) < target

    def complete_upto(self, version: Version, stream: StreamDef) -> int:
        """The last instant up to which all of a derivation's changes are known to be committed."""
        return self._schedule.complete_upto(version, stream)

    def lag(self) -> dict[int, float]:
        """By derivation, how many seconds its changes are behind the last final instant."""
        reading, version = self._floors.capture(), self._log.version
        behind: dict[int, float] = {}
        for stream in self._derivations.list_streams(version):
            derivation = self._schedule.find_derivation(version, stream)
            if derivation is None:
                continue
            target = self._derivations.target(version, reading, derivation)
            reached = self._schedule.complete_upto(version, stream)
            # Before the first element and after the last there is no distance to speak of.
            known = reached > BEGINNING and target < LAST
            behind[stream.id] = max(0.0, (target - reached) / 1e6) if known else 0.0
        shared = {id: behind.pop(id) for id in list(behind) if version.streams[id].is_shared_log}
        for stream in version.streams.values():
            if stream.shared_log in shared:
                behind[stream.id] = shared[stream.shared_log]
        return behind

    def count_behind(self, version: Version, stream: StreamDef) -> int:
        """How many elements a derivation has still to take in; `version` is pinned."""
        derivation = self._derivations.find_of(version, stream)
        if derivation is None:
            return 0
        after = self.complete_upto(version, stream)
        target = self._derivations.target(version, self._floors.capture(), derivation)
        return count_behind(self._files, version, derivation, after, target)

    # -- a round -------------------------------------------------------------------------------

    def step(
        self, now: int | None = None, called: bool = True, wanted: Collection[int] = ()
    ) -> bool:
        """Do one round; False when nothing was to be done.

        Args:
            now: The clock reading that counts; None for a new one.
            called: Whether `wake` was called. If only time has passed, heartbeats of derivations
                without changes are published only now and then.
            wanted: Ids of derivations whose changes somebody wants up to the last final instant.
        """
        with self.round:
            reading = self._floors.capture()
            if now is not None:
                reading = replace(reading, now=now)
            with self._log.pin() as version:
                looks = self._schedule.inspect_all(version, reading, wanted, lambda: self.stopping)
                if self.stopping:
                    return False
                due, moved = self._schedule.divide(version, looks)
                sparing = clock_time.monotonic() - self._moved_at < HEARTBEAT_SECONDS
                busy = bool(moved) and (called or not sparing)
                if busy:
                    self._publish_heartbeats(moved)
                if due:
                    busy |= self._advance(version, due)
                    self._join_shared_logs(due)
                if not busy:
                    self.ladder.rest(version)
                return busy

    def prepare(self, derivations: Iterable[Derivation]) -> None:
        """Have workers make the dataflows of derivations that are about to have other plans.

        The dataflows that run go on meanwhile; what fails here, the first job with the plans makes.
        """
        with self._log.pin() as version, ExitStack() as kept:
            items = []
            for derivation in derivations:
                clock = version.clock(derivation.id)
                if derivation.id in version.streams and clock.position >= BEGINNING:
                    items.append(Runnable(derivation, clock, clock.position, clock.position))
            groups = [job for _, job in self._jobs.of(version, items, kept)]
            # It is not known which process of a machine will run the group.
            times = min(self._runtime.workers, _PREPARED)
            parts = [part for some in self.sharded.cut(groups) for part in some]
            jobs = [part for part in parts for _ in range(times)]
            self._runtime.run(advance_task.prepare, jobs, self._find_near(jobs))

    def _find_near(self, jobs: Sequence[AdvanceJob]) -> list[str]:
        """The machine of each job's group: one that has its dataflow need not make it anew."""
        return [self._runtime.prefer(job.group) for job in jobs]

    def _join_shared_logs(self, due: list[Runnable]) -> None:
        """Have shared logs of one shape that came to be at one position become one."""
        advanced = [item.derivation for item in due if item.derivation.stream.is_shared_log]
        if len(advanced) < 2:
            return
        shapes = {
            d.id: (*d.sharing_key, d.plan.written, d.plan.output, d.plan.to_stream)
            for d in advanced
        }
        for into, other in find_joinable(self._log.version, shapes):
            with suppress(StaleChange):
                self._log.commit(lambda now, a=into, b=other: join_shared_logs(now, a, b))  # type: ignore[misc]

    def _publish_heartbeats(self, moved: dict[int, int]) -> None:
        """Commit the heartbeats of derivations that have nothing new."""

        def change(now: Version) -> EpochChange:
            clocks = {
                id: replace(now.clock(id), heartbeat=max(now.clock(id).heartbeat, upto + 1))
                for id, upto in moved.items()
                if id in now.streams
            }
            return EpochChange(kind="heartbeat", clocks=clocks)

        self._log.commit(change)
        self._moved_at = clock_time.monotonic()

    def _advance(self, version: Version, due: list[Runnable]) -> bool:
        began = clock_time.time_ns()
        with ExitStack() as kept:
            groups = self._jobs.of(version, due, kept)
            self.running = list_steps(version, due)
            try:
                done = self._run([job for _, job in groups])
            finally:
                self.running = {}
        times = EpochTimes(began, clock_time.time_ns())
        results = [(*group, result) for group, result in zip(groups, done, strict=True)]
        for _, job, result in results:
            self.accounts.note(job, result)
            self.sharded.note(job, result, len(results))
        overtaken = self._commit([r for r in results if r[-1].unwritten is None], times)
        for members, job, result in results:
            if any(job is other for other in overtaken):
                continue
            for item in members:
                failure = result.failures.get(item.derivation.id)
                if failure is not None:
                    if not self._schedule.shorten_step(version, item, failure):
                        self._record_failure(item.derivation.stream, failure)
                elif result.unwritten is None:
                    self.retries.clear(item.derivation.id)
                    self._note_waiting(item.derivation.stream, result)
            if result.unwritten is not None:
                raise result.unwritten
        reading, now = self._floors.capture(), self._log.version
        is_behind = any(
            item.upto < self._derivations.target(now, reading, item.derivation) for item in due
        )
        before = self.ladder.reduced_weight
        self.ladder.look(now, self.retries.list_errors(), is_behind)
        if self.ladder.reduced_weight > before:  # reduced, they may fit
            self.retry_suspended()
        return True

    def _run(self, jobs: Sequence[AdvanceJob]) -> list[AdvanceResult]:
        """Run jobs, those of divided groups in shards, whose changes are then put together."""
        divided = self.sharded.cut(jobs)
        every = [part for parts in divided for part in parts]
        if len(every) == len(jobs):
            return self._runtime.run(advance_task.advance, jobs, self._find_near(jobs))
        done = iter(self._runtime.run(advance_shard.advance_part, every, self._find_near(every)))
        given = [[next(done) for _ in parts] for parts in divided]
        pairs = zip(jobs, given, strict=True)
        cut = [pair for pair in pairs if isinstance(pair[1][0], ShardResult)]
        together = iter(self._runtime.run(advance_shard.finish, cut))
        return [one if isinstance(one, AdvanceResult) else next(together) for one, *_ in given]

    def _note_waiting(self, stream: StreamDef, result: AdvanceResult) -> None:
        """Note whether a derivation's changes have still not begun, and log when that is new."""
        reason = result.waiting.get(stream.id)
        if reason is None:
            self.waiting.pop(stream.id, None)
            return
        if stream.id not in self.waiting:
            self._events.derivation_waits(stream, reason)
        self.waiting[stream.id] = reason

    def find_wait(self, stream: StreamDef) -> MillpondError | None:
        """Why the changes of a derivation have not begun; None if they have, or none came yet."""
        return self.waiting.get(self._log.version.maker(stream).id)

    def _record_failure(self, stream: StreamDef, error: MillpondError) -> None:
        self.retries.note(stream.id, error)
        self._events.derivation_failed(stream, error)

    def _commit(self, gained: list[Gained], times: EpochTimes) -> list[AdvanceJob]:
        """Commit what jobs gave, as one epoch.

        Returns:
            The jobs that have to be planned again.
        """
        overtaken: list[AdvanceJob] = []
        if not gained:
            return overtaken

        def change(now: Version) -> EpochChange:
            nonlocal overtaken
            made, overtaken = make_change(now, gained, self._relations)
            return made

        steps = list_switches(self._log.version, gained, self.ladder.fill)
        try:
            if steps:
                with self._actions.prepare(steps) as recorded:
                    after = self._log.commit(lambda now: recorded.add_to(change(now), now))
            else:
                after = self._log.commit(change)
        except (StaleChange, MillpondError):
            self._jobs.shared.forget()
            self._jobs.forget_dataflows()
            for _, _, result in gained:
                _discard(result)
            raise
        for _, job, result in gained:
            if not any(job is other for other in overtaken):
                self._jobs.shared.note(result.logged)
        built: list[BuiltSegment] = []
        for _, job, result in gained:
            if any(job is other for other in overtaken):
                _discard(result)
                self._jobs.forget_dataflows()
            else:
                built += result.built
        self._events.derivations_advanced(after, built, times)
        self._notify()
        return overtaken


def _discard(result: AdvanceResult) -> None:
    for piece in result.built:
        piece.discard()
