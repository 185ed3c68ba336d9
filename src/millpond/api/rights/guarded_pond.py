"""The pond as its callers have it: every call is first asked of the caller's rights and quotas.

The routers call this pond as they would call any other. It has no call that `ServedPond` does not
have, and passes none on that it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from prometheus_client import CollectorRegistry

from millpond.api.rights.caller import Caller, Role
from millpond.api.rights.guarded_handles import GuardedHandle, GuardedStream
from millpond.api.rights.quotas import OwnerQuotas, is_to_follow, limit_kept, limit_rows
from millpond.api.rights.rights import Rights, missing_query_error, planned_text
from millpond.api.surface import ControlTables, ServedHandle, ServedPond, ServedStream
from millpond.catalog.objects import QueryDef, RelationDef, StreamDef
from millpond.cql import parse_statement
from millpond.cql.parse.tokens import is_name
from millpond.cql.tree import statements
from millpond.cql.tree.explain_levels import Level
from millpond.cql.tree.statements import Statement
from millpond.errors import MillpondError
from millpond.planner.resolve.names import Names
from millpond.service.changes.feeds.feed import Feed
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.changes.feeds.feeds import follow_feed
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.service.definitions.reset_clock import ClockReset
from millpond.service.ingest.given_rows import RowFormat
from millpond.service.observe.history import Span
from millpond.service.observe.query_costs import QueryCost
from millpond.service.queries.given_registration import Registration, parts
from millpond.service.queries.query_directory import QueryListing
from millpond.service.queries.query_selection import QuerySelection
from millpond.service.queries.registration_request import fill_registration
from millpond.service.results import (
    FACTS_OF_ADMINS,
    Answer,
    IngestReceipt,
    StatementResult,
    report,
)

#: Why plans are the admin's.
_PLANS = "plans are what the queries of all owners share"

#: Why backups are.
_BACKUPS = "a backup has the rows of all owners"

#: Statements that make queries, or have them followed: they are counted one at a time.
_COUNTED = (statements.CreateQuery, statements.Fetch, statements.Alter)


class GuardedPond:
    """A pond whose every call is the caller's: of the request that this thread works for."""

    def __init__(
        self,
        pond: ServedPond,
        find_caller: Callable[[], Caller],
        note: Callable[[Statement | str], None],
    ) -> None:
        """Guard a pond.

        Args:
            pond: The pond.
            find_caller: Says whose request this thread works for, or raises SERVE-706.
            note: Told of every statement before the statement is asked of the rights.
        """
        self._pond = pond
        self._find_caller = find_caller
        self._note = note
        self._quotas = OwnerQuotas(pond)

    # -- statements and queries ----------------------------------------------------------------

    def execute(self, text: str) -> list[StatementResult]:
        return list(self.run(text))

    def run(
        self,
        text: str,
        policy: AccessPolicy | None = None,
        approve: Callable[[Statement], Statement | StatementResult] | None = None,
    ) -> Iterable[StatementResult]:
        """Run a script; each statement is asked of the rights when its turn comes."""
        rights = self._rights()
        caller = rights.caller
        checked: list[Statement] = []
        held = ExitStack()

        def check(statement: Statement) -> Statement | StatementResult:
            self._note(statement)
            allowed = rights.check_statement(statement)
            if isinstance(allowed, statements.Drop) and rights.has_nothing_to_drop(allowed):
                checked[:] = [allowed]
                return report(f"drop {allowed.kind}", allowed.name, "is not there")
            if isinstance(allowed, _COUNTED):
                held.enter_context(self._quotas.counted(caller))
                self._check_statement_quotas(rights, allowed)
            checked[:] = [_with_kept(caller, allowed)]
            return checked[0] if approve is None else approve(checked[0])

        results = iter(self._pond.run(text, policy, check))
        while True:
            with held:
                result = next(results, None)
            if result is None:
                return
            if result.answer is not None:
                limit_rows(caller, len(result.answer.table))
            if isinstance(checked[0], statements.Show):
                result = self._filter_shown(rights, checked[0], result)
            if result.facts is not None and not caller.is_admin:
                hidden = {*FACTS_OF_ADMINS, *rights.list_hidden_facts(checked[0])}
                seen = {k: v for k, v in result.facts.items() if k not in hidden}
                result = replace(result, facts=seen)
            yield result

    def register(self, cql: str, name: str | None = None, **options: Any) -> ServedHandle:
        return self.register_many([(cql, name, options)])[0]

    def register_many(self, queries: Sequence[Registration]) -> list[ServedHandle]:
        rights = self._rights()
        rights.need(Role.WRITER, "registering a query")
        owned: list[Registration] = []
        for cql, name, options in map(parts, queries):
            text, settings = fill_registration(cql, options)
            own = self._own_registration(rights, text, dict(settings))
            given = {"params": options["params"]} if "params" in options else {}
            owned.append((cql, name, {**own, **given}))
        with self._quotas.counted(rights.caller):
            follows = sum(is_to_follow(options) for _, _, options in map(parts, owned))
            self._quotas.check_counts(rights.caller, len(owned), follows)
            handles = self._pond.register_many(owned)
        return [GuardedHandle(self._find_inner(h.id), rights, self._quotas) for h in handles]

    def query(self, name_or_id: str | int) -> ServedHandle:
        rights = self._rights()
        handle = self._find_inner(name_or_id)
        rights.check_query(handle.definition)
        return GuardedHandle(handle, rights, self._quotas)

    def list_queries(
        self,
        selection: QuerySelection,
        order: str = "id",
        descending: bool = False,
        after: int | None = None,
        limit: int | None = None,
    ) -> QueryListing:
        own = self._own_selection(self._rights(), selection)
        return self._pond.list_queries(own, order, descending, after, limit)

    def queries(self, **selection: Any) -> Sequence[QueryDef]:
        return self.list_queries(QuerySelection(**selection)).queries

    def alter_queries(self, selection: QuerySelection, **options: Any) -> int:
        rights = self._rights()
        rights.need(Role.WRITER, "altering queries")
        self._note(f"ALTER {_tell(selection)} SET {_tell(options)}")
        rights.check_owner_option(options)
        own = self._own_selection(rights, selection)
        with self._quotas.counted(rights.caller):
            if is_to_follow(options):
                selected = self._pond.list_queries(own).queries
                self._quotas.check_follow(rights.caller, selected)
            return self._pond.alter_queries(
                own, **limit_kept(rights.caller, options, given_only=True)
            )

    def drop_queries(self, selection: QuerySelection) -> int:
        rights = self._rights()
        self._note(f"DROP {_tell(selection)}")
        rights.need(Role.WRITER, "dropping queries")
        return self._pond.drop_queries(self._own_selection(rights, selection))

    def ask(self, cql: str) -> Answer:
        rights = self._rights()
        rights.check_text(cql)
        answer = self._pond.ask(cql)
        limit_rows(rights.caller, len(answer.table))
        return answer

    # -- changes -------------------------------------------------------------------------------

    def open_feed(
        self,
        selection: QuerySelection,
        after: str | None = None,
        snapshot: bool = False,
        admits: Callable[[QueryDef], bool] | None = None,
    ) -> Feed:
        rights = self._rights()
        if rights.caller.is_admin:
            return self._pond.open_feed(selection, after, snapshot, admits)
        asked = selection
        if after is not None and selection.names is not None:
            # The feed tells that the others ended, whether they are hidden or not there.
            asked = replace(selection, names=tuple(self._find_own(rights, selection.names)))
        own = self._own_selection(rights, asked)
        for name in own.names or ():
            rights.check_query(self._find_inner(name).definition)
        with self._quotas.counted(rights.caller):
            active = [q for q in self._pond.list_queries(own).queries if q.active]
            self._quotas.check_follow(rights.caller, active)
            admitted: dict[int, QueryDef] = {}

            def may_have(query: QueryDef) -> bool:
                try:
                    now = self._find_inner(query.id).definition
                except MillpondError:
                    return rights.may_know_dropped(query)
                if not rights.may_read_query(query) or (admits is not None and not admits(query)):
                    return False
                if now.active and now.id not in admitted:
                    try:
                        self._quotas.check_follow(rights.caller, [*admitted.values(), now])
                    except MillpondError:
                        return False  # the owner follows as many queries as the token allows
                    admitted[now.id] = now
                return True

            if own.names == asked.names:
                own = replace(own, names=selection.names)
            return self._pond.open_feed(own, after, snapshot, may_have)

    def _find_own(self, rights: Rights, names: Sequence[str]) -> Iterator[str]:
        """Find the names of queries that the caller has."""
        for name in names:
            with suppress(MillpondError):
                if rights.may_read_query(self._find_inner(name).definition):
                    yield name

    def subscribe(
        self,
        queries: Sequence[str | int] | None = None,
        *,
        owner: str | None = None,
        tag: str | None = None,
        after: str | None = None,
        follow: bool = True,
        snapshot: bool = False,
    ) -> Iterator[FeedEvent]:
        names = None if queries is None else tuple(str(query) for query in queries)
        feed = self.open_feed(QuerySelection("", owner, tag, None, names), after, snapshot)
        return follow_feed(feed, self.listen, follow)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._pond.listen(listener)

    def derived(self, name: str) -> ServedStream:
        rights = self._rights()
        rights.check_readable(name)
        return GuardedStream(self._pond.derived(name), rights)

    def followed_among(self, queries: Iterable[QueryDef]) -> list[QueryDef]:
        rights = self._rights()
        return self._pond.followed_among(query for query in queries if rights.owns(query))

    def describe_queries(self, queries: Iterable[QueryDef]) -> Iterator[dict[str, Any]]:
        rights = self._rights()
        return self._pond.describe_queries(query for query in queries if rights.owns(query))

    def query_costs(self, queries: Iterable[QueryDef] | None = None) -> list[QueryCost]:
        """What queries cost that the caller owns."""
        rights = self._rights()
        if queries is None and not rights.caller.is_admin:
            queries = self._pond.queries(owner=rights.caller.owner)
        own = None if queries is None else [q for q in queries if rights.owns(q)]
        return self._pond.query_costs(own)

    # -- plans ---------------------------------------------------------------------------------

    def explain(self, text_or_name: str, level: str = "logical") -> str:
        rights = self._rights()
        rights.check_level(level)
        if not rights.caller.is_admin:
            found = self._pond.names.find(text_or_name)
            named = found is not None or is_name(text_or_name)
            if named and not rights.may_name(found):
                raise missing_query_error(text_or_name)
            rights.check_plan(planned_text(found) or text_or_name)
        return self._pond.explain(text_or_name, level)

    def shared_plan(self) -> str:
        self._rights().check_level(Level.SHARED)
        return self._pond.shared_plan()

    def plan_graph(self, query: str | int | None = None) -> dict[str, Any]:
        self._rights().check_level(Level.SHARED)
        return self._pond.plan_graph(query)

    def trace(
        self, stream: str, query: str | int | None = None, tuples: int = 20
    ) -> dict[str, Any]:
        self._rights().need(Role.ADMIN, _PLANS)
        return self._pond.trace(stream, query, tuples)

    def export_plan(self, queries: Sequence[str] | None = None) -> dict[str, Any]:
        self._rights().need(Role.ADMIN, _PLANS)
        return self._pond.export_plan(queries)

    def compare_plan(self, document: Mapping[str, Any]) -> dict[str, Any]:
        self._rights().need(Role.ADMIN, _PLANS)
        return self._pond.compare_plan(document)

    def adopt_plan(
        self, document: Mapping[str, Any], by: str | None = None, base: str | None = None
    ) -> dict[str, Any]:
        """Adopt a plan, as the caller."""
        rights = self._rights()
        rights.need(Role.ADMIN, _PLANS)
        self._note(f"ADOPT PLAN {_tell(document)}")
        caller = rights.caller
        return self._pond.adopt_plan(document, by or caller.owner or caller.id or None, base)

    def adopted_plans(self) -> list[dict[str, Any]]:
        self._rights().need(Role.ADMIN, _PLANS)
        return self._pond.adopted_plans()

    def undo_plan(self, plan: int | None = None) -> dict[str, Any]:
        self._rights().need(Role.ADMIN, _PLANS)
        self._note("UNDO PLAN" if plan is None else f"UNDO PLAN {plan}")
        return self._pond.undo_plan(plan)

    # -- backups -------------------------------------------------------------------------------

    def begin_backup(
        self, directory: str | Path, copy: bool = False, policy: AccessPolicy | None = None
    ) -> dict[str, Any]:
        self._rights().need(Role.ADMIN, _BACKUPS)
        self._note(f"BACKUP {json.dumps(str(directory))}")
        return self._pond.begin_backup(directory, copy, policy)

    def backups(self) -> list[dict[str, Any]]:
        self._rights().need(Role.ADMIN, _BACKUPS)
        return self._pond.backups()

    def backup(self, number: int) -> dict[str, Any]:
        self._rights().need(Role.ADMIN, _BACKUPS)
        return self._pond.backup(number)

    def cancel_backup(self, number: int) -> dict[str, Any]:
        self._rights().need(Role.ADMIN, _BACKUPS)
        self._note(f"CANCEL BACKUP {number}")
        return self._pond.cancel_backup(number)

    # -- rows ----------------------------------------------------------------------------------

    def ingest(
        self,
        stream: str,
        rows: pa.Table | list[dict[str, Any]],
        idempotency_key: str | None = None,
    ) -> IngestReceipt:
        self._check_push(stream)
        return self._pond.ingest(stream, rows, idempotency_key)

    def ingest_text(
        self, stream: str, data: bytes, format: RowFormat, idempotency_key: str | None = None
    ) -> IngestReceipt:
        self._check_push(stream)
        return self._pond.ingest_text(stream, data, format, idempotency_key)

    def stage(self, stream: str, part: str, rows: pa.Table | list[dict[str, Any]]) -> int:
        self._check_push(stream)
        return self._pond.stage(stream, part, rows)

    def stage_text(self, stream: str, part: str, data: bytes, format: RowFormat) -> int:
        self._check_push(stream)
        return self._pond.stage_text(stream, part, data, format)

    def unstage(self, stream: str, parts: Sequence[str]) -> None:
        self._check_push(stream)
        self._pond.unstage(stream, parts)

    def ingest_batch(
        self, stream: str, writer: str, batch: int | None, parts: Sequence[str]
    ) -> IngestReceipt:
        self._check_push(stream)
        return self._pond.ingest_batch(stream, writer, batch, parts)

    def catch_up(self, timeout: float | None = None) -> Any:
        return self._pond.catch_up(timeout)

    def alter_stream(self, name: str, **options: Any) -> None:
        self._rights().need(Role.ADMIN, "a stream is everybody's, and changing it")
        self._pond.alter_stream(name, **options)

    def reset_clock(self, name: str, to: str) -> ClockReset:
        self._rights().need(Role.ADMIN, "a stream is everybody's, and setting its clock back")
        return self._pond.reset_clock(name, to)

    # -- looking -------------------------------------------------------------------------------

    def streams(self) -> list[StreamDef]:
        """The streams the caller is granted; where they come from is the admin's to see."""
        caller = self._find_caller()
        every = [s for s in self._pond.streams() if caller.is_granted(s.name)]
        return every if caller.is_admin else [replace(s, source=None, text="") for s in every]

    def relations(self) -> list[RelationDef]:
        """The relations the caller is granted, as `streams`."""
        caller = self._find_caller()
        every = [r for r in self._pond.relations() if caller.is_granted(r.name)]
        return every if caller.is_admin else [replace(r, source=None, text="") for r in every]

    def functions(self) -> list[dict[str, Any]]:
        self._rights().need(Role.ADMIN, "the figures of functions tell of all owners")
        return self._pond.functions()

    def status(self) -> dict[str, Any]:
        """The status; of a caller who is no admin: the caller's streams and numbers of queries."""
        caller, status = self._find_caller(), self._pond.status()
        if caller.is_admin:
            return status
        own = self._pond.list_queries(QuerySelection(owner=caller.owner))
        return {
            **status,
            "queries": own.total,
            "followed": len(self._pond.followed_among(own.queries)),
            "relations": len(self.relations()),
            "streams": [s for s in status["streams"] if caller.is_granted(s["name"])],
            "problems": [],
            "warnings": [],
            "sinks": [],
            "set_aside": {"files": 0, "bytes": 0},
            "runtime": {},
        }

    @property
    def names(self) -> Names:
        self._rights().need(Role.ADMIN, "the names of all owners")
        return self._pond.names

    @property
    def entities(self) -> ControlTables:
        self._rights().need(Role.ADMIN, "control tables tell of all owners")
        return self._pond.entities

    def history(self, span: Span = "hour") -> dict[str, Any]:
        self._rights().need(Role.ADMIN, "the history tells of all owners")
        return self._pond.history(span)

    @property
    def metrics(self) -> CollectorRegistry:
        self._rights().need(Role.ADMIN, "metrics tell of all owners")
        return self._pond.metrics

    @property
    def ready(self) -> bool:
        return self._pond.ready

    @property
    def trouble(self) -> MillpondError | None:
        return self._pond.trouble

    @property
    def failure(self) -> MillpondError | None:
        return self._pond.failure

    def close(self) -> None:
        """Refuse: the pond is whoever's opened it."""
        raise MillpondError("SERVE-713", "the pond is closed by whoever has opened it")

    # -- quotas --------------------------------------------------------------------------------

    def _check_statement_quotas(self, rights: Rights, statement: Statement) -> None:
        match statement:
            case statements.CreateQuery():
                follows = is_to_follow(statement.options)
                found = self._pond.names.find(statement.name)
                if not isinstance(found, QueryDef):
                    self._quotas.check_counts(rights.caller, 1, int(follows))
                elif statement.or_replace and follows:
                    self._quotas.check_follow(rights.caller, [found])
            case statements.Fetch():
                found = self._pond.names.find(statement.name)
                if isinstance(found, QueryDef):
                    self._quotas.check_follow(rights.caller, [found])
            case statements.Alter(kind="query") if is_to_follow(statement.options):
                found = self._pond.names.find(statement.name)
                if isinstance(found, QueryDef):
                    self._quotas.check_follow(rights.caller, [found])

    # -- what is the caller's ------------------------------------------------------------------

    def _rights(self) -> Rights:
        return Rights(self._find_caller(), self._pond.names)

    def _find_inner(self, name_or_id: str | int) -> ServedHandle:
        """The handle of a query, whoever's; an error suggests no names of others' queries."""
        try:
            return self._pond.query(name_or_id)
        except MillpondError:
            if self._find_caller().is_admin:
                raise
            raise missing_query_error(str(name_or_id)) from None

    def _own_registration(
        self, rights: Rights, cql: str, options: dict[str, Any]
    ) -> dict[str, Any]:
        """Check a query to register; its options with the owner and what may be kept."""
        given = dict(options)
        if isinstance(cql, str) and cql.lstrip()[:6].upper() == "CREATE":
            parsed = parse_statement(cql)
            self._note(parsed)
            if isinstance(parsed, statements.CreateQuery):
                given = {**parsed.options, **given}
            rights.check_statement(parsed)
        elif isinstance(cql, str):
            self._note(cql)
            rights.check_text(cql)
        return limit_kept(rights.caller, rights.own_options(given))

    def _own_selection(self, rights: Rights, selection: QuerySelection) -> QuerySelection:
        """A selection of the caller's queries only. Raises CQL-201 for a name that is none's."""
        if rights.caller.is_admin:
            return selection
        for name in selection.names or ():
            if not rights.owns(self._find_inner(name).definition):
                raise missing_query_error(name)
        if selection.owner is not None and selection.owner.strip() != rights.caller.owner:
            # Nobody's: an id has no text, so no query has both.
            return replace(selection, owner=rights.caller.owner, names=())
        return replace(selection, owner=rights.caller.owner)

    def _check_push(self, stream: str) -> None:
        rights = self._rights()
        rights.need(Role.WRITER, "pushing rows")
        rights.check_readable(stream)

    def _filter_shown(
        self, rights: Rights, statement: statements.Show, result: StatementResult
    ) -> StatementResult:
        """The rows of a SHOW statement that the caller may see."""
        if rights.caller.is_admin or result.table is None:
            return result
        names = result.table["name"].to_pylist()
        shown = pa.array(
            [self._is_shown(rights, statement.what, name) for name in names], pa.bool_()
        )
        table = result.table.filter(shown)
        if "source" in table.column_names:
            place = table.column_names.index("source")
            hidden = pa.array([""] * len(table), pa.string())
            table = table.set_column(place, "source", hidden)
        return replace(result, table=table)

    def _is_shown(self, rights: Rights, what: str, name: str) -> bool:
        if what == "summaries":
            summary = self._pond.names.summary(name)
            return summary is not None and rights.caller.is_granted(summary.stream)
        found = self._pond.names.find(name)
        if isinstance(found, QueryDef):
            return rights.owns(found)
        return found is not None and rights.caller.is_granted(name)


def _with_kept(caller: Caller, statement: Statement) -> Statement:
    """A statement whose query keeps no more changes than the token allows."""
    if isinstance(statement, statements.CreateQuery):
        return replace(statement, options=limit_kept(caller, statement.options))
    if isinstance(statement, statements.Alter) and statement.kind == "query":
        options = limit_kept(caller, statement.options, given_only=True)
        return replace(statement, options=options)
    return statement


def _tell(given: QuerySelection | Mapping[str, Any]) -> str:
    """What a call is given, for the audit: JSON, of a selection its conditions."""
    if isinstance(given, QuerySelection):
        given = {name: value for name, value in asdict(given).items() if value}
    return json.dumps(given, ensure_ascii=False, default=str)
