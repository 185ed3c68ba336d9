"""Registration: commits a query and the slots of its predicates, while everything runs.

A registration starts no job and waits for none. The query's predicates get slots, or share those of
equal predicates; the Query SteM takes new slots over when the next batch is planned
(`QueryStems.snapshot`). Until `maintenance` has matched the kept segments with a new slot,
invocation matches them itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from millpond.catalog.objects import (
    QueryDef,
    RelationDef,
    StreamDef,
    SummaryDef,
)
from millpond.catalog.sink_def import SinkDef
from millpond.errors import MillpondError, Span
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.bind.templates import Binder, QueryTemplate
from millpond.planner.dataflow.plan import plan_changes
from millpond.service.events import Events, FollowerNeeds
from millpond.service.queries.bulk_queries import BulkQueries
from millpond.service.queries.current_names import CurrentNames
from millpond.service.queries.dependencies import users_of
from millpond.service.queries.expected_matches import check_matches
from millpond.service.queries.options import (
    check_options,
    option,
    refuse_unchangeable,
    static_reduction,
)
from millpond.service.queries.prepared import (
    PreparedQueries,
    PreparedQuery,
    check_answerable,
    knows_all_columns,
    prepare,
    prepare_again,
    prepare_once,
)
from millpond.service.queries.query_directory import find_query
from millpond.service.queries.query_stems import QueryStems
from millpond.service.queries.reductions import ModelPrecision, with_static_reduction
from millpond.service.queries.registration_batch import RegistrationBatch, reads_the_same
from millpond.service.queries.registration_request import RegistrationRequest
from millpond.service.queries.shared_changes import (
    find_left_shared_logs,
    is_plain,
    leave_shared_log,
)
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.epoch_log import EpochLog
from millpond.state.version import SegmentRef, StreamClock, Version
from millpond.work import endless_work

log = logging.getLogger("millpond.queries")

#: How the reason of a suspension begins when a query's text does not bind any more.
UNBOUND = "It cannot be bound any more: "
#: Registered together, so few are probably about to be invoked, and are made ready for it.
_FEW = 100


@dataclass(frozen=True)
class LogRevision:
    """How the change log of a query goes on whose definition becomes another one.

    Attributes:
        log: The change log as it is to be.
        clock: Its clock, behind the segments.
        segments: The difference between the definitions' answers, as changes.
    """

    log: StreamDef
    clock: StreamClock
    segments: tuple[SegmentRef, ...] = ()


#: Makes the revision of a followed query: of the query as it is, as it is to be, and the version.
Revise = Callable[[QueryDef, QueryDef, Version], LogRevision]


class Registrar:
    """Registers, alters and unregisters queries; safe to use from any thread."""

    def __init__(
        self,
        log: EpochLog,
        stems: QueryStems,
        clock: Callable[[], int],
        events: Events,
        followers: FollowerNeeds,
    ) -> None:
        self._log = log
        self._stems = stems
        self._clock = clock
        #: Held while queries come, change and go, and while what they read is dropped.
        self.lock = threading.RLock()
        #: The names of whatever version is current.
        self.names = CurrentNames(log)
        self._binder = Binder(self.names, lambda: log.version.epoch)
        #: What was invoked lately, ready to be invoked again; idle queries cost no memory here.
        self._prepared_queries = PreparedQueries()
        self._events = events
        self._followers = followers
        #: Makes models that predict how exact reduced queries are; none until streams are observed.
        self.model_precision: ModelPrecision = lambda version, bound: None

    # -- standing queries ----------------------------------------------------------------------

    def register(self, requests: Sequence[RegistrationRequest]) -> list[QueryDef]:
        """Register all of them in one epoch, or none.

        Raises:
            MillpondError: anything binding finds; CQL-208 for a taken name; CQL-214 for an option;
                STORE-603 if their matches of kept elements would not fit on the disk. With several
                requests, `detail` says which one it was.
        """
        before = self._log.version
        ahead = self._collect_ahead(requests, before) if len(requests) > _FEW else None
        with self.lock:
            now = self._log.version
            if ahead is not None and ahead.move(before, now):
                added = ahead
            else:
                added = self._collect(requests, now)
            self._log.commit(
                EpochChange(
                    kind="register",
                    add=added.definitions,
                    add_slots=added.slots,
                    add_leaves=added.leaves,
                    joins=added.change_joins(),
                )
            )
            self._stems.use(
                (leaf.stream_id, leaf.slot) for leaf in added.leaves if leaf.slot is not None
            )
            for id, prepared in added.prepared.items():
                self._prepared_queries.keep(id, prepared)
            self._follow(added.definitions)
        self._events.definitions_changed()
        return added.definitions

    def _collect_ahead(
        self, requests: Sequence[RegistrationRequest], version: Version
    ) -> RegistrationBatch | None:
        """Collect very many additions while others register; the lock is not held.

        Returns:
            The additions, which `RegistrationBatch.move` moves to the version they are committed
            after; None if they failed, and what they read has changed meanwhile.
        """
        try:
            return self._collect(requests, version)
        except Exception:
            if reads_the_same(version, self._log.version):
                raise
            return None

    def _collect(
        self, requests: Sequence[RegistrationRequest], version: Version
    ) -> RegistrationBatch:
        """Collect the additions of queries that are registered after a version."""
        added = RegistrationBatch(self._log.next_id, self._clock())
        final = self._followers.read_finality()
        is_ready = len(requests) <= _FEW
        bulk = None if is_ready else BulkQueries(added, version, self._binder, final)
        while len(added.definitions) < len(requests):
            try:
                if bulk is not None:
                    bulk.add(requests)
                if (number := len(added.definitions)) < len(requests):
                    self._register_one(added, version, requests[number], final, is_ready)
            except MillpondError as error:
                if len(requests) > 1:
                    place = f"Query {len(added.definitions)} of {len(requests)} (counting from 0)."
                    error.detail = f"{place} {error.detail or ''}".strip()
                raise
        check_matches(self._log.directory, version, added.slots)
        return added

    def _register_one(
        self,
        added: RegistrationBatch,
        version: Version,
        request: RegistrationRequest,
        final: Callable[[BoundQuery], int],
        ready: bool,
    ) -> None:
        options = check_options(request.options or {}, request.statement)
        bound = self.bind(request.text)
        self._check_strategy(bound, options)
        options = with_static_reduction(version, lambda: bound, options, self.model_precision)
        id, name = added.give_name(version, request)
        after = added.instant(final(bound))
        definition = QueryDef(
            id,
            name,
            request.text,
            options,
            0,
            added.now,
            changes_after=after,
            template=request.template,
        )
        added.add(version, definition, bound, ready)

    def unregister(self, definition: QueryDef) -> None:
        """Drop a query; slots nobody else shares go with it.

        Raises:
            MillpondError: CQL-201 when it was dropped meanwhile.
        """
        self.unregister_many([definition])

    def unregister_many(
        self,
        definitions: Sequence[QueryDef],
        tables: Sequence[StreamDef | RelationDef] = (),
        summaries: Sequence[SummaryDef] = (),
        sinks: Sequence[SinkDef] = (),
    ) -> None:
        """Drop queries, and what goes with them, in one epoch: all of it, or nothing.

        Raises:
            MillpondError: CQL-201 when a query was dropped meanwhile.
        """
        with self.lock:
            ids = [self._current_definition(definition).id for definition in definitions]
            used = [slot for id in ids for slot in self._slots_of(id)]
            unused = self._stems.find_unused_without(used)

            def change(now: Version) -> EpochChange:
                logs = [log for id in ids if (log := now.change_log(id)) is not None]
                empty = find_left_shared_logs(now, logs)
                drop = [*ids, *(log.id for log in logs), *empty, *(t.id for t in tables)]
                return EpochChange(
                    kind="unregister" if ids else "drop",
                    drop=drop,
                    drop_slots=unused,
                    drop_summaries=summaries,
                    drop_sinks=sinks,
                )

            self._log.commit(change)
            self._stems.disuse(used)
            for id in ids:
                self._prepared_queries.forget(id)

    def alter(
        self, definition: QueryDef, options: Mapping[str, Any], statement: str | None = None
    ) -> QueryDef:
        """Change options; slots come and go with `active` and `materialize`.

        An active query that was suspended is matched again.

        Raises:
            MillpondError: CQL-214 for an option, CQL-201 when it was dropped meanwhile.
        """
        (altered,) = self.alter_many([definition], options, statement)
        return altered

    def alter_many(
        self,
        definitions: Sequence[QueryDef],
        options: Mapping[str, Any],
        statement: str | None = None,
    ) -> list[QueryDef]:
        """Change options of queries in one epoch: of all of them, or of none.

        Raises:
            MillpondError: as `alter`.
        """
        checked = check_options(options, statement)
        with self.lock:
            altered = [self._apply_options(d, checked, statement) for d in definitions]
            self._replace(altered)
            self._follow(altered)
            for query in altered if checked.get("active") else ():
                log = self._log.version.change_log(query.id)
                if log is not None:
                    self._events.query_activated(log)
        self._events.definitions_changed()
        return altered

    def alter_each(
        self,
        changes: Mapping[int, Mapping[str, Any]],
        settings: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        """Change options of queries, each its own, and set the pond's settings, in one epoch.

        Args:
            changes: By query id, the options; what is None is not set any more.
            settings: Gives all settings of the pond from those that it has.

        Raises:
            MillpondError: as `alter`.
        """
        with self.lock:
            altered = []
            for id, options in changes.items():
                current = self._log.version.queries[id]
                set_now = {name: value for name, value in options.items() if value is not None}
                found = self._apply_options(current, check_options(set_now), None)
                left = {k: v for k, v in found.options.items() if options.get(k, v) is not None}
                altered.append(replace(found, options=left, suspended=current.suspended))
            self._replace(altered, settings)
        self._events.definitions_changed()

    def reduce_anew(self, query_id: int) -> QueryDef | None:
        """Choose anew how far a query is reduced, by what its streams hold now.

        The changes of a followed query go on with the difference (`service/changes/giving_way`).

        Returns:
            The query as it is then; None if it stays as it is, or was dropped.
        """
        with self.lock:
            version = self._log.version
            current = version.queries.get(query_id)
            if current is None:
                return None
            options = with_static_reduction(
                version,
                lambda: self.bind_registered(current.text, current.text_epoch),
                dict(current.options),
                self.model_precision,
            )
            if options == current.options:
                return None
            altered = replace(current, options=options)
            self._replace([altered])
        self._events.definitions_changed()
        return altered

    def replace(self, request: RegistrationRequest, revise: Revise) -> QueryDef | None:
        """Give a query another text and options; it keeps its id. None: there is no such query.

        From then on every answer is the new definition's, also as of earlier instants.

        Args:
            request: The new definition.
            revise: Says how the change log of a followed query goes on.

        Raises:
            MillpondError: as `register`; what `revise` raises.
        """
        with self.lock:
            version = self._log.version
            current = version.find(request.name or "")
            if not isinstance(current, QueryDef):
                return None
            options = check_options(request.options or {}, request.statement)
            bound = self.bind(request.text)
            self._check_strategy(bound, options)
            options = with_static_reduction(version, lambda: bound, options, self.model_precision)
            is_followed = version.change_log(current.id) is not None
            is_equal = request.text == current.text and knows_all_columns(version, bound, current)
            if is_followed and is_equal:
                altered = self.alter(current, options, request.statement)
                if altered.template != request.template:  # the constants of a text have names now
                    altered = replace(altered, template=request.template)
                    self._replace([altered])
                    self._events.definitions_changed()
                return altered
            now = self._clock()
            after = RegistrationBatch(self._log.next_id, now).instant(
                self._followers.read_finality()(bound)
            )
            replaced = replace(
                current,
                text=request.text,
                options=options,
                suspended=None,
                changes_after=current.changes_after if is_followed else after,
                template=request.template,
                replaced_epoch=version.epoch,
            )
            if is_followed:
                self._replace([replaced], revision=revise(current, replaced, version))
                self._events.definitions_changed()
                return replaced
            self._replace([replaced])
            self._follow([replaced])
        self._events.definitions_changed()
        return replaced

    def request_parameters(
        self, definition: QueryDef, constants: Mapping[str, str], options: Mapping[str, Any]
    ) -> RegistrationRequest:
        """What gives a query other values for its parameters, and options.

        Raises:
            MillpondError: CQL-103, it has no such parameter; CQL-214.
        """
        with self.lock:
            current = self._current_definition(definition)
            return RegistrationRequest.with_parameters(current, constants, check_options(options))

    def schedule(self, queries: Sequence[QueryDef], is_scheduled: bool) -> None:
        """Have queries matched as data comes, or no longer; answers stay the same.

        PSoup (VLDB 2002, section 7) would deschedule queries that are hardly invoked. A query that
        is matched again gets new slots, and backfill matches what is kept, as at a registration.

        Args:
            queries: The queries; those that were altered or dropped meanwhile are left as they are.
            is_scheduled: Whether they are to be matched.
        """
        with self.lock:
            version = self._log.version
            current = [query for query in queries if version.queries.get(query.id) is query]
            if current:
                self._replace(current, is_scheduled=is_scheduled)
        self._events.definitions_changed()

    def _follow(self, queries: Sequence[QueryDef]) -> None:
        """Have the changes computed of those queries whose options ask for that."""
        if wanted := [query for query in queries if query.options.get("follow")]:
            self._events.follow_requested(wanted)

    def _apply_options(
        self, definition: QueryDef, checked: Mapping[str, Any], statement: str | None
    ) -> QueryDef:
        current = self._current_definition(definition)
        if "strategy" in checked:
            self._check_strategy(self.bind_registered(current.text, current.text_epoch), checked)
        if self._log.version.change_log(current.id) is not None:
            refuse_unchangeable(current, checked, statement)
        suspended = None if checked.get("active") else current.suspended
        options = {**current.options, **checked}
        followed = self._log.version.change_log(current.id) is not None
        if not followed and {"tolerate", "weight"} & checked.keys():
            # What changes are made of does not change any more once they are made.
            options = with_static_reduction(
                self._log.version,
                lambda: self.bind_registered(current.text, current.text_epoch),
                options,
                self.model_precision,
            )
        return replace(current, options=options, suspended=suspended)

    def _check_strategy(self, bound: BoundQuery, options: Mapping[str, Any]) -> None:
        """Raises CQL-214 where a query's changes cannot be computed as its options say."""
        if options.get("strategy") == "direct":
            plan_changes(bound, self.names, strategy="direct")

    def suspend(self, definition: QueryDef, reason: str) -> None:
        """Take a query out of the matching; its handle says why until it is activated again."""
        with self.lock:
            current = self._log.version.queries.get(definition.id)
            if current is not None and current.suspended is None:
                self._replace([replace(current, suspended=reason)])
                log.warning("suspended: %s", reason, extra={"query": current.name})

    def bind_or_suspend(self, definition: QueryDef) -> BoundQuery | None:
        """Bind a registered query; if its text does not bind any more, suspend it alone.

        What bound when it was registered may not bind now: after an upgrade whose checks are
        stricter, or when something it names is gone. None: it is suspended with the reason.
        """
        if is_unbound(definition):
            return None
        try:
            return self.bind_registered(definition.text, definition.text_epoch)
        except Exception as error:
            self._suspend_unbound(definition, error)
            return None

    def _suspend_unbound(self, definition: QueryDef, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        if isinstance(error, MillpondError):
            why = f"{error.code}: {error.primary}"
        reason = f"{UNBOUND}{why.splitlines()[0]}."
        with self.lock:
            current = self._log.version.queries.get(definition.id)
            if current is not None and not is_unbound(current):
                log.warning('query "%s" is suspended. %s', current.name, reason)
                self._replace([replace(current, suspended=reason)])

    def resume_bound(self) -> None:
        """Have the queries go on that were suspended because they did not bind, and bind now."""
        for query in self._log.version.queries.values():
            if is_unbound(query):
                with suppress(Exception), self.lock:
                    self.bind_registered(query.text, query.text_epoch)
                    self._replace([replace(self._current_definition(query), suspended=None)])

    def _place(
        self,
        added: RegistrationBatch,
        version: Version,
        definition: QueryDef,
        is_scheduled: bool = True,
    ) -> PreparedQuery | None:
        """Place a query's leaves; one that does not bind keeps its own, and is not matched."""
        try:
            bound = self.bind_registered(definition.text, definition.text_epoch)
            placed = added.place(version, definition, bound, is_scheduled)
            return prepare(definition, bound, *placed)
        except Exception:
            if definition.active:
                raise
            added.keep_leaves(version, definition)
            return None

    def _replace(
        self,
        altered: Sequence[QueryDef],
        settings: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
        revision: LogRevision | None = None,
        is_scheduled: bool = True,
    ) -> None:
        version = self._log.version
        added = RegistrationBatch(self._log.next_id, self._clock())
        prepared = {d.id: self._place(added, version, d, is_scheduled) for d in altered}
        before = [slot for d in altered for slot in self._slots_of(d.id)]
        after = [(x.stream_id, x.slot) for x in added.leaves if x.slot is not None]
        joins = added.change_joins(drop_uses=[d.id for d in altered])
        leafless = {d.id for d in altered} - {leaf.query_id for leaf in added.leaves}

        def keep(query: QueryDef) -> int:
            return int(option(query, "keep_changes"))

        def change(now: Version) -> EpochChange:
            logs: list[StreamDef] = []
            clocks: dict[int, StreamClock] = {}
            for query in altered:
                changes = now.change_log(query.id)
                if changes is None:
                    continue
                if revision is not None:
                    logs.append(replace(revision.log, retain_rows=keep(query)))
                    clocks[changes.id] = revision.clock
                    continue
                if changes.shared_log is not None and not is_plain(query):
                    changes, clocks[changes.id] = leave_shared_log(now, changes)
                logs.append(_keep_reduction(now, replace(changes, retain_rows=keep(query))))
            return EpochChange(
                kind="alter",
                replace=[*altered, *logs],
                add_slots=added.slots,
                drop_slots=unused,
                add_leaves=added.leaves,
                drop_leaves=sorted(leafless),
                joins=joins,
                clocks=clocks,
                segments=() if revision is None else revision.segments,
                settings=None if settings is None else settings(now.settings),
            )

        self._stems.use(after)
        unused = self._stems.find_unused_without(before)
        try:
            self._log.commit(change)
        except BaseException:
            self._stems.disuse(after)
            raise
        self._stems.disuse(before)
        for id, query in prepared.items():
            if query is None:
                self._prepared_queries.forget(id)
            else:
                self._prepared_queries.keep(id, query)

    def _current_definition(self, definition: QueryDef) -> QueryDef:
        """The query as it is now; the caller holds the lock."""
        found: QueryDef | None = self._log.version.queries.get(definition.id)
        if found is None:
            raise _gone_error(definition)
        return found

    def _slots_of(self, query_id: int) -> list[tuple[int, int]]:
        leaves = self._log.version.leaves(query_id)
        return [(x.stream_id, x.slot) for x in leaves if x.slot is not None]

    # -- prepared queries ----------------------------------------------------------------------

    def prepare(self, definition: QueryDef) -> PreparedQuery:
        """A standing query ready to be invoked; bound again at first use after a restart.

        Raises:
            MillpondError: POND-402 when the query is inactive or suspended.
        """
        check_answerable(definition)
        found = self._prepared_queries.find(definition.id)
        return found if found is not None else self._prepare(definition)

    def _prepare(self, definition: QueryDef) -> PreparedQuery:
        """Bind a query not used since the start; the caller holds the lock."""
        with self.lock:
            definition = self._current_definition(definition)
            try:
                bound = self.bind_registered(definition.text, definition.text_epoch)
                found = prepare_again(self._log.version, definition, bound)
            except Exception as error:
                self._suspend_unbound(definition, error)
                check_answerable(self._current_definition(definition))
                raise
            self._prepared_queries.keep(definition.id, found)
            return found

    def prepare_once(self, text: str) -> PreparedQuery:
        """A query asked once. Raises CQL-216 for a stream-valued one."""
        return prepare_once(self._log.version, self.bind(text))

    # -- names ---------------------------------------------------------------------------------

    def bind(self, text: str, text_epoch: int | None = None) -> BoundQuery:
        """Resolve a query's names and types against the current version.

        Args:
            text: The query.
            text_epoch: The epoch at which it was given: it knows the columns of streams that there
                were then. None: it is given now.

        Raises:
            MillpondError: anything binding finds; POND-405, the request is to end.
        """
        seen = None if text_epoch is None else self._log.version.seen_by(text_epoch)
        return self._binder.bind(text, seen)

    def find_template(self, text: str) -> QueryTemplate | None:
        """The template by which a text was bound that knows all columns; None: there is none."""
        return self._binder.find_template(text)

    def bind_registered(self, text: str, text_epoch: int | None) -> BoundQuery:
        """Bind as `bind` what was bound when it was registered; no request's end ends that.

        A failure would be taken for one of the text's: its query would be suspended.
        """
        with endless_work():
            return self.bind(text, text_epoch)

    def find(self, name: str, text: str | None = None, span: Span | None = None) -> QueryDef:
        """Find the standing query of a name; as `find_query`."""
        return find_query(self._log.version, name, text, span)

    def users_of(self, definition: StreamDef | RelationDef) -> list[str]:
        """The names of the standing queries and derived objects over a stream or relation."""
        return users_of(self._log.version, definition, self.bind_registered)


def is_unbound(definition: QueryDef) -> bool:
    """Whether a query is suspended because its text does not bind any more."""
    return definition.suspended is not None and definition.suspended.startswith(UNBOUND)


def _gone_error(definition: QueryDef) -> MillpondError:
    return MillpondError(
        "CQL-201", f'no query "{definition.name}" any more', hint="It was unregistered."
    )


def _keep_reduction(now: Version, log: StreamDef) -> StreamDef:
    """A change log that says how far its changes so far are reduced, if it does not say so yet."""
    query, derived = now.query_of(log), log.derived
    if query is None or derived is None or derived.periods or "tolerate" not in query.options:
        return log
    begun = now.clock(log.id).kept_from - 1
    periods = ((begun, str(static_reduction(query.options))),)
    return replace(log, derived=replace(derived, periods=periods))
