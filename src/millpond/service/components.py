"""The works: what works inside a pond, how the parts are put together, and what each tells others.

    sources, intake ─► sequencer ─► epoch log ─► maintenance, advancer, refresher ─► epoch log
                                       │
                  registrar ─► Query SteMs, derivations         invoker, reader ─► who asks

A part is given those it asks. What it has to tell goes the other way, by what it calls when
something happened (`on_commit`, `on_change`, …), so that no part knows who listens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.engine.scalars.residual_query import Residual
from millpond.errors import MillpondError
from millpond.model.time import now
from millpond.planner.bind.bound_query import BoundQuery
from millpond.runtime.batch_tasks import BuiltSegment
from millpond.runtime.protocol import Runtime
from millpond.service.answers.invocation import Invoker
from millpond.service.answers.refresher import Refresher
from millpond.service.changes.advancer import Advancer
from millpond.service.changes.backdated_updates import check_instant
from millpond.service.changes.change_log import ChangeReader
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.settings import ChangeSettings
from millpond.service.changes.stream_statistics import StreamObserver
from millpond.service.changes.subscriptions import Subscriptions
from millpond.service.definitions.sources import Sources
from millpond.service.ingest.floors import FloorsInFlight
from millpond.service.ingest.intake import Intake
from millpond.service.ingest.relations import Relations
from millpond.service.ingest.sequencer import Sequencer
from millpond.service.maintenance.join_maintenance import JoinMaintenance
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.maintenance.maintenance import Maintenance
from millpond.service.observe.control_tables import Entities
from millpond.service.observe.explain import Explainer
from millpond.service.observe.metrics import Metrics
from millpond.service.queries.function_registry import FunctionRegistry
from millpond.service.queries.query_stems import QueryStems
from millpond.service.queries.registration import Registrar
from millpond.state.store import Store
from millpond.state.version import Version

#: How long an answer waits for rows a statement inserted.
STATED_SECONDS = 60.0

ProgressListener = Callable[[dict[str, Any]], None]


class Components:
    """The parts of a pond, at work over one store.

    Attributes:
        log: The epochs, and the current version.
        promises: Floors held for rows in flight.
        stems: The Query SteMs.
        intake: Takes pushes.
        sequencer: Plans and commits batches.
        registrar: Registers queries, prepares and binds them.
        user_functions: Functions in Python.
        relations_state: What relations hold.
        residual: Evaluates what is not of any stream.
        invoker: Answers.
        refresher: Keeps answers current.
        maintenance: Backfills, merges, expires; keeps shared joins.
        derivations: Queries whose changes are made.
        advancer: Makes them.
        reader: Reads them.
        following: Fetches and subscribes.
        sources: What streams are read from.
        meters: Counts and times; what of it is for Prometheus is `metrics`.
        entities: The control tables.
    """

    def __init__(
        self,
        directory: Path,
        runtime: Runtime,
        *,
        bounded: bool = False,
        clock: Callable[[], int] | None = None,
        progress: ProgressListener | None = None,
        function_seconds: float | None = None,
        joins: JoinSettings | None = None,
        changes: ChangeSettings | None = None,
    ) -> None:
        """Open a store and put the parts together; see `Pond`."""
        self.clock = clock or now
        self.started_at = self.clock()
        self.bounded = bounded
        self.runtime = runtime
        self._progress = progress
        self._last_pushed = 0
        self._store = Store.open(directory, self.clock)
        self.log = self._store.log
        store = self._store.directory
        self.floors = FloorsInFlight(self.clock)
        self.stems = QueryStems(store)
        self.stems.load(self.log.version)
        self.intake = Intake(self._store.inbox, self.log, self.floors)
        self.sequencer = Sequencer(self.log, self.intake, self.stems, self.floors, str(store))
        self.residual = Residual()
        self.relations_state = Relations(store, self.log, self.residual)
        self.registrar = Registrar(self.log, self.stems, self.clock)
        self.function_registry = FunctionRegistry(store, self.log, self.registrar, function_seconds)
        self.invoker = Invoker(
            store, self.log, self.sequencer, self.floors, self.relations_state, self.residual
        )
        self.refresher = Refresher(self.log, self.registrar, self.invoker)
        self.maintenance = Maintenance(
            store,
            self.log,
            self._store.inbox,
            self.stems,
            self.registrar,
            runtime,
            settings=joins,
        )
        self.stems.routing = self.joins.settings.routing
        self.derivations = Derivations(
            self.log,
            self.registrar,
            self.sequencer,
            self.relations_state,
            self.invoker.present_of,
            StreamObserver(self.invoker.files),
            changes,
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
            bounded=bounded,
        )
        self.reader = ChangeReader(store, self.log)
        self.subscriptions = Subscriptions(
            self.log, self.registrar, self.derivations, self.advancer, self.reader
        )
        self.meters = Metrics(self)
        self.metrics = self.meters.registry
        self.entities = Entities(self)
        self.explainer = Explainer(self)
        #: Files of the store found corrupt or missing, by their names.
        self._damage: dict[str, MillpondError] = {}
        self._connect()
        self._note_damage()

    def _connect(self) -> None:
        """Have the parts tell each other what happens, and ask what they cannot know."""
        self.sequencer.on_commit = self._handle_commit
        self.advancer.on_commit = self._handle_advance
        self.log.on_publish = self.refresher.wake
        self.registrar.on_change = self.sources.on_change = self.wake
        self.sources.on_read = lambda stream, rows: self._report(stream, rows, done=True)
        self.maintenance.on_collect = self.invoker.files.forget

        self.registrar.on_activate = self.advancer.retries.clear
        self.registrar.finality = self._finality
        self.invoker.sources_of = self.derivations.sources_of
        self.reader.complete_upto = self.advancer.complete_upto
        self.reader.columns_of = lambda version, stream: (
            self.derivations.of(version, stream).plan.schema
        )
        self.relations_state.oldest_epoch_needed_of = self.derivations.oldest_epoch_needed_of
        self.relations_state.check_instant = partial(check_instant, self.derivations)
        self.maintenance.needed_since = self.derivations.needed_since

        self.refresher.on_failure = self.handle_function_failure
        self.advancer.on_failure = self._handle_derivation_failure
        self.invoker.files.on_torn = self.maintenance.rebuild_matches
        for part in (self.invoker, self.maintenance, self.reader):
            part.on_damage = self._handle_damage

    def _note_damage(self) -> None:
        """Matches found torn at the start are made again; other damage is shown."""
        matches = {m.path: m for refs in self.log.version.matches_of.values() for m in refs}
        for problem in self._store.problems:
            path = problem.primary.split('"')[1]
            if path in matches:
                self.maintenance.rebuild_matches(matches[path])
            else:
                self._handle_damage(problem)

    def start(self) -> None:
        """Begin to read and to work; the store is released if that fails."""
        try:
            self.runtime.start(self.sequencer, self._store.directory)
            if not self.bounded:
                for stream in self.log.version.streams.values():
                    self.sources.open(stream)
            if self.intake.list_waiting() or not self.bounded:
                self.runtime.wake_inbox()
        except BaseException:
            self._store.close()
            raise
        self.maintenance.start()
        self.advancer.start()
        self.refresher.start()
        self.wake()

    def stop(self) -> None:
        """Stop reading and working, and release the store. What was acknowledged is kept."""
        try:
            self.refresher.stop()
            self.advancer.stop()
            self.maintenance.stop()
            self.runtime.stop()
        finally:
            self._store.close()

    def wake(self) -> None:
        """Something changed: whoever works in the background looks again."""
        self.maintenance.wake()
        self.advancer.wake()

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

    def problems(self) -> list[MillpondError]:
        """Files of the store found corrupt or missing."""
        return list(self._damage.values())

    # -- instants, and what answers wait for ---------------------------------------------------

    def note_pushed(self, number: int) -> None:
        """A statement pushed rows: answers to later statements and asks wait for them."""
        self._last_pushed = max(self._last_pushed, number)
        self.runtime.wake_inbox()

    def await_inputs(self, text: str | None = None) -> None:
        """What an answer waits for: rows pushed by statements, and bounded sources' ends.

        With a query's text also the derived streams it reads.

        Raises:
            MillpondError: POND-405 when the rows have not become an epoch for a minute.
        """
        self._await_pushed()
        if self.bounded:
            self.sources.read_to_end()
        version = self.log.version
        # A derived stream has a name; without any there is nothing to be read for it.
        if text is not None and any(s.derived is not None for s in version.named_streams()):
            read = [version.find(leaf.stream) for leaf in self.registrar.bind(text).streams]
            derived = [s for s in read if isinstance(s, StreamDef) and s.derived is not None]
            self.advancer.catch_up(derived, STATED_SECONDS)

    def current_instant(self) -> int:
        """The instant of a change of a relation that names none; statements before it count.

        Raises:
            MillpondError: as `await_inputs`.
        """
        self._await_pushed()
        return self.invoker.current_instant()

    def _await_pushed(self) -> None:
        if not self.intake.wait(self._last_pushed, STATED_SECONDS):
            raise MillpondError(
                "POND-405",
                "rows inserted before are not visible yet",
                detail="They are durable and will be.",
                hint="Ask again; SHOW STREAMS says if the pipeline has stopped.",
            )

    # -- what happens --------------------------------------------------------------------------

    def _handle_commit(self, version: Version, built: Sequence[BuiltSegment]) -> None:
        for item in built:
            self.stems.observe(item.stream_id, item)
            if item.failed:
                self.maintenance.suspend_failed(item.stream_id, item.failed)
        self.meters.count_commit(version, built)
        for stream_id in {item.stream_id for item in built}:
            stream = version.streams.get(stream_id)
            if stream is not None:
                self._report(stream, version.clock(stream_id).next_seq, done=False)
        self.wake()

    def _handle_advance(self, version: Version, built: Sequence[BuiltSegment]) -> None:
        for item in built:
            self.stems.observe(item.stream_id, item)
            if item.failed:
                self.maintenance.suspend_failed(item.stream_id, item.failed)
        self.meters.count_advance(version, built)
        self.maintenance.wake()

    def handle_function_failure(self, query: QueryDef, error: MillpondError) -> None:
        """A user-defined function that fails suspends the query that called it."""
        if error.code == "POND-411":
            self.registrar.suspend(query, f"{error.detail}")

    def _handle_derivation_failure(self, stream: StreamDef, error: MillpondError) -> None:
        """What cannot be derived stops, as the advancer notes; INVOKE answers as before."""
        if error.code == "STORE-602":
            self._handle_damage(error)

    def _finality(self) -> Callable[[BoundQuery], int]:
        reading = self.floors.capture()
        version = self.log.version
        return lambda bound: self.derivations.final_instant(version, reading, bound)

    def _handle_damage(self, error: MillpondError) -> None:
        self._damage.setdefault(error.primary.rpartition("/")[2], error)

    def _report(self, stream: StreamDef, rows: int, done: bool) -> None:
        if self._progress is not None:
            self._progress({"stream": stream.name, "rows": rows, "done": done})
