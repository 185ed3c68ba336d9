"""The components of an open store: how the parts of a pond are put together.

    sources, intake ─► sequencer ─► epoch log ─► maintenance, advancer, refresher ─► epoch log
                                       │
                  registrar ─► Query SteMs, derivations         invoker, reader ─► who asks

A part is given the parts it asks. What happens in a part it tells through the port `Events`; who
acts on it is written in `event_handlers.py`.
"""

from __future__ import annotations

import logging
import threading
import time as clock_time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.catalog.option_values import parse_memory
from millpond.catalog.options import OPTIONS
from millpond.catalog.tolerance import Reduction
from millpond.cql.tree.statements import AddColumn, AlterConstraint
from millpond.engine.scalars.residual_query import Limits, Residual
from millpond.errors import MillpondError
from millpond.model.budget import Budget
from millpond.model.time import END, now
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.explain.notes import find_notes
from millpond.runtime.protocol import Runtime
from millpond.service.answers.invocation import Invoker
from millpond.service.answers.refresher import Refresher
from millpond.service.answers.spread_scan import SpreadScans
from millpond.service.background import MOST_SECONDS
from millpond.service.backups import Backups
from millpond.service.changes.advancer import Advancer
from millpond.service.changes.change_log import ChangeReader
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.feeds.feed_parts import FeedParts
from millpond.service.changes.feeds.feeds import Feeds
from millpond.service.changes.giving_way.precision_models import PrecisionModels
from millpond.service.changes.giving_way.reducing import Decisions
from millpond.service.changes.inner_streams import InnerStreams
from millpond.service.changes.new_derivations import NewDerivations
from millpond.service.changes.noticing.plan_monitor import PlanMonitor
from millpond.service.changes.noticing.stream_statistics import StreamObserver
from millpond.service.changes.settings import ChangeSettings
from millpond.service.changes.subscriptions import Subscriptions
from millpond.service.definitions.alter_stream import StreamAlterations
from millpond.service.definitions.constraints import alter_constraints
from millpond.service.definitions.redefinition import Redefinitions
from millpond.service.definitions.replicas import Replicas
from millpond.service.definitions.reset_clock import ClockReset, ClockResets
from millpond.service.definitions.sources import Sources
from millpond.service.definitions.summaries import SummaryDefinitions
from millpond.service.event_handlers import EventHandlers, NeedsOfFollowers, ProgressListener
from millpond.service.ingest.actions import Actions
from millpond.service.ingest.batches import Batches
from millpond.service.ingest.door import Door
from millpond.service.ingest.floors import FloorsInFlight
from millpond.service.ingest.idle_time import IdleTime
from millpond.service.ingest.intake import Intake
from millpond.service.ingest.pressure import Pressure
from millpond.service.ingest.pushes import Pushes
from millpond.service.ingest.relations import Relations
from millpond.service.ingest.relaxing import Relaxing
from millpond.service.ingest.sequencer import Sequencer
from millpond.service.ingest.source_door import SourceDoor
from millpond.service.ingest.system_streams import SystemStreams
from millpond.service.inputs import Inputs
from millpond.service.maintenance.join_maintenance import JoinMaintenance
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.maintenance.maintenance import Maintenance
from millpond.service.queries.function_registry import FunctionRegistry
from millpond.service.queries.options import check_system_settings
from millpond.service.queries.prepared import PreparedQuery, stream_valued_error
from millpond.service.queries.query_directory import QueryDirectory
from millpond.service.queries.query_selection import QuerySelection
from millpond.service.queries.query_stems import QueryStems
from millpond.service.queries.registration import Registrar
from millpond.service.queries.wanted import Wanted
from millpond.service.results import Answer
from millpond.service.sinks.sinks import Sinks
from millpond.state.disk_floor import DiskRoom, measure_room
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.function_key import FunctionKey
from millpond.state.shared.shared_store import SharedStore
from millpond.state.store import Store
from millpond.state.version import Version

log = logging.getLogger("millpond.store")


class PondSettings(TypedDict, total=False):
    """How a pond is opened; what is left out has its default.

    Attributes:
        bounded: Whether file sources are finite: they are read to their end before the first
            answer or when told to (`millpond run`), instead of being watched for more.
        clock: Gives the time in microseconds since 1970 UTC.
        progress: Called while sources are read, with {"stream", "rows", "done"}.
        function_seconds: How long one call of a user-defined function may take, unless the
            function has a limit of its own.
        function_key: The file of the key that seals functions; None for the user's own.
        joins: The routing policy, the shards of SteMs, and the most pairs a join may find.
        changes: How changes are computed, unless a query's options say otherwise.
        ahead: How far ahead of the clock, in microseconds, the timestamp of an element on
            application time may be, unless its stream has a limit; END for any distance.
        ceilings: What no query's evaluation may exceed, whatever its options say; `seconds` is
            how long a statement may take too.
        shared: The shared store, or its place, that the directory is a cache of.
    """

    bounded: bool
    clock: Callable[[], int] | None
    progress: ProgressListener | None
    function_seconds: float | None
    function_key: str | Path | None
    joins: JoinSettings | None
    changes: ChangeSettings | None
    ahead: int
    ceilings: Limits | None
    shared: SharedStore | str | None


#: How long a closing pond waits for the tasks of its threads until it ends them.
_TASK_SECONDS = 1.0


class Components:
    """The parts of a pond, at work over one store.

    Attributes:
        log: The epochs, and the current version.
        floors: Floors held for rows in flight.
        stems: The Query SteMs.
        intake: Takes pushes.
        batches: Takes batches of other systems, part by part.
        pushed: Waits for pushes.
        sequencer: Plans and commits batches.
        registrar: Registers queries, prepares and binds them.
        directory: Finds queries by text, owner, tag and state.
        function_registry: Functions in Python.
        relations_state: What relations hold.
        residual: Evaluates what is not of any stream.
        invoker: Answers.
        refresher: Keeps answers current.
        maintenance: Backfills, merges, evicts; keeps shared joins.
        derivations: Queries whose changes are made.
        new_derivations: Makes a query one of them.
        advancer: Makes them.
        plan_monitor: Plans anew what makes them, when it costs otherwise than expected.
        reader: Reads them.
        feeds: Reads the changes of many queries through one cursor.
        replicas: Keeps the relations that follow tables of PostgreSQL.
        sinks: Delivers the changes of queries.
        subscriptions: Fetches, subscribes, and wakes who waits for changes.
        clock_resets: Sets the clocks of streams back.
        redefinitions: Gives queries other definitions.
        alterations: Alters streams.
        sources: What streams are read from.
        inputs: Waits for what answers wait for.
        summaries: Creates and drops summaries.
        events: What happens in the parts, and who acts on it.
        backups: Makes backups.
        definitions: Held while streams, relations and functions come and go.
        closed: Whether the pond is closed, or about to be.
    """

    def __init__(self, directory: Path, runtime: Runtime, **settings: Unpack[PondSettings]) -> None:
        """Open a store and put the parts together."""
        bounded, ahead = settings.get("bounded", False), settings.get("ahead", END)
        self.clock = settings.get("clock") or now
        self.started_at = self.clock()
        # By a clock that nobody sets: the other one may jump.
        self.opened = clock_time.monotonic()
        self.bounded = bounded
        self.runtime = runtime
        self.definitions = threading.RLock()
        self.closed = False
        self.events = EventHandlers(settings.get("progress"))
        followers = NeedsOfFollowers()
        log.info('opening the store "%s"', directory)
        self._store = Store.open(directory, self.clock, settings.get("shared"))
        self.log = self._store.log
        version = self.log.version
        log.info(
            "the store is open: %d streams, %d relations, %d queries",
            sum(not stream.is_pseudo for stream in version.named_streams()),
            len(version.relations),
            len(version.queries),
            extra={"epoch": version.epoch},
        )
        store = self._store.directory
        arrivals = [
            arrived_at
            for s in version.streams.values()
            if s.on_system_time and (arrived_at := version.clock(s.id).arrived_at) is not None
        ]
        # A test's clock stands still until the test sets it.
        seconds = clock_time.monotonic if self.clock is now else lambda: 0.0
        idle = IdleTime(self._store.read_times, self.clock(), version.streams)
        self.floors = FloorsInFlight(self.clock, max(arrivals, default=None), seconds, idle)
        self.stems = QueryStems(store)
        self.stems.load(self.log.version)
        self.registrar = Registrar(self.log, self.stems, self.clock, self.events, followers)
        self.system_streams = SystemStreams(store, self.log, self.floors, self.events)
        self.actions = Actions(self.system_streams)
        self.door = Door(self._queue_memory, self.actions, lambda: self.advancer.ladder.shortage)
        wanted = Wanted(self.registrar)
        self.pressure = Pressure(self.door, self.log, self.actions, self._find_wait)
        self.intake = Intake(
            self._store.inbox, self.log, self.floors, self.door, wanted, self.pressure, ahead
        )
        self.pushed = Pushes(self.intake, runtime)
        self.sequencer = Sequencer(
            self.log,
            self.intake,
            self.stems,
            self.floors,
            str(store),
            self.events,
            self.pressure,
            SourceDoor(self.door, wanted, self.pressure, self.actions),
            self.actions,
            ahead,
        )
        self.residual = Residual(settings.get("ceilings"))
        self.relations_state = Relations(store, self.log, self.residual, followers)
        self.directory = QueryDirectory()
        self.function_registry = FunctionRegistry(
            store,
            self.log,
            self.registrar,
            settings.get("function_seconds"),
            FunctionKey(settings.get("function_key")),
        )
        self.invoker = Invoker(
            store,
            self.log,
            self.sequencer,
            self.floors,
            self.relations_state,
            self.residual,
            self.intake,
            self.events,
            followers,
            SpreadScans(store, runtime),
            settings.get("ceilings"),
        )
        self.invoker.choose_reduction = self._choose_reduction
        self.maintenance = Maintenance(
            store,
            self.log,
            self._store.inbox,
            self.stems,
            self.registrar,
            runtime,
            self.events,
            followers,
            self.invoker.summaries,
            self.invoker.totals,
            self.actions,
            settings=settings.get("joins"),
            defers=lambda: self.pressure.deferred_weight > 0,
        )
        self.stems.routing = self.joins.settings.routing
        statistics = StreamObserver(self.invoker.files)
        self.registrar.model_precision = PrecisionModels(statistics, self.registrar.names).make
        self.derivations = Derivations(
            self.log,
            self.registrar,
            self.sequencer,
            self.relations_state,
            self.invoker.present,
            statistics,
            settings.get("changes"),
        )
        self.new_derivations = NewDerivations(self.log, self.registrar, self.derivations)
        self.relaxing = Relaxing(self.pressure, self._go_on)
        self.invoker.kept_answers.make_plan = self.derivations.plan_answer
        self.refresher = Refresher(
            self.log,
            self.registrar,
            self.invoker,
            self.floors,
            self.events,
            self.pressure.defers,
        )
        self.advancer = Advancer(
            store,
            self.log,
            self.derivations,
            self.relations_state,
            self.floors,
            self.stems,
            self.invoker.files,
            runtime,
            self.events,
            self.pressure.defers,
            self.actions,
        )
        self.plan_monitor = PlanMonitor(
            self.log, self.registrar, self.derivations, self.advancer, statistics, self.actions
        )
        self.derivations.switches.decide = Decisions(
            lambda: max(self.pressure.reduced_weight, self.advancer.ladder.reduced_weight)
        )
        self.inner_streams = InnerStreams(
            self.log, self.registrar, self.derivations, self.new_derivations, self.advancer
        )
        self.sources = Sources(
            store,
            self.log,
            runtime,
            self.sequencer,
            self.advancer,
            self.registrar,
            self.relations_state,
            self.current_instant,
            self.events,
            bounded=bounded,
        )
        self.batches = Batches(
            self._store.staged, self.intake, self.sources.find_pushed_stream, runtime.wake_inbox
        )
        self.summaries = SummaryDefinitions(self.log, self.registrar, self.invoker.summaries)
        self.reader = ChangeReader(
            store, self.log, self.derivations, self.advancer, self.events, self.invoker.losses
        )
        self.clock_resets = ClockResets(
            store,
            self.log,
            runtime,
            self.intake,
            self.sequencer,
            self.registrar,
            self.derivations,
            self.advancer,
            self.maintenance,
            self.invoker.summaries,
            self.clock,
        )
        self.redefinitions = Redefinitions(
            store,
            self.log,
            self.registrar,
            self.derivations,
            self.advancer,
            self.invoker,
            self.relations_state,
            self.floors,
        )
        self.alterations = StreamAlterations(
            self.log, self.intake, self.sequencer, self.inner_streams, self.clock
        )
        self.subscriptions = Subscriptions(
            self.log, self.registrar, self.new_derivations, self.advancer, self.reader
        )
        self.feeds = Feeds(
            FeedParts(
                self.log,
                self.directory,
                self.derivations,
                self.new_derivations,
                self.advancer,
                self.reader,
                needs=self,
            )
        )
        self.replicas = Replicas(self.log, self.relations_state, self.current_instant)
        self.inputs = Inputs(
            self.log,
            runtime,
            self.intake,
            self.pushed,
            self.pressure,
            self.sources,
            self.replicas,
            self.registrar,
            self.derivations,
            self.advancer,
            (self.maintenance, self.refresher, self.plan_monitor),
            bounded,
        )
        self.backups = Backups(store, self.clock)
        self.sinks = Sinks(self.log, self.registrar, self.feeds, self.subscriptions.listen)
        followers.connect(self.log, self.floors, self.derivations, self.advancer)
        self.events.connect(
            epochs=self.log,
            stems=self.stems,
            registrar=self.registrar,
            maintenance=self.maintenance,
            advancer=self.advancer,
            new_derivations=self.new_derivations,
            subscriptions=self.subscriptions,
            refresher=self.refresher,
            plan_monitor=self.plan_monitor,
            files=self.invoker.files,
            pressure=self.pressure,
            relaxing=self.relaxing,
        )
        self._note_damage()
        self.registrar.resume_bound()
        self.function_registry.hold_untrusted()

    def _choose_reduction(self, query: PreparedQuery) -> Reduction:
        """How far a query is reduced now, within what it tolerates."""
        return query.tolerance.least if self.pressure.reduces(query.weight) else query.reduction

    def _find_wait(self) -> float:
        """For how many seconds the oldest push waits for its epoch."""
        arrived_at = self.intake.find_oldest_arrival()
        return 0.0 if arrived_at is None else max(0.0, (self.clock() - arrived_at) / 1e6)

    def _queue_memory(self) -> int:
        """How many bytes of pushes may wait, as ALTER SYSTEM says."""
        given = self.log.version.settings.get("queue_memory", OPTIONS["queue_memory"].default)
        return parse_memory(given)

    def _go_on(self) -> None:
        """Have done what was deferred."""
        self.maintenance.wake()
        self.advancer.wake()
        self.refresher.wake()

    def alter_system(self, settings: Mapping[str, Any], statement: str | None = None) -> None:
        """Set settings of the pond, durably. Raises CQL-214."""
        checked = check_system_settings(settings, statement)

        def change(version: Version) -> EpochChange:
            return EpochChange(kind="system", settings={**version.settings, **checked})

        self.log.commit(change)
        if "state_limit" in checked:
            self.advancer.retry_suspended()
        if "query_memory" in checked:
            self.maintenance.wake()
        # What gives way may have more room now.
        self.relaxing.wake()
        self.advancer.wake()

    def alter_stream(
        self, stream: StreamDef, options: Mapping[str, Any], statement: str | None = None
    ) -> StreamDef:
        """Set clauses and options of a stream that is not derived.

        Raises:
            MillpondError: as `StreamAlterations.alter`.
        """
        self.runtime.wake_inbox()
        with self.definitions:
            altered = self.alterations.alter(stream, options, statement)
        self.events.definitions_changed()
        return altered

    @property
    def store_directory(self) -> Path:
        """The directory of the store's files."""
        return self._store.directory

    def alter_constraints(self, statement: AlterConstraint, stream: StreamDef) -> StreamDef:
        """Add a constraint to a stream, or drop one. Raises as `alter_constraints`."""
        with self.definitions:
            altered = alter_constraints(statement, stream, self.log.version)
            self.log.commit(EpochChange(kind="alter", replace=[altered]))
        self.derivations.plan_anew(stream.id)
        return altered

    def add_column(self, statement: AddColumn, stream: StreamDef) -> StreamDef:
        """Add a column to a stream. Raises as `StreamAlterations.add_column`."""
        self.runtime.wake_inbox()
        with self.definitions, self.registrar.lock:
            altered = self.alterations.add_column(statement, stream)
        self.events.definitions_changed()
        return altered

    def reset_clock(self, stream: StreamDef, to: int) -> ClockReset:
        """Set a stream's clock back; what was inserted before counts.

        Raises:
            MillpondError: as `Inputs.wait` and `ClockResets.reset`.
        """
        self.inputs.wait()
        self.runtime.wake_inbox()
        with self.definitions:
            done = self.clock_resets.reset(stream, to)
        self.events.clock_reset(stream, done.rejected)
        return done

    def describe_set_aside(self) -> dict[str, int]:
        """How much lies in the store's `set_aside` folder."""
        folders = self._store.list_set_aside()
        return {
            "files": sum(folder.files for folder in folders),
            "bytes": sum(folder.bytes for folder in folders),
        }

    def _note_damage(self) -> None:
        """Matches and summaries found torn at the start are made again; other damage is shown."""
        matches = {m.path: m for refs in self.log.version.matches_of.values() for m in refs}
        for problem in self._store.problems:
            log.warning("damage found: %s", problem.primary)
            path = problem.primary.split('"')[1]
            if path in matches:
                self.maintenance.rebuild_matches(matches[path])
            elif path.startswith("summaries/"):
                continue  # it is computed from the segments and stored again
            else:
                self.events.file_damaged(problem)

    def start(self) -> None:
        """Begin to read and to work; the store is released if that fails."""
        try:
            self.runtime.start(self.sequencer, self._store.directory)
            if not self.bounded:
                for stream in self.log.version.streams.values():
                    if stream.is_read_from_outside:
                        log.info("opening its source", extra={"stream": stream.name})
                    self.sources.open(stream)
            waiting = self.intake.list_waiting()
            if waiting:
                log.info("%d pushes wait to become visible", len(waiting))
            if waiting or not self.bounded:
                self.runtime.wake_inbox()
        except BaseException:
            self._store.close()
            raise
        self.maintenance.start()
        self.new_derivations.follow_many(
            q for q in self.log.version.queries.values() if q.options.get("follow")
        )
        self.advancer.start()
        self.refresher.start()
        self.plan_monitor.start()
        self.relaxing.start()
        self.inner_streams.drop_unread()
        self.replicas.start()
        self.sinks.start()
        self.events.definitions_changed()
        log.info(
            "the pond is open after %.1f s",
            clock_time.monotonic() - self.opened,
            extra={"epoch": self.log.version.epoch},
        )

    def check_open(self) -> None:
        """Raise POND-410 once the pond is closed."""
        if self.closed:
            raise MillpondError(
                "POND-410", "the pond is closed", hint="Open the store again with millpond.open()."
            )

    @property
    def trouble(self) -> MillpondError | None:
        """Why rows cannot be taken or shown now; None while all is well."""
        return self.failure or self.runtime.trouble or self._store.trouble

    @property
    def disk_room(self) -> DiskRoom | None:
        """How much room the store's disk has; None while the store is away."""
        try:
            return measure_room(self._store.directory)
        except OSError:
            return None

    @property
    def failure(self) -> MillpondError | None:
        """Why this pond will not work again; None while it does, or may."""
        if self._store.failure is not None:
            return self._store.failure
        for name, has_died in (
            ("advancer", self.advancer.has_died),
            ("maintenance", self.maintenance.has_died),
            ("refresher", self.refresher.has_died),
            ("plan monitor", self.plan_monitor.has_died),
            ("ladder of work", self.relaxing.has_died),
        ):
            if has_died:
                return MillpondError(
                    "INTERNAL-901",
                    f"the thread of the {name} has ended",
                    hint="Open the store again; everything acknowledged is kept.",
                )
        return self.runtime.failure

    def stop(self) -> None:
        """Stop reading and working, and release the store. What was acknowledged is kept."""
        self.closed = True
        self.floors.capture()  # up to now, rows could come
        try:
            self.backups.stop()
            self.sinks.stop()
            self.replicas.stop()
            self._stop_threads()
            self.runtime.stop()
        finally:
            self._store.close()

    def _stop_threads(self) -> None:
        """End the threads; a task that one of them waits for ends with its thread, a bit later."""
        threads = (
            self.refresher,
            self.plan_monitor,
            self.relaxing,
            self.advancer,
            self.maintenance,
        )
        for thread in threads:
            thread.end()
        began = clock_time.monotonic()
        for thread in threads:
            while not thread.has_ended(_TASK_SECONDS):
                if clock_time.monotonic() > began + MOST_SECONDS:
                    break
                # What its task has written so far is set aside when the store is opened.
                self.runtime.end_tasks()
            thread.stop(0.0)

    @property
    def joins(self) -> JoinMaintenance:
        """What keeps shared joins."""
        return self.maintenance.joins

    def set_join_settings(self, settings: JoinSettings) -> None:
        """Route tuples, and divide joins, otherwise from now on; no answer changes."""
        self.joins.settings = settings
        self.stems.routing = settings.routing
        self.maintenance.wake()

    def set_change_settings(self, settings: ChangeSettings) -> None:
        """Compute changes otherwise from now on where a query does not say; none changes."""
        self.derivations.settings = settings
        self.advancer.wake()

    def alter_queries(
        self, selection: QuerySelection, options: Mapping[str, Any], statement: str | None = None
    ) -> int:
        """Change options of the selected queries in one epoch; return how many there are."""
        with self.registrar.lock:
            found = self.directory.find(self.log.version, selection)
            self.registrar.alter_many(found, options, statement)
        return len(found)

    def drop_queries(self, selection: QuerySelection) -> int:
        """Drop the selected queries in one epoch; return how many they were."""
        with self.definitions, self.registrar.lock:
            found = self.directory.find(self.log.version, selection)
            self.registrar.unregister_many(found)
        return len(found)

    def find_notes(self, query: QueryDef, bound: BoundQuery | None) -> list[str]:
        """What is probably not meant about a query; nothing of one that does not bind."""
        if bound is None:
            return []
        version = self.log.version
        follows = bool(query.options.get("follow")) or version.change_log(query.id) is not None
        notes = find_notes(bound, version.find, follows)
        log = version.change_log(query.id)
        if log is not None and (reason := self.advancer.find_wait(log)) is not None:
            notes.append(
                "its changes have not begun: at no instant since it is followed could the answer "
                f"be computed ({reason.detail or reason.primary}); they begin with the first at "
                "which it can"
            )
        return notes

    def find_heartbeats(self, version: Version, streams: Sequence[StreamDef]) -> list[int]:
        """Find the heartbeats of streams that readers of a version may rely on now."""
        reading = self.floors.capture()
        return [self.sequencer.heartbeat(version, stream, reading) for stream in streams]

    def problems(self) -> list[MillpondError]:
        """Files of the store found corrupt or missing."""
        return list(self.events.damage.values())

    def current_instant(self) -> int:
        """The instant of a change of a relation that names none; statements before it count.

        Raises:
            MillpondError: as `Inputs.wait`.
        """
        self.pushed.wait_for_stated()
        return self.invoker.present.read()

    # -- answers -------------------------------------------------------------------------------

    def invoke(
        self,
        definition: QueryDef,
        at: int | None,
        budget: Budget | None = None,
        after: str | None = None,
    ) -> Answer:
        """R(τ) of a standing query; with a budget, the most promising part of it.

        Raises:
            MillpondError: CQL-216 for a stream-valued query; as `Invoker.invoke`.
        """
        self.check_open()
        started = clock_time.perf_counter()
        prepared = self.registrar.prepare(definition)
        if prepared.bound.to_stream is not None:
            raise stream_valued_error(prepared.bound, f"FETCH {definition.name}")
        try:
            answer = self.invoker.invoke(prepared, at, budget, after)
        except MillpondError as error:
            self.events.answer_failed(definition, error)
            raise
        self.events.query_invoked(definition, clock_time.perf_counter() - started)
        return answer

    def ask_once(self, text: str) -> Answer:
        """The answer to a query asked once, when what it reads is as far as it can be."""

        def answer() -> Answer:
            self.inputs.wait(text)
            return self.ask(text)

        return self.inner_streams.make_for(answer)

    def ask(self, text: str) -> Answer:
        """The answer to a query asked once. Raises CQL-224 where it has a budget."""
        prepared = self.registrar.prepare_once(text)
        preference = prepared.bound.preference
        if preference is not None and preference.budget is not None:
            raise MillpondError(
                "CQL-224",
                "a question asked once is answered whole",
                detail="BUDGET is of a standing query, and of INVOKE.",
                hint="Leave out BUDGET, or write CREATE QUERY q AS … and INVOKE q BUDGET '…'.",
                text=text,
            )
        return self.invoker.invoke(prepared)
