"""Derivations: the queries whose changes are computed, with their plans and positions.

The first client that asks for a query's changes makes the query a derivation: it gets a change log,
a stream that no query can name, whose elements are the changes. A derived stream (CREATE STREAM …
AS) is the same with a name. The position of a derivation is in its stream's clock, so its changes
and its position become durable in one epoch; after a crash it computes the changes it would have
computed without the crash (SEMANTICS, section 7, law 5).
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Set

from millpond.catalog.objects import QueryDef, RelationDef, StreamDef
from millpond.catalog.tolerance import Reduction
from millpond.errors import MillpondError
from millpond.model.constraints import Constraint
from millpond.model.time import END, LAST
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.dataflow.plan import Plan, plan_changes
from millpond.planner.dataflow.shared_log import plan_shared_log, strip_predicates
from millpond.planner.optimize.choices import SETTING, Choices, find_choices
from millpond.planner.optimize.cost import PlanStatistics
from millpond.planner.resolve.names import did_you_mean
from millpond.service.answers.present import Present
from millpond.service.changes.derivation import Derivation, SharingKey
from millpond.service.changes.derived_streams import derived_stream_query
from millpond.service.changes.giving_way.reducing import may_be_reduced, reduction_of
from millpond.service.changes.giving_way.switches import Switches
from millpond.service.changes.looks import make_look, step_length
from millpond.service.changes.noticing.stream_statistics import StreamObserver
from millpond.service.changes.settings import ChangeSettings
from millpond.service.ingest.floors import ClockReading
from millpond.service.ingest.relations import Relations
from millpond.service.ingest.sequencer import Sequencer
from millpond.service.queries.prepared import PreparedQuery, seed_of, stream_of
from millpond.service.queries.reductions import reduce_changes
from millpond.service.queries.registration import Registrar, is_unbound
from millpond.state.epoch_log import EpochLog
from millpond.state.version import Version


class Derivations:
    """Knows the derivations of a pond and plans them; safe to use from any thread."""

    def __init__(
        self,
        log: EpochLog,
        registrar: Registrar,
        sequencer: Sequencer,
        relations: Relations,
        present: Present,
        statistics: StreamObserver,
        settings: ChangeSettings | None = None,
    ) -> None:
        self._log = log
        self._registrar = registrar
        self._sequencer = sequencer
        self._relations = relations
        self._present = present
        self._statistics = statistics
        self._settings = settings or ChangeSettings()
        #: By sharing key, the keys of all known plans' nodes, each with how many plans have it.
        self._running: defaultdict[SharingKey, Counter[str]] = defaultdict(Counter)
        self._planned_derivations: dict[int, Derivation] = {}
        #: The streams of a version, and those of them that are advanced.
        self._listed: tuple[object, list[StreamDef]] = (None, [])
        self._lock = threading.RLock()
        #: Streams that are planned and not committed yet.
        self._coming: set[int] = set()
        #: What was chosen of plans, as the settings have it, and as choices.
        self._adopted: tuple[object, Choices] = (None, {})
        #: How often plans of streams that are still there were forgotten.
        self.plannings = 0
        self.switches = Switches(self._make_reduced, self._lock)

    @property
    def settings(self) -> ChangeSettings:
        """The settings for queries whose options do not say how changes are computed."""
        return self._settings

    @settings.setter
    def settings(self, settings: ChangeSettings) -> None:
        with self._lock:
            self._settings = settings
            self._planned_derivations.clear()
            self.switches.forget()
            self._running.clear()
            self.plannings += 1

    # -- what there is -------------------------------------------------------------------------

    def of(self, version: Version, stream: StreamDef) -> Derivation:
        """The derivation of a stream, planned when it is first needed.

        Raises:
            MillpondError: its query cannot be bound or planned.
        """
        known = self._planned_derivations.get(stream.id)
        # ALTER puts the definition anew: its query may be computed otherwise from now on.
        if known is not None and known.stream is stream:
            return known
        # Two that plan it at once would each take the other's plan for one that runs already.
        with self._lock:
            known = self._planned_derivations.get(stream.id)
            if known is None or known.stream is not stream:
                # What it ran so far it runs no more, and is not to be had for nothing.
                self._forget(stream.id)
                known = self._make(version, stream)
                self._remember(known)
            return known

    def find_of(self, version: Version, stream: StreamDef) -> Derivation | None:
        """The derivation of a stream; None if its query does not bind any more, or is not planned.

        The schedule tells why (`Schedule.find_derivation`), and what asks here goes on without it.
        """
        query = version.query_of(stream)
        if query is not None and is_unbound(query):
            return None
        try:
            return self.of(version, version.maker(stream))
        except Exception:
            return None

    def known(self, stream: StreamDef) -> Derivation | None:
        """The derivation that makes a stream's changes, if it is planned already."""
        made = stream.id if stream.shared_log is None else stream.shared_log
        return self._planned_derivations.get(made)

    def _remember(self, derivation: Derivation) -> None:
        self._planned_derivations[derivation.id] = derivation
        self._running[derivation.sharing_key].update(derivation.plan.list_keys())

    def expect(self, derivation: Derivation) -> None:
        """Know a derivation that is about to be committed, so that nobody need plan it again."""
        with self._lock:
            self._coming.add(derivation.id)
            self._remember(derivation)

    def stop_expecting(self) -> None:
        """Forget, at the next look, what was not committed."""
        self._coming.clear()

    def plan_anew(self, stream_id: int) -> None:
        """Plan the derivations that read a stream anew when they are next needed."""
        with self._lock:
            for derivation in list(self._planned_derivations.values()):
                if stream_id in derivation.streams:
                    self._forget(derivation.id)
            self.plannings += 1

    def _forget(self, stream_id: int) -> None:
        derivation = self._planned_derivations.pop(stream_id, None)
        if derivation is None:
            return
        running = self._running[derivation.sharing_key]
        for key in derivation.plan.list_keys():
            running[key] -= 1
            if not running[key]:
                del running[key]

    def replan(
        self,
        version: Version,
        stream: StreamDef,
        choices: Choices,
        query: QueryDef | None,
        known: PlanStatistics | None = None,
    ) -> Derivation:
        """Plan a derivation as it would be with other choices, as if nothing ran.

        Args:
            version: What there is.
            stream: The derivation's stream.
            choices: What is chosen of operators.
            query: The derivation's query, as it would be; None if it has none.
            known: What is known of streams; None: what was looked at last.

        Raises:
            MillpondError: as `plan_query`.
        """
        return self._make(version, stream, choices, query, known)

    def forget_plans(self, streams: Iterable[int]) -> None:
        """Plan these derivations anew when they are next needed."""
        with self._lock:
            for id in streams:
                self._forget(id)
            self.switches.forget()
            self.plannings += 1

    def _find_choices(self, version: Version) -> Choices:
        """The choices by which plans are made."""
        known, choices = self._adopted
        given = version.settings.get(SETTING)
        if known is not given:
            choices = find_choices(version.settings)
            self._adopted = (given, choices)
        return choices

    def _make(
        self,
        version: Version,
        stream: StreamDef,
        choices: Choices | None = None,
        query: QueryDef | None = None,
        known: PlanStatistics | None = None,
    ) -> Derivation:
        assert stream.derived is not None
        bound = self._registrar.bind_registered(stream.derived.text, stream.derived.text_epoch)
        if stream.is_shared_log:
            return self.make_shared(version, stream, bound, choices)
        if not stream.is_change_log:
            bound = derived_stream_query(bound)
        query = query or version.query_of(stream)
        if stream.is_change_log and not step_length(bound):
            reduction = reduction_of(stream, query)
            # What the worker runs already is found again there.
            switched = self.switches.take(stream, reduction) if choices is None else None
            if switched is not None:
                return switched
            return self._make_reduced(version, stream, bound, reduction, query, choices, known)
        sharing_key = self.sharing_key_of(version, bound, query)
        owner = str(stream.id) if query is None else str(query.id)
        plan = self.plan_query(version, bound, query, choices, owner, known)
        look = make_look(version, bound) if stream.is_change_log else None
        return Derivation(stream, bound, plan, *sharing_key, look=look)

    def _make_reduced(
        self,
        version: Version,
        stream: StreamDef,
        whole: BoundQuery,
        reduction: Reduction,
        query: QueryDef | None,
        choices: Choices | None = None,
        known: PlanStatistics | None = None,
    ) -> Derivation:
        """The derivation of a standing query, reduced so far."""
        reduced = reduce_changes(whole, reduction)
        bound = whole if reduced is None else reduced.bound
        sharing_key = self.sharing_key_of(version, bound, query)
        owner = str(stream.id) if query is None else str(query.id)
        plan = self.plan_query(version, bound, query, choices, owner, known)
        original = None
        if reduced is not None and query is not None and may_be_reduced(whole, query):
            original = self.plan_query(version, whole, query, choices, owner)
        return Derivation(stream, bound, plan, *sharing_key, reduced, whole=original)

    def make_shared(
        self,
        version: Version,
        stream: StreamDef,
        bound: BoundQuery,
        choices: Choices | None = None,
    ) -> Derivation:
        """The derivation of a shared log."""
        chosen = self._find_choices(version) if choices is None else choices
        read = stream_of(version, bound.streams[0])
        plan = self._plan_by_engine(lambda strategy: plan_shared_log(bound, read, strategy, chosen))
        bare = strip_predicates(bound)
        streams, relations, _, line = self.sharing_key_of(version, bare, None)
        patience = self._settings.eager_expiration
        return Derivation(stream, bare, plan, streams, relations, patience, line)

    def _plan_by_engine(self, plan: Callable[[str], Plan]) -> Plan:
        """Plan by the engine's strategy, which is for those queries that it can be for."""
        try:
            return plan(self._settings.strategy)
        except MillpondError as error:
            if error.code != "CQL-214":
                raise
            return plan("aware")

    def sharing_key_of(
        self, version: Version, bound: BoundQuery, query: QueryDef | None
    ) -> SharingKey:
        """The key of what a query, or a derived stream, shares its dataflow with."""
        streams = frozenset(stream_of(version, leaf).id for leaf in bound.streams)
        relations = frozenset(
            found.id
            for leaf in bound.relations
            if isinstance(found := version.find(leaf.relation), RelationDef)
        )
        patience = self.settings_of(query).eager_expiration if query is not None else 0
        return (streams, relations, patience, step_length(bound) if query is not None else 0)

    def settings_of(self, query: QueryDef | None) -> ChangeSettings:
        """How the changes of a query, or of a derived stream, are computed."""
        return self._settings if query is None else self._settings.with_options(query.options)

    def plan_query(
        self,
        version: Version,
        bound: BoundQuery,
        query: QueryDef | None,
        choices: Choices | None = None,
        owner: str = "",
        known: PlanStatistics | None = None,
    ) -> Plan:
        """The plan a query's changes would be computed by.

        Args:
            version: What there is.
            bound: The query.
            query: Its definition, if it is registered.
            choices: What is chosen of operators, as if nothing ran; None: what was adopted.
            owner: Whose operators are that are not shared, if not the query's.
            known: What is known of streams; None: what was looked at last.

        Raises:
            MillpondError: CQL-214, its strategy is not one for it.
        """
        options = query.options if query is not None else {}
        settings = self.settings_of(query)
        seed = options.get("seed")
        running: Set[str] = frozenset()
        if choices is None:
            running = self._running[self.sharing_key_of(version, bound, query)].keys()
        chosen = self._find_choices(version) if choices is None else choices
        owner = owner or ("" if query is None else str(query.id))

        def plan_once(strategy: str) -> Plan:
            return plan_changes(
                bound,
                self._registrar.names,
                seed=seed_of(bound) if seed is None else int(seed),
                strategy=strategy,
                known=known or self._statistics.of(version, bound, running),
                partitions=options.get("partitions"),
                lazy_expiration=settings.lazy_expiration,
                choices=chosen,
                owner=owner,
            )

        def by(strategy: str) -> Plan:
            plan = plan_once(strategy)
            # What its joins compare is looked at now, and another plan may release rows by it.
            return plan_once(strategy) if self._statistics.learn(plan.nodes()) else plan

        return by(settings.strategy) if "strategy" in options else self._plan_by_engine(by)

    def constraints_of(self, version: Version, stream: StreamDef) -> tuple[Constraint, ...]:
        """The constraints of a stream by which operators release rows, declared and observed."""
        return self._statistics.constraints_of(version, stream)

    def plan_answer(self, version: Version, query: PreparedQuery, in_order: bool) -> Plan:
        """Plan how a query's answer at NOW is kept.

        Args:
            version: What there is.
            query: The query.
            in_order: Whether elements come in the order of their timestamps.
        """
        known = self._statistics.of(version, query.bound, frozenset())
        names = self._registrar.names
        return plan_changes(query.bound, names, seed=query.seed, known=known, in_order=in_order)

    def list_streams(self, version: Version) -> list[StreamDef]:
        """The streams that are derived, but for change logs that are in a shared log."""
        known, found = self._listed
        if known is not version.streams:
            every = version.streams.values()
            found = [s for s in every if s.derived is not None and s.shared_log is None]
            self._listed = (version.streams, found)
            with self._lock:
                there = self._log.version.streams.keys() | self._coming
                for gone in self._planned_derivations.keys() - there:
                    self._forget(gone)
        return found

    def find(self, name: str) -> StreamDef:
        """The derived stream of a name. Raises CQL-201 or CQL-216."""
        version = self._log.version
        found = version.find(name)
        if isinstance(found, StreamDef) and found.derived is not None:
            return found
        derived = [s.name for s in self.list_streams(version) if not s.is_change_log]
        if found is None:
            raise MillpondError(
                "CQL-201",
                f'no derived stream "{name}"',
                hint=did_you_mean(name, derived) or "SHOW STREAMS lists them.",
            )
        raise MillpondError(
            "CQL-216",
            f'"{name}" is not a derived stream',
            detail="Only what CREATE STREAM … AS made has elements that are computed.",
            hint="SHOW STREAMS says of which the source is a query.",
        )

    # -- how far ---------------------------------------------------------------------------------

    def target(self, version: Version, reading: ClockReading, derivation: Derivation) -> int:
        """The last instant that is final for a derivation (SEMANTICS, section 1)."""
        upto = self.final_instant(version, reading, derivation.bound)
        position = version.clock(derivation.id).position
        nothing_else_comes = upto == LAST or not derivation.streams
        if nothing_else_comes and upto <= position and self.is_corrected(version, derivation):
            return position + 1  # no heartbeat is to be waited for: what is dated back comes now
        if derivation.line and upto != LAST:
            return (upto + 1) // derivation.line * derivation.line - 1
        return upto

    def final_instant(self, version: Version, reading: ClockReading, bound: BoundQuery) -> int:
        """The last instant that is final for a query: before the least heartbeat.

        A query that reads no stream has no heartbeat to wait for: the present is final.
        """
        if bound.streams:
            streams = [stream_of(version, leaf) for leaf in bound.streams]
            least = min(self._sequencer.heartbeat(version, s, reading) for s in streams)
            return LAST if least >= END else least - 1
        return self._present.of(version, bound, reading)

    def is_corrected(self, version: Version, derivation: Derivation) -> bool:
        """Whether a relation was told of an instant up to the position since it was last read."""
        clock = version.clock(derivation.id)
        return any(
            self._relations.was_told(version, id, clock.relations_epoch, clock.position)
            for id in derivation.relations
        )
