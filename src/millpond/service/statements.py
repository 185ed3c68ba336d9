"""Statements: what each does to the pond and what it gives back (docs/spec/statements.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from millpond.catalog.objects import QueryDef, RelationDef, StreamDef
from millpond.cql import print_query, statements, to_duckdb
from millpond.cql.statements import Statement
from millpond.errors import MillpondError, Span
from millpond.model.time import format_instant
from millpond.planner.names import did_you_mean
from millpond.planner.user_functions import name_functions
from millpond.planner.views import refuse_stream_valued
from millpond.service.change_sources import change_source, is_change_source
from millpond.service.definitions import (
    derived_stream_query,
    refuse_taken,
    relation_definition,
    stream_definition,
    timestamp_column,
)
from millpond.service.intake import check_heartbeat
from millpond.service.options import check_stream_options
from millpond.service.registration import Request
from millpond.service.relations import quoted
from millpond.service.results import StatementResult, counted
from millpond.service.sequencer import progress_of, source_key
from millpond.service.values import values_of
from millpond.state.version import Version

if TYPE_CHECKING:
    from millpond.service.pond import Pond


class Executor:
    """Executes parsed statements against a pond."""

    def __init__(self, pond: Pond) -> None:
        self._pond = pond

    def execute(self, statement: Statement) -> StatementResult:
        """Execute one statement; errors carry its text."""
        match statement:
            case statements.CreateStream():
                return self._create_stream(statement)
            case statements.CreateRelation():
                return self._create_relation(statement)
            case statements.CreateQuery():
                return self._create_query(statement)
            case statements.Invoke():
                definition = self._query(statement.name, statement)
                self._pond.before_answer(definition.text)
                answer = self._pond.invoke(definition, statement.at)
                return StatementResult("invoke", definition.name, answer=answer)
            case statements.Ask():
                text = query_text(statement)
                self._pond.before_answer(text)
                return StatementResult("ask", answer=self._pond.ask_text(text))
            case statements.Alter(kind="stream"):
                handle = self._pond.derived(statement.name)
                handle.alter(**check_stream_options(statement.options, statement.text))
                return _message("alter stream", handle.name, "goes on")
            case statements.Alter():
                definition = self._query(statement.name, statement)
                self._pond.registrar.alter(definition, statement.options, statement.text)
                return _message("alter query", definition.name, "altered")
            case statements.Drop():
                return self._drop(statement)
            case statements.Insert():
                return self._insert(statement)
            case statements.Update() | statements.Delete():
                return self._change(statement)
            case statements.Heartbeat():
                return self._heartbeat(statement)
            case statements.Explain():
                return self._explain(statement)
            case statements.Show():
                return StatementResult("show", table=self._show(statement))
            case statements.Describe():
                return self._describe(statement)
            case statements.Fetch():
                return self._fetch(statement)
            case statements.CreateDerived():
                return self._create_derived(statement)
        raise AssertionError(statement)

    # -- definitions ---------------------------------------------------------------------------

    def _create_stream(self, statement: statements.CreateStream) -> StatementResult:
        pond = self._pond
        with pond.definitions:
            definition = stream_definition(statement, pond.log.next_id(), pond.log.version)
            pond.sources.create_stream(definition)
        return _message("create stream", definition.name, "created")

    def _create_relation(self, statement: statements.CreateRelation) -> StatementResult:
        pond = self._pond
        with pond.definitions:
            definition = relation_definition(statement, pond.log.next_id(), pond.log.version)
            if is_change_source(statement):
                by = timestamp_column(statement, definition.schema)
                pond.sources.create_fed(
                    *change_source(statement, definition, pond.log.next_id(), by)
                )
                return _message("create relation", definition.name, "created")
            rows = pond.sources.create_relation(definition)
        loaded = f", {counted(rows, 'row')} read" if definition.source else ""
        return _message("create relation", definition.name, f"created{loaded}")

    def _create_derived(self, statement: statements.CreateDerived) -> StatementResult:
        pond = self._pond
        text = query_text(statement)
        with pond.definitions:
            refuse_taken(pond.log.version, statement)
            bound = pond.registrar.bind(text)
            if statement.kind == "relation":
                refuse_stream_valued(bound.to_stream, text, statement.name)
                pond.sources.create_view(statement.name, bound, statement.text)
            else:
                bound = derived_stream_query(bound)
                pond.derivations.create(statement.name, bound, text, statement.text)
        pond.advancer.wake()
        return _message(f"create {statement.kind}", statement.name, "created")

    def _fetch(self, statement: statements.Fetch) -> StatementResult:
        pond = self._pond
        pond.before_answer()
        found = pond.log.version.find(statement.name)
        if not isinstance(found, StreamDef):
            found = self._query(statement.name, statement)
        changes = pond.following.fetch(found, statement.after, statement.limit)
        return StatementResult("fetch", found.name, changes=changes)

    def _create_query(self, statement: statements.CreateQuery) -> StatementResult:
        text = query_text(statement)
        request = Request(
            text, statement.name, statement.options, statement.text, statement.name_span
        )
        (definition,) = self._pond.registrar.register([request])
        return _message("create query", definition.name, "registered")

    def _drop(self, statement: statements.Drop) -> StatementResult:
        pond = self._pond
        kind = statement.kind
        # A query that is registered meanwhile would lose what it reads.
        with pond.definitions, pond.registrar.lock:
            if kind == "query":
                if isinstance(pond.log.version.find(statement.name), StreamDef | RelationDef):
                    raise _other_kind(statement)
                pond.registrar.unregister(self._query(statement.name, statement))
                return _message("drop query", statement.name, "dropped")
            if kind == "summary":
                raise MillpondError(
                    "CQL-201",
                    f'no summary "{statement.name}"',
                    detail="There are no summaries.",
                    hint="DROP QUERY, DROP STREAM and DROP RELATION drop what there is.",
                    text=statement.text,
                    span=statement.name_span,
                )
            wanted = StreamDef if kind == "stream" else RelationDef
            found = pond.log.version.find(statement.name)
            if found is None:
                found = self._table(statement.name, statement)
            if not isinstance(found, wanted) or (
                isinstance(found, StreamDef) and found.rejects_of is not None
            ):
                raise _other_kind(statement)
            users = pond.registrar.users_of(found)
            if records := pond.sources.records_of(found):
                readers = pond.registrar.users_of(records)
                users += [u for u in readers if u not in (*users, found.name)]
            if users:
                shown = ", ".join(users[:5]) + (" …" if len(users) > 5 else "")
                raise MillpondError(
                    "POND-401",
                    f'{kind} "{found.name}" is in use',
                    detail=f"{counted(len(users), 'definition')} "
                    f"{'reads' if len(users) == 1 else 'read'} it: {shown}.",
                    hint="DROP them first.",
                    text=statement.text,
                    span=statement.name_span,
                )
            pond.sources.drop(found)
        return _message(f"drop {kind}", statement.name, "dropped")

    # -- rows ----------------------------------------------------------------------------------

    def _insert(self, statement: statements.Insert) -> StatementResult:
        found = self._table(statement.name, statement)
        if isinstance(found, StreamDef) and found.rejects_of is not None:
            raise MillpondError(
                "CQL-216",
                f'INSERT into "{found.name}"',
                detail="What is rejected is for the stream to say; its rejects are only read.",
                hint=f"INSERT INTO {found.name.removesuffix('$rejects')}.",
                text=statement.text,
                span=statement.name_span,
            )
        if isinstance(found, RelationDef):
            self._refuse_view(found, statement, "INSERT into")
        rows = self._values(statement, found)
        if isinstance(found, StreamDef):
            _refuse_at(statement)
            receipt, number = self._pond.intake.push(found, rows)
            self._pond.stated(number)
            return _message("insert", found.name, str(receipt))
        at = self._instant(statement.at)
        count = self._pond.relations_state.insert(found, rows, at)
        return _message("insert", found.name, f"{counted(count, 'row')} inserted")

    def _values(self, statement: statements.Insert, target: StreamDef | RelationDef) -> pa.Table:
        """The rows of VALUES in the target's columns; missing columns are NULL."""
        names = [f.name for f in target.schema.fields]
        given = statement.columns or tuple(names)
        for name in given:
            if target.schema.find(name) is None:
                raise MillpondError(
                    "CQL-202",
                    f'no column "{name}" in "{target.name}"',
                    detail=f"Its columns are {', '.join(names)}.",
                    hint=did_you_mean(name, names) or "Name one of these.",
                    text=statement.text,
                    span=statement.name_span,
                )
        if len({name.lower() for name in given}) < len(given):
            raise MillpondError(
                "CQL-209",
                "a column is named twice",
                hint="Name every column once.",
                text=statement.text,
                span=statement.name_span,
            )
        for row in statement.rows:
            if len(row) != len(given):
                raise MillpondError(
                    "CQL-217",
                    f"a row has {len(row)} values for {len(given)} columns",
                    detail=f"The columns are {', '.join(given)}.",
                    hint="Give one value a column, or name the columns: INSERT INTO t (a, b).",
                    text=statement.text,
                    span=statement.name_span,
                )
        return values_of(statement, given, target, self._pond.residual)

    def _change(self, statement: statements.Update | statements.Delete) -> StatementResult:
        word = "update" if isinstance(statement, statements.Update) else "delete"
        found = self._table(statement.name, statement)
        if isinstance(found, StreamDef):
            raise MillpondError(
                "CQL-216",
                f'{word.upper()} of stream "{found.name}"',
                detail="A stream is append-only; only relations are updated.",
                hint="Use a relation for what changes.",
                text=statement.text,
                span=statement.name_span,
            )
        self._refuse_view(found, statement, f"{word.upper()} of")
        at = self._instant(statement.at)
        where = statement.where
        self._check_scalar(statement, found, where)
        self._name_functions(where, *dict(getattr(statement, "assignments", ())).values())
        condition = to_duckdb(where) if where is not None else None
        if isinstance(statement, statements.Delete):
            count = self._pond.relations_state.delete(found, condition, at)
            return _message("delete", found.name, f"{counted(count, 'row')} deleted")
        assignments = {}
        for name, value in statement.assignments:
            if found.schema.find(name) is None:
                raise MillpondError(
                    "CQL-202",
                    f'no column "{name}" in "{found.name}"',
                    detail=f"Its columns are {', '.join(found.schema.names)}.",
                    hint=did_you_mean(name, found.schema.names) or "Name one of these.",
                    text=statement.text,
                    span=statement.name_span,
                )
            self._check_scalar(statement, found, value, boolean=False)
            assignments[name] = to_duckdb(value)
        count = self._pond.relations_state.update(found, assignments, condition, at)
        return _message("update", found.name, f"{counted(count, 'row')} updated")

    def _check_scalar(
        self,
        statement: Statement,
        relation: RelationDef,
        value: exp.Expression | None,
        boolean: bool = True,
    ) -> None:
        """Bind an expression as the WHERE or the SELECT list of a query over the relation.

        What SET computes must be one value a row, so it is bound in a WHERE too.
        """
        if value is None:
            return
        name = quoted(relation.name)
        text = print_query(value)
        probe = f"SELECT * FROM {name} WHERE {text}" if boolean else f"SELECT {text} FROM {name}"
        try:
            self._pond.registrar.bind(probe)
            if not boolean:
                self._check_row_wise(f"SELECT * FROM {name} WHERE ({text}) IS NULL")
        except MillpondError as error:
            error.text, error.span = statement.text, None
            start = statement.text.find(text)
            if start >= 0:
                error.span = Span(start, start + len(text))
            raise

    def _name_functions(self, *values: exp.Expression | None) -> None:
        """Say user-defined functions as DuckDB knows them, in trees that are the statement's."""
        for value in values:
            if value is not None:
                name_functions(value, self._pond.registrar.names)

    def _check_row_wise(self, probe: str) -> None:
        try:
            self._pond.registrar.bind(probe)
        except MillpondError as error:
            raise MillpondError(
                "CQL-206",
                "the value in SET is not computed from one row",
                detail="Aggregates, window functions and UNNEST speak of several rows.",
                hint="Compute it in a query, and set the constant it gives.",
            ) from error

    def _heartbeat(self, statement: statements.Heartbeat) -> StatementResult:
        pond = self._pond
        found = self._table(statement.name, statement)
        if not isinstance(found, StreamDef) or found.rejects_of is not None:
            raise MillpondError(
                "CQL-216",
                f'"{statement.name}" has no heartbeat',
                detail="Only streams have heartbeats.",
                hint="Name a stream.",
                text=statement.text,
                span=statement.name_span,
            )
        if found.source is None:
            pond.stated(pond.intake.promise(found, statement.at))
        else:
            with pond.sequencer.stream_lock(source_key(found)):
                clock = pond.log.version.clock(found.id)
                check_heartbeat(found, progress_of(clock), statement.at)
                pond.sequencer.promise(found, statement.at)
        at = format_instant(statement.at)
        return _message("heartbeat", found.name, f"no element before {at} will come")

    # -- looking -------------------------------------------------------------------------------

    def _explain(self, statement: statements.Explain) -> StatementResult:
        if statement.name is not None:
            derived = self._pond.log.version.find(statement.name)
            if (text := self._pond.explain_derived(derived, statement.level)) is not None:
                return StatementResult("explain", statement.name, text=text)
            definition = self._query(statement.name, statement)
            text = self._pond.explain_query(definition, statement.level)
            return StatementResult("explain", definition.name, text=text)
        assert statement.query is not None
        query = query_text(statement)
        return StatementResult("explain", text=self._pond.explain_text(query, statement.level))

    def _show(self, statement: statements.Show) -> pa.Table:
        moment = self._pond.promises.capture()
        version = self._pond.log.version
        match statement.what:
            case "streams":
                return _table(
                    ["name", "time", "rows", "rejected", "heartbeat", "source", "state"],
                    [self._pond.sources.row(version, s, moment) for s in version.named_streams()],
                )
            case "relations":
                rows = [
                    (
                        r.name,
                        ", ".join(r.primary_key),
                        self._fed_by(r),
                    )
                    for r in version.relations.values()
                ]
                return _table(["name", "primary key", "source"], rows)
            case "entities":
                every = [
                    (e.id, e.kind, e.of, _listed(e.figures), _listed(e.settings))
                    for e in self._pond.entities.every()
                ]
                return _table(["id", "kind", "of", "figures", "settings"], every)
            case "functions":
                functions = [
                    (f["name"], ", ".join(f["arguments"]), f["returns"], f["calls"], f["rows"])
                    for f in self._pond.functions()
                ]
                return _table(["name", "arguments", "returns", "calls", "rows"], functions)
            case "queries":
                queries = [
                    (q.name, _state(q), q.options.get("materialize", "lazy"), q.text)
                    for q in version.queries.values()
                ]
                return _table(["name", "state", "materialize", "query"], queries)
        raise _later(statement, f"SHOW {statement.what.upper()}", "There are none yet.")

    def _fed_by(self, relation: RelationDef) -> str:
        """Where a relation's rows come from, as SHOW says it."""
        if (records := self._pond.sources.records_of(relation)) is not None:
            return f"changes of {records.name}"
        if relation.view is not None:
            return "query"
        return relation.source.format if relation.source else "statements"

    def _describe(self, statement: statements.Describe) -> StatementResult:
        found = self._pond.log.version.find(statement.name)
        if isinstance(found, QueryDef):
            schema = self._pond.registrar.bind(found.text).output
        else:
            schema = self._table(statement.name, statement).schema
        rows = [(f.name, f.type) for f in schema.fields]
        return StatementResult("describe", statement.name, table=_table(["column", "type"], rows))

    # -- names ---------------------------------------------------------------------------------

    def _instant(self, at: int | None) -> int:
        return self._pond.present() if at is None else at

    def _query(self, name: str, statement: Statement) -> QueryDef:
        span = getattr(statement, "name_span", None)
        return self._pond.registrar.find(name, statement.text, span)

    def _table(self, name: str, statement: Statement) -> StreamDef | RelationDef:
        version: Version = self._pond.log.version
        found = version.find(name)
        if isinstance(found, StreamDef | RelationDef):
            return found
        names = [n for n in version.names() if not isinstance(version.find(n), QueryDef)]
        raise self._unknown("stream or relation", name, statement, names)

    def _refuse_view(self, relation: RelationDef, statement: Statement, what: str) -> None:
        if relation.view is None:
            return
        records = self._pond.sources.records_of(relation)
        raise MillpondError(
            "CQL-216",
            f'{what} derived relation "{relation.name}"',
            detail="It holds what its query's answer is, and nothing else."
            if records is None
            else f"It is what the records of {records.name} say.",
            hint="Change the relations its query reads."
            if records is None
            else f"INSERT INTO {records.name}, with the columns {', '.join(records.schema.names)}.",
            text=statement.text,
            span=getattr(statement, "name_span", None),
        )

    @staticmethod
    def _unknown(kind: str, name: str, statement: Statement, names: Sequence[str]) -> MillpondError:
        return MillpondError(
            "CQL-201",
            f'no {kind} "{name}"',
            hint=did_you_mean(name, names) or "SHOW STREAMS and SHOW RELATIONS list what there is.",
            text=statement.text,
            span=getattr(statement, "name_span", None),
        )


def _other_kind(statement: statements.Drop) -> MillpondError:
    """The error of dropping what has the name, and is another kind of object."""
    return MillpondError(
        "CQL-216",
        f'"{statement.name}" is not a {statement.kind}',
        hint="DROP STREAM, DROP RELATION and DROP QUERY each drop their own kind.",
        text=statement.text,
        span=statement.name_span,
    )


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _message(statement: str, name: str, done: str) -> StatementResult:
    kind = statement.split()[-1]
    subject = f"{kind} {name}" if kind in ("stream", "relation", "query") else name
    return StatementResult(statement, name, message=f"{subject}: {done}")


def query_text(statement: Statement) -> str:
    """The text of a statement's query, as it was written."""
    span = getattr(statement, "query_span", None)
    return statement.text if span is None else statement.text[span.start : span.end]


def _refuse_at(statement: statements.Insert) -> None:
    if statement.at is None:
        return
    raise MillpondError(
        "CQL-103",
        "AT TIMESTAMP on an insert into a stream",
        detail="A stream's elements carry their timestamp in their TIMESTAMP BY column.",
        hint="Leave out AT TIMESTAMP.",
        text=statement.text,
        span=statement.name_span,
    )


def _later(statement: Statement, what: str, detail: str) -> MillpondError:
    start = max(statement.text.upper().find(what.split()[0]), 0)
    return MillpondError(
        "CQL-301",
        f"{what} is not available yet",
        detail=detail,
        hint="Answers are read with INVOKE.",
        text=statement.text,
        span=Span(start, start + len(what.split()[0])),
    )


def _state(query: QueryDef) -> str:
    if query.suspended is not None:
        return f"suspended: {query.suspended}"
    return "active" if query.active else "inactive"


def _table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return pa.table(
        {
            n: pa.array(list(c), None if c else pa.string())
            for n, c in zip(names, columns, strict=True)
        }
    )
