"""Registration: text becomes a row in the Query SteM, in one commit, while everything runs.

Adding a query starts no job and waits for none: its predicates get slots (or share those of equal
predicates), and until kept segments have been matched against them (`maintenance`), invocation
matches them itself.
"""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from millpond.catalog.objects import (
    REJECTS_SUFFIX,
    Definition,
    FunctionDef,
    QueryDef,
    RelationDef,
    StreamDef,
)
from millpond.engine.factors import Factors
from millpond.engine.join_plan import JoinPlan
from millpond.engine.residual import Limits
from millpond.errors import MillpondError, Span
from millpond.model.time import BEGINNING
from millpond.planner.bound import BoundQuery
from millpond.planner.dataflow.plan import plan_changes
from millpond.planner.names import did_you_mean
from millpond.planner.templates import Binder
from millpond.runtime.join_tasks import pack_plan
from millpond.service.invocation import Prepared, default_seed, leaf_factors, stream_of
from millpond.service.joined import join_of, use_of
from millpond.service.options import check_options, option, refuse_settled
from millpond.service.stems import QueryStems, slot_key
from millpond.state.epoch_change import EpochChange
from millpond.state.epoch_log import EpochLog
from millpond.state.join_state import JoinChange, JoinCore, JoinUse
from millpond.state.version import DATA, LeafRef, SlotRef, Version

#: Queries kept ready to be invoked; another is bound again first, in about 0.2 ms.
_MOST_PREPARED = 4_096
#: Registered together, so few are probably about to be invoked.
_FEW = 100


@dataclass(frozen=True)
class Request:
    """One query to register: its text, its name (given one when None), its options."""

    text: str
    name: str | None = None
    options: Mapping[str, Any] | None = None
    #: Where the name stands, for errors.
    statement: str | None = None
    name_span: Span | None = None


class Registrar:
    """Registers, alters and unregisters queries; safe to use from any thread."""

    def __init__(self, log: EpochLog, stems: QueryStems, clock: Callable[[], int]) -> None:
        self._log = log
        self._stems = stems
        self._clock = clock
        #: Held while queries come, change and go, and while what they read is dropped.
        self.lock = threading.RLock()
        #: The names of whatever version is current.
        self.names = CurrentNames(log)
        self._binder = Binder(self.names)
        #: What was invoked lately, ready to be invoked again; idle queries cost no memory here.
        self._prepared: OrderedDict[int, Prepared] = OrderedDict()
        self.on_change: Callable[[], None] = lambda: None
        #: Looks at the clock and the heartbeats; tells the last instant final for a query then.
        self.finality: Callable[[], Callable[[BoundQuery], int]] = lambda: (
            lambda bound: BEGINNING - 1
        )

    # -- standing queries ----------------------------------------------------------------------

    def register(self, requests: Sequence[Request]) -> list[QueryDef]:
        """Register all of them in one epoch, or none.

        Raises:
            MillpondError: anything binding finds; CQL-208 for a taken name; CQL-214 for an option.
                With several requests, `detail` says which one it was.
        """
        with self.lock, _collector_paused(len(requests)):
            batch = _Batch(self._log.next_id, self._clock())
            final = self.finality()
            taken: set[str] = set()
            for number, request in enumerate(requests):
                try:
                    self._one(batch, request, taken, final)
                except MillpondError as error:
                    if len(requests) > 1:
                        place = f"Query {number} of {len(requests)} (counting from 0)."
                        error.detail = f"{place} {error.detail or ''}".strip()
                    raise
            self._log.commit(
                EpochChange(
                    kind="register",
                    add=batch.definitions,
                    add_slots=batch.slots,
                    add_leaves=batch.leaves,
                    joins=JoinChange(cores=batch.cores, uses=batch.uses),
                )
            )
            self._stems.use(
                (leaf.stream_id, leaf.slot) for leaf in batch.leaves if leaf.slot is not None
            )
            if len(requests) <= _FEW:
                for id, prepared in batch.prepared.items():
                    self._keep_prepared(id, prepared)
        self.on_change()
        return batch.definitions

    def _one(
        self,
        batch: _Batch,
        request: Request,
        taken: set[str],
        final: Callable[[BoundQuery], int],
    ) -> None:
        options = check_options(request.options or {}, request.statement)
        bound = self.bind(request.text)
        self._check_strategy(bound, options)
        version = self._log.version

        def is_taken(name: str) -> bool:
            return (
                version.find(name) is not None
                or name.lower() in taken
                or name.lower().endswith(REJECTS_SUFFIX)
            )

        id = batch.next_id()
        while request.name is None and is_taken(f"q{id}"):
            id = batch.next_id()
        name = request.name or f"q{id}"
        if is_taken(name):
            raise MillpondError(
                "CQL-208",
                f'the name "{name}" is taken',
                detail="Streams, relations and queries share one set of names.",
                hint="Choose another name, or DROP the other object first.",
                text=request.statement,
                span=request.name_span,
            )
        taken.add(name.lower())
        definition = QueryDef(
            id, name, request.text, options, 0, batch.now, changes_after=batch.instant(final(bound))
        )
        batch.definitions.append(definition)
        batch.prepared[id] = self._place(version, batch, definition, bound)

    def _place(
        self, version: Version, batch: _Batch, definition: QueryDef, bound: BoundQuery
    ) -> Prepared:
        """Give every leaf its factors, and a slot if the query is matched continuously."""
        matched = definition.active and definition.options.get("materialize") != "none"
        factors: list[Factors | None] = []
        slots: list[int | None] = []
        for number, leaf in enumerate(bound.streams):
            stream = stream_of(version, leaf)
            found = leaf_factors(leaf, stream)
            slot = None
            if found is not None and matched and stream.rejects_of is None:
                slot = batch.slot(version, stream.id, found)
            factors.append(found)
            slots.append(slot)
            batch.leaves.append(LeafRef(definition.id, number, stream.id, DATA, slot))
        streams = [stream_of(version, leaf) for leaf in bound.streams]
        join = join_of(bound, streams)
        if join is not None and matched:
            batch.join(version, definition.id, bound, join, streams)
        return _prepared(definition, bound, factors, slots, join)

    def unregister(self, definition: QueryDef) -> None:
        """Drop a query; slots nobody else shares go with it.

        Raises:
            MillpondError: CQL-201 when it was dropped meanwhile.
        """
        with self.lock:
            self._current(definition)
            used = self._slots_of(definition.id)
            changes = self._log.version.change_log(definition.id)
            self._log.commit(
                EpochChange(
                    kind="unregister",
                    drop=[definition.id, *([changes.id] if changes else [])],
                    drop_slots=self._stems.unused_without(used),
                )
            )
            self._stems.disuse(used)
            self._prepared.pop(definition.id, None)

    def alter(
        self, definition: QueryDef, options: Mapping[str, Any], statement: str | None = None
    ) -> QueryDef:
        """Change options; slots come and go with `active` and `materialize`.

        An active query that was suspended starts anew.

        Raises:
            MillpondError: CQL-214 for an option, CQL-201 when it was dropped meanwhile.
        """
        checked = check_options(options, statement)
        with self.lock:
            current = self._current(definition)
            if "strategy" in checked:
                self._check_strategy(self.bind(current.text), checked)
            if self._log.version.change_log(current.id) is not None:
                refuse_settled(current, checked, statement)
            suspended = None if checked.get("active") else current.suspended
            altered = replace(current, options={**current.options, **checked}, suspended=suspended)
            self._replace(altered)
        self.on_change()
        return altered

    def _check_strategy(self, bound: BoundQuery, options: Mapping[str, Any]) -> None:
        """Raises CQL-214 where a query's changes cannot be computed as its options say."""
        if options.get("strategy") == "direct":
            plan_changes(bound, self.names, strategy="direct")

    def suspend(self, definition: QueryDef, reason: str) -> None:
        """Take a query out of the matching; its handle says why until it is activated again."""
        with self.lock:
            current = self._log.version.queries.get(definition.id)
            if current is not None and current.suspended is None:
                self._replace(replace(current, suspended=reason))

    def _replace(self, altered: QueryDef) -> None:
        version = self._log.version
        bound = self.bind(altered.text)
        batch = _Batch(self._log.next_id, self._clock())
        prepared = self._place(version, batch, altered, bound)
        before = self._slots_of(altered.id)
        after = [(x.stream_id, x.slot) for x in batch.leaves if x.slot is not None]
        self._stems.use(after)
        changes = version.change_log(altered.id)
        kept = int(option(altered, "keep_changes"))
        try:
            self._log.commit(
                EpochChange(
                    kind="alter",
                    replace=[altered, *([replace(changes, retain_rows=kept)] if changes else [])],
                    add_slots=batch.slots,
                    drop_slots=self._stems.unused_without(before),
                    add_leaves=batch.leaves,
                    joins=JoinChange(cores=batch.cores, uses=batch.uses, drop_uses=[altered.id]),
                )
            )
        except BaseException:
            self._stems.disuse(after)
            raise
        self._stems.disuse(before)
        self._keep_prepared(altered.id, prepared)

    def _current(self, definition: QueryDef) -> QueryDef:
        """The query as it is now, the lock being held."""
        found: QueryDef | None = self._log.version.queries.get(definition.id)
        if found is None:
            raise _gone(definition)
        return found

    def _slots_of(self, query_id: int) -> list[tuple[int, int]]:
        leaves = self._log.version.leaves(query_id)
        return [(x.stream_id, x.slot) for x in leaves if x.slot is not None]

    # -- prepared queries ----------------------------------------------------------------------

    def prepared(self, definition: QueryDef) -> Prepared:
        """A standing query ready to be invoked; bound again at first use after a restart.

        Raises:
            MillpondError: POND-402 when the query is inactive or suspended.
        """
        self.check_answered(definition)
        found = self._prepared.get(definition.id)
        return found if found is not None else self._prepare(definition)

    @staticmethod
    def check_answered(definition: QueryDef) -> None:
        """Raise POND-402 when a query is inactive or suspended."""
        if definition.suspended is not None:
            raise MillpondError(
                "POND-402",
                f'query "{definition.name}" is suspended',
                detail=definition.suspended,
                hint=f"ALTER QUERY {definition.name} SET (active = true) starts it again.",
            )
        if not definition.active:
            raise MillpondError(
                "POND-402",
                f'query "{definition.name}" is inactive',
                detail="It keeps its definition but is not answered.",
                hint=f"ALTER QUERY {definition.name} SET (active = true) activates it.",
            )

    def _keep_prepared(self, id: int, prepared: Prepared) -> None:
        """Keep it, the lock being held; the oldest go first."""
        self._prepared.pop(id, None)
        self._prepared[id] = prepared
        while len(self._prepared) > _MOST_PREPARED:
            self._prepared.popitem(last=False)

    def _prepare(self, definition: QueryDef) -> Prepared:
        """Bind a query that was not used since the start; with the lock, lest it changes."""
        with self.lock:
            definition = self._current(definition)
            version = self._log.version
            bound = self.bind(definition.text)
            slots = [x.slot for x in version.leaves(definition.id)]
            factors: list[Factors | None] = []
            for leaf, slot in zip(bound.streams, slots, strict=True):
                stream = stream_of(version, leaf)
                ref = version.slot(stream.id, slot) if slot is not None else None
                factors.append(Factors.unpack(ref.factors) if ref else leaf_factors(leaf, stream))
            join = join_of(bound, [stream_of(version, leaf) for leaf in bound.streams])
            found = _prepared(definition, bound, factors, slots, join)
            self._keep_prepared(definition.id, found)
            return found

    def once(self, text: str) -> Prepared:
        """A query asked once: matches of a standing query with an equal predicate are used."""
        bound = self.bind(text)
        if bound.to_stream is not None:
            raise stream_valued(bound, "CREATE QUERY name AS it, and FETCH name")
        version = self._log.version
        factors: list[Factors | None] = []
        slots: list[int | None] = []
        for leaf in bound.streams:
            stream = stream_of(version, leaf)
            found = leaf_factors(leaf, stream)
            same = version.slot_of_key(stream.id, slot_key(found)) if found is not None else None
            factors.append(found)
            slots.append(same.slot if same else None)
        join = join_of(bound, [stream_of(version, leaf) for leaf in bound.streams])
        return Prepared(bound, tuple(factors), tuple(slots), _seed(bound), Limits(), join=join)

    def bind(self, text: str) -> BoundQuery:
        """Resolve a query's names and types against the current version."""
        return self._binder.bind(text)

    def find(self, name: str, text: str | None = None, span: Span | None = None) -> QueryDef:
        """The standing query of a name. Raises CQL-201 or CQL-216."""
        version = self._log.version
        found = version.find(name)
        if isinstance(found, QueryDef):
            return found
        if found is not None:
            kind = "stream" if isinstance(found, StreamDef) else "relation"
            raise MillpondError(
                "CQL-216",
                f'"{name}" is a {kind}, not a query',
                hint=f"Ask it: SELECT * FROM {name}.",
                text=text,
                span=span,
            )
        queries = [n for n in version.names() if isinstance(version.find(n), QueryDef)]
        raise MillpondError(
            "CQL-201",
            f'no query "{name}"',
            hint=did_you_mean(name, queries) or "SHOW QUERIES lists them.",
            text=text,
            span=span,
        )

    def users_of(self, definition: StreamDef | RelationDef) -> list[str]:
        """The names of the standing queries over a stream or relation."""
        version = self._log.version
        deriving = self._deriving_from(version, definition)
        if isinstance(definition, StreamDef):
            read = [
                query
                for query in version.queries.values()
                if any(x.stream_id == definition.id for x in version.leaves(query.id))
            ]
        else:
            read = list(self._reading(version, definition, deriving))
        return [*(query.name for query in read), *deriving]

    def _reading(
        self, version: Version, relation: RelationDef, deriving: Sequence[str]
    ) -> Iterator[QueryDef]:
        """The standing queries over a relation, or over what derives from it.

        Only those that have one of the names in their text are bound: of ten thousand queries
        hardly one reads the relation.
        """
        spelled = [n.lower().replace('"', '""') for n in (relation.name, *deriving)]
        name = relation.name.lower()
        for query in version.queries.values():
            text = query.text.lower()
            if any(n in text for n in spelled):
                bound = self.bind(query.text)
                if name in (n.lower() for n in bound.views) or any(
                    r.relation.lower() == name for r in bound.relations
                ):
                    yield query

    def _deriving_from(self, version: Version, definition: StreamDef | RelationDef) -> list[str]:
        """The names of the derived streams and relations that read a stream or relation."""
        texts = [(s.name, s.derived.text) for s in version.named_streams() if s.derived]
        texts += [(r.name, r.view) for r in version.relations.values() if r.view]
        name = definition.name.lower()
        users = []
        for user, text in texts:
            bound = self.bind(text)
            read = [x.stream for x in bound.streams] + [x.relation for x in bound.relations]
            if any(n.lower().removesuffix("$rejects") == name for n in [*read, *bound.views]):
                users.append(user)
        return users


@contextmanager
def _collector_paused(requests: int) -> Iterator[None]:
    """Keep Python's cycle collector away from a large registration.

    Thousands of trees that stay are made at once, and the collector would walk all of them again
    and again: a third of the time of 10,000 registrations.
    """
    paused = requests > 100 and gc.isenabled()
    if paused:
        gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


class CurrentNames:
    """The names of whatever version is current."""

    def __init__(self, log: EpochLog) -> None:
        self._log = log

    def find(self, name: str) -> Definition | None:
        return self._log.version.find(name)

    def names(self) -> list[str]:
        return self._log.version.names()

    def function(self, name: str) -> FunctionDef | None:
        return self._log.version.functions.get(name)

    def functions(self) -> list[str]:
        return sorted(self._log.version.functions)


class _Batch:
    """What a registration adds, collected before its commit."""

    def __init__(self, next_id: Callable[[], int], now: int) -> None:
        self.next_id = next_id
        self.now = now
        self.definitions: list[QueryDef] = []
        self.slots: list[SlotRef] = []
        self.leaves: list[LeafRef] = []
        self.prepared: dict[int, Prepared] = {}
        self._fresh: dict[tuple[int, bytes], int] = {}
        self._next: dict[int, int] = {}
        self._instants: dict[int, int] = {}
        self.cores: list[JoinCore] = []
        self.uses: list[JoinUse] = []
        self._core_of: dict[str, int] = {}

    def join(
        self,
        version: Version,
        query_id: int,
        bound: BoundQuery,
        plan: JoinPlan,
        streams: Sequence[StreamDef],
    ) -> None:
        """The use of the core of this join: that of an equal join, or a new one."""
        shared = version.joins.core_of_key(plan.key)
        core_id = shared.id if shared is not None else self._core_of.get(plan.key)
        fresh = core_id is None
        if core_id is None:
            core_id = -1 - len(self.cores)
        use = use_of(query_id, core_id, bound, streams)
        if use is None:
            return
        self.uses.append(use)
        if fresh:
            ids = tuple(streams[leaf].id for leaf in use.leaves)
            self.cores.append(JoinCore(0, plan.key, pack_plan(plan), ids))
            self._core_of[plan.key] = core_id

    def instant(self, at: int) -> int:
        """The instant, as one object for all queries that share it: they are kept."""
        return self._instants.setdefault(at, at)

    def slot(self, version: Version, stream_id: int, factors: Factors) -> int:
        """The slot of these factors: an equal predicate's, or a new one."""
        key = slot_key(factors)
        shared = version.slot_of_key(stream_id, key)
        if shared is not None:
            return shared.slot
        fresh = self._fresh.get((stream_id, key))
        if fresh is None:
            fresh = self._next.get(stream_id, version.next_slot(stream_id))
            self._next[stream_id] = fresh + 1
            self._fresh[stream_id, key] = fresh
            self.slots.append(SlotRef(stream_id, fresh, key, factors.packed()))
        return fresh


def _prepared(
    definition: QueryDef,
    bound: BoundQuery,
    factors: Sequence[Factors | None],
    slots: Sequence[int | None],
    join: JoinPlan | None,
) -> Prepared:
    options = definition.options
    limits = Limits(
        seconds=float(options.get("max_seconds", Limits.seconds)),
        rows=int(options.get("max_rows", Limits.rows)),
    )
    seed = int(options["seed"]) if "seed" in options else None
    if seed is None:
        seed = _seed(bound)
    name, id = definition.name, definition.id
    kept = options.get("materialize") in ("eager", "auto")
    return Prepared(bound, tuple(factors), tuple(slots), seed, limits, name, join, id, kept)


def _seed(bound: BoundQuery) -> int:
    """The seed of a query that says none; it takes printing the query, so only if it is used."""
    sampled = any(leaf.sample is not None for leaf in bound.streams)
    return default_seed(bound) if sampled else 0


def _gone(definition: QueryDef) -> MillpondError:
    return MillpondError(
        "CQL-201", f'no query "{definition.name}" any more', hint="It was unregistered."
    )


def stream_valued(bound: BoundQuery, instead: str) -> MillpondError:
    """The error of asking a stream for what it holds at an instant."""
    assert bound.to_stream is not None
    return MillpondError(
        "CQL-216",
        "a stream-valued query has no answer at an instant",
        detail=f"{bound.to_stream.upper()} makes a stream of a relation: its elements are read"
        " in the order in which they come.",
        hint=f"{instead}.",
        text=bound.text,
        span=Span(0, len(bound.to_stream)),
    )
