"""Who acts on what happens in a pond: the one implementation of both ports of `events.py`.

`Components` makes these two objects first, hands them to every part, and connects them when all
parts are there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from millpond.catalog.objects import QueryDef, RelationDef, StreamDef
from millpond.errors import MillpondError
from millpond.planner.bind.bound_query import BoundQuery
from millpond.runtime.batch_tasks import BuiltSegment
from millpond.service.answers.invocation_counts import InvocationCounts
from millpond.service.answers.leaf_scan import Files
from millpond.service.answers.refresher import Refresher
from millpond.service.changes.advancer import Advancer
from millpond.service.changes.backdated_updates import check_instant
from millpond.service.changes.derivation_reads import (
    find_needed_since,
    find_oldest_epoch_needed,
    find_reach_below,
    find_sources,
)
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.new_derivations import NewDerivations
from millpond.service.changes.noticing.plan_monitor import PlanMonitor
from millpond.service.changes.subscriptions import Subscriptions
from millpond.service.events import EpochTimes, Events, FollowerNeeds
from millpond.service.ingest.floors import FloorsInFlight
from millpond.service.ingest.pressure import Pressure
from millpond.service.ingest.relaxing import Relaxing
from millpond.service.maintenance.maintenance import Maintenance
from millpond.service.queries.query_stems import QueryStems
from millpond.service.queries.registration import Registrar
from millpond.state.epoch_log import EpochLog
from millpond.state.version import MatchRef, Version

log = logging.getLogger("millpond.events")

#: Told how far reading has come: {"stream", "rows", "done"}.
ProgressListener = Callable[[dict[str, Any]], None]


class Observer(Protocol):
    """Who counts what happens and acts on nothing: the metrics, and the spans of traces."""

    def count_commit(
        self, version: Version, built: Sequence[BuiltSegment], times: EpochTimes
    ) -> None:
        """Count a batch that became an epoch."""
        ...

    def count_advance(
        self, version: Version, built: Sequence[BuiltSegment], times: EpochTimes
    ) -> None:
        """Count changes that became an epoch."""
        ...

    def count_reset(self, stream: StreamDef, rejected: int) -> None:
        """Count elements that a reset of the stream's clock made rejects."""
        ...

    def count_invocation(self, query: QueryDef, seconds: float) -> None:
        """Count an answer that took so many seconds and has just been made."""
        ...


class EventHandlers(Events):
    """Tells the parts of a pond what happened in other parts.

    Attributes:
        damage: The errors of files found corrupt or missing, by the files' names.
        observers: Who counts what happens.
        invocations: How often queries were asked for their answers.
    """

    def __init__(self, progress: ProgressListener | None) -> None:
        self._progress = progress
        self.damage: dict[str, MillpondError] = {}
        self.observers: list[Observer] = []
        self.invocations = InvocationCounts()

    def connect(
        self,
        epochs: EpochLog,
        stems: QueryStems,
        registrar: Registrar,
        maintenance: Maintenance,
        advancer: Advancer,
        new_derivations: NewDerivations,
        subscriptions: Subscriptions,
        refresher: Refresher,
        plan_monitor: PlanMonitor,
        files: Files,
        pressure: Pressure,
        relaxing: Relaxing,
    ) -> None:
        """Name the parts that act on events. Called once, before any part is started."""
        self._log = epochs
        self._stems = stems
        self._registrar = registrar
        self._maintenance = maintenance
        self._advancer = advancer
        self._new_derivations = new_derivations
        self._subscriptions = subscriptions
        self._refresher = refresher
        self._plan_monitor = plan_monitor
        self._files = files
        self._pressure = pressure
        self._relaxing = relaxing
        epochs.call_after_commits(refresher.wake)

    # -- epochs --------------------------------------------------------------------------------

    def batch_committed(
        self, version: Version, built: Sequence[BuiltSegment], times: EpochTimes
    ) -> None:
        """Learn from the batch, count it, and wake those who have new elements to work on."""
        self._learn(built)
        for observer in self.observers:
            observer.count_commit(version, built, times)
        for stream_id in {item.stream_id for item in built}:
            stream = version.streams.get(stream_id)
            if stream is not None:
                self._report(stream, version.clock(stream_id).next_seq, done=False)
        self._relax()
        self._maintenance.wake()
        self._advancer.wake()

    def _relax(self) -> None:
        """Let work go on that was deferred, now that less waits."""
        try:
            self._pressure.look()
        except MillpondError as error:
            # The step stays until it can be recorded: each batch and each push tries again.
            log.warning("a step of giving way cannot be recorded: %s", error)

    def derivations_advanced(
        self, version: Version, built: Sequence[BuiltSegment], times: EpochTimes
    ) -> None:
        """Learn from the changes' segments, count them, and wake maintenance."""
        self._learn(built)
        for observer in self.observers:
            observer.count_advance(version, built, times)
        self._maintenance.wake()
        self._plan_monitor.wake()

    def _learn(self, built: Sequence[BuiltSegment]) -> None:
        """Note what filters let through and cost; suspend queries whose predicate failed."""
        for item in built:
            self._stems.observe(item.stream_id, item)
            if item.failed:
                self._maintenance.suspensions.suspend_failed(item.stream_id, item.failed)

    def advancer_progressed(self) -> None:
        """Wake the followers that wait for changes."""
        self._subscriptions.notify()

    def definitions_changed(self) -> None:
        """Wake those who work for queries and streams."""
        self._maintenance.wake()
        self._advancer.wake()

    def clock_reset(self, stream: StreamDef, rejected: int) -> None:
        """Count the rejects, and wake those who make anew what was taken back."""
        for observer in self.observers:
            observer.count_reset(stream, rejected)
        self.definitions_changed()

    def runtime_changed(self, reason: MillpondError | None) -> None:
        """Wake those whose tasks failed while there was no runtime."""
        if reason is None:
            self._maintenance.wake()
            self._advancer.wake()

    def follow_requested(self, queries: Sequence[QueryDef]) -> None:
        """Give the queries change logs, all of them in one epoch."""
        for query_id, error in self._new_derivations.follow_many(queries).items():
            log.warning("query %d cannot be followed: %s", query_id, error)

    def system_stream_grew(self) -> None:
        """Wake who follows a stream of the pond's own, merges it, or leaves what it tells of."""
        self._relaxing.wake()
        self._maintenance.wake()
        self._advancer.wake()

    def query_activated(self, changes: StreamDef) -> None:
        """Try the query's changes again at once, if they had stopped."""
        self._advancer.retries.clear(changes.id)

    def source_read(self, stream: StreamDef, rows: int) -> None:
        """Tell whoever shows progress."""
        self._report(stream, rows, done=True)

    def _report(self, stream: StreamDef, rows: int, done: bool) -> None:
        if self._progress is not None:
            self._progress({"stream": stream.name, "rows": rows, "done": done})

    # -- answers -------------------------------------------------------------------------------

    def query_invoked(self, query: QueryDef, seconds: float) -> None:
        """Give the query credit for answers computed ahead, and count the invocation."""
        self._refresher.count_invocation(query)
        self.invocations.count(query.id, seconds)
        for observer in self.observers:
            observer.count_invocation(query, seconds)

    # -- failures ------------------------------------------------------------------------------

    def answer_failed(self, query: QueryDef, error: MillpondError) -> None:
        """Suspend the query if a user-defined function it calls failed (POND-411)."""
        if error.code == "POND-411":
            self._registrar.suspend(query, f"{error.detail}")

    def derivation_failed(self, stream: StreamDef, error: MillpondError) -> None:
        """Note damage of the store. The advancer tries again later; INVOKE answers as before."""
        query = self._log.version.query_of(stream)
        log.warning(
            "%s stopped, and this is tried again: %s",
            "the stream has" if query is None else "its changes have",
            error.primary if not error.detail else f"{error.primary}. {error.detail}",
            extra={"stream": stream.name} if query is None else {"query": query.name},
        )
        if error.code == "STORE-602":
            self.file_damaged(error)

    def derivation_waits(self, stream: StreamDef, error: MillpondError) -> None:
        """Log that a query's changes cannot begin yet."""
        query = self._log.version.query_of(stream)
        log.warning(
            "its changes have not begun, because its answer cannot be computed yet: %s",
            error.detail or error.primary,
            extra={"stream": stream.name} if query is None else {"query": query.name},
        )

    def matches_torn(self, matches: MatchRef) -> None:
        """Have the matches made again."""
        self._maintenance.rebuild_matches(matches)

    def file_damaged(self, error: MillpondError) -> None:
        """Keep the error, for `Pond.status`."""
        name = error.primary.rpartition("/")[2]
        if name not in self.damage:
            log.error("%s", error.primary)
        self.damage.setdefault(name, error)

    def files_collected(self, paths: list[str]) -> None:
        """Close the files that were removed."""
        self._files.forget(paths)


class NeedsOfFollowers(FollowerNeeds):
    """Answers from derivations, which are put together after those who ask."""

    def connect(
        self,
        log: EpochLog,
        floors: FloorsInFlight,
        derivations: Derivations,
        advancer: Advancer,
    ) -> None:
        """Name what is asked. Called once, before any part is started."""
        self._log = log
        self._floors = floors
        self._derivations = derivations
        self._advancer = advancer

    def sources_of(self, version: Version, stream: StreamDef) -> Sequence[StreamDef]:
        """The streams a derived stream comes from, however far below; another stream itself."""
        return find_sources(self._derivations, version, stream)

    def reach_below(
        self, version: Version, stream: StreamDef, at: int
    ) -> Sequence[tuple[StreamDef, int | None]]:
        """The streams a derived stream reads, and how far back its elements after `at` reach."""
        return find_reach_below(self._derivations, version, stream, at)

    def read_finality(self) -> Callable[[BoundQuery], int]:
        """Read the clock and the heartbeats; return what tells a query's last final instant."""
        reading = self._floors.capture()
        version = self._log.version
        known: dict[tuple[str, ...], int] = {}

        def final(bound: BoundQuery) -> int:
            streams = tuple([leaf.stream for leaf in bound.streams])
            if streams and (found := known.get(streams)) is not None:
                return found
            known[streams] = self._derivations.final_instant(version, reading, bound)
            return known[streams]

        return final

    def needed_since(self, version: Version, stream: StreamDef) -> int:
        """The timestamp from which derivations still need a stream; END if none does."""
        return find_needed_since(self._derivations, version, stream)

    def find_gap(self, version: Version, stream: StreamDef, at: int) -> MillpondError | None:
        """POND-406 if a derived stream lacks elements because it, or one below it, has stopped."""
        return self._advancer.find_gap(version, stream, at)

    def oldest_epoch_needed_of(self, relation_id: int) -> int:
        """The oldest epoch as of which some derivation still has to read a relation."""
        return find_oldest_epoch_needed(self._derivations, self._log.version, relation_id)

    def check_instant(self, version: Version, relation: RelationDef, at: int) -> None:
        """Raise POND-413 where a non-retroactive relation must not be updated at an instant."""
        check_instant(self._derivations, version, relation, at)
