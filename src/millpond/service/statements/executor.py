"""Executes statements: changes the pond and gives each statement's result.

docs/spec/statements.md says what each statement does.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TypeVar

from millpond.catalog.objects import QueryDef, RelationDef, StreamDef
from millpond.cql.tree import statements
from millpond.cql.tree.statements import Statement
from millpond.errors import MillpondError, Span
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.explain.notes import find_notes, find_silences
from millpond.planner.resolve.views import refuse_stream_valued
from millpond.service.changes.derived_streams import derived_stream_query
from millpond.service.components import Components
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.service.definitions.change_fed_relations import change_source, is_change_source
from millpond.service.definitions.declarations import (
    check_columns,
    refuse_taken,
    relation_definition,
    stream_definition,
    timestamp_column,
)
from millpond.service.observe.control_tables import Entities
from millpond.service.observe.explain import Explainer
from millpond.service.queries.options import check_stream_options
from millpond.service.queries.prepared import check_answerable, stream_of
from millpond.service.queries.registration_request import RegistrationRequest
from millpond.service.results import StatementResult, count_text, report
from millpond.service.statements.insert_and_heartbeat import (
    RowStatements,
    find_table,
    unknown_name_error,
)
from millpond.service.statements.show import show, tabulate

_D = TypeVar("_D", StreamDef, RelationDef)


class Executor:
    """Executes parsed statements against the components of a pond.

    Args:
        policy: What the statements may make the pond read; None for all that its process may read.
    """

    def __init__(
        self,
        components: Components,
        explainer: Explainer,
        entities: Entities,
        policy: AccessPolicy | None = None,
    ) -> None:
        self._policy = policy
        self._components = components
        self._explainer = explainer
        self._entities = entities
        self._rows = RowStatements(components)

    def execute(self, statement: Statement) -> StatementResult:
        """Execute one statement; errors carry its text, and a place in it."""
        try:
            dispatch = partial(self._dispatch, statement)
            return self._components.inner_streams.make_for(dispatch)
        except MillpondError as error:
            whereabouts = statement.name_span or Span(0, len(statement.text))
            raise error.at(statement.text, whereabouts) from error

    def _dispatch(self, statement: Statement) -> StatementResult:
        match statement:
            case statements.CreateStream():
                return self._create_stream(statement)
            case statements.CreateRelation():
                return self._create_relation(statement)
            case statements.CreateQuery():
                return self._create_query(statement)
            case statements.CreateSummary():
                with self._components.definitions:
                    summary = self._components.summaries.create(statement)
                self._components.maintenance.wake()
                return report("create summary", summary.name, "created")
            case statements.CreateSink():
                sink = self._components.sinks.create(statement, self._policy)
                return report("create sink", sink.name, "created")
            case statements.Invoke():
                definition = self._query(statement.name, statement)
                self._components.inputs.wait(definition.text)
                answer = self._components.invoke(
                    definition, statement.at, statement.budget, statement.after
                )
                return StatementResult("invoke", definition.name, answer=answer)
            case statements.Ask():
                answer = self._components.ask_once(statement.query_text)
                return StatementResult("ask", answer=answer)
            case statements.AlterSystem():
                self._components.alter_system(statement.options, statement.text)
                return report("alter system", "system", "altered")
            case statements.Alter(kind="sink"):
                sink = self._components.sinks.alter(statement, self._policy)
                return report("alter sink", sink.name, "altered")
            case statements.Drop(kind="sink"):
                self._components.sinks.drop(statement)
                return report("drop sink", statement.name, "dropped")
            case statements.Alter(kind="stream") if declared := self._input(statement.name):
                self._components.alter_stream(declared, statement.options, statement.text)
                return report("alter stream", declared.name, "altered")
            case statements.Alter(kind="stream"):
                stream = self._components.derivations.find(statement.name)
                check_stream_options(statement.options, statement.text)
                self._components.subscriptions.resume(stream)
                return report("alter stream", stream.name, "goes on")
            case statements.AlterConstraint():
                return self._alter_constraint(statement)
            case statements.ResetClock():
                return self._rows.reset_clock(statement)
            case statements.Alter():
                definition = self._query(statement.name, statement)
                self._components.registrar.alter(definition, statement.options, statement.text)
                return report("alter query", definition.name, "altered")
            case statements.Drop():
                dropped = self._drop(statement)
                self._components.inner_streams.drop_unread()
                return dropped
            case statements.Insert():
                return self._rows.insert(statement)
            case statements.Update() | statements.Delete():
                return self._rows.change(statement)
            case statements.Heartbeat():
                return self._rows.heartbeat(statement)
            case statements.Explain():
                return self._explain(statement)
            case statements.Show():
                return StatementResult(
                    "show", table=show(self._components, self._entities, statement)
                )
            case statements.Describe():
                return self._describe(statement)
            case statements.Fetch():
                return self._fetch(statement)
            case statements.CreateDerived():
                return self._create_derived(statement)
        raise AssertionError(statement)

    def _input(self, name: str) -> StreamDef | None:
        """The stream of a name that is not derived; None of anything else."""
        found = self._components.log.version.find(name)
        if isinstance(found, StreamDef) and found.derived is None and not found.is_pseudo:
            return found
        return None

    # -- definitions ---------------------------------------------------------------------------

    def _create_stream(self, statement: statements.CreateStream) -> StatementResult:
        components = self._components
        with components.definitions:
            definition = stream_definition(
                statement, components.log.next_id(), components.log.version
            )
            components.sources.create_stream(self._confine(definition))
        return report("create stream", definition.name, "created")

    def _alter_constraint(self, statement: statements.AlterConstraint) -> StatementResult:
        stream = self._input(statement.name)
        if stream is None:
            self._components.derivations.find(statement.name)
            raise statement.error(
                "CQL-216",
                f'"{statement.name}" is no stream that was declared with its columns',
                hint="Add constraints to the streams that it reads.",
            )
        self._components.alter_constraints(statement, stream)
        return report("alter stream", stream.name, "altered")

    def _create_relation(self, statement: statements.CreateRelation) -> StatementResult:
        components = self._components
        with components.definitions:
            definition = relation_definition(
                statement, components.log.next_id(), components.log.version
            )
            definition = self._confine(definition)
            if is_change_source(statement):
                by = timestamp_column(statement, definition.schema)
                components.sources.create_fed(
                    *change_source(statement, definition, components.log.next_id(), by)
                )
                return report("create relation", definition.name, "created")
            rows = components.sources.create_relation(definition)
        loaded = f", {count_text(rows, 'row')} read" if definition.source else ""
        return report("create relation", definition.name, f"created{loaded}")

    def _confine(self, definition: _D) -> _D:
        """Check the source of a client's definition against the policy."""
        if self._policy is None:
            return definition
        return replace(definition, source=self._policy.confine(definition.source, definition.text))

    def _create_derived(self, statement: statements.CreateDerived) -> StatementResult:
        components = self._components
        text = statement.query_text
        with components.definitions:
            refuse_taken(components.log.version, statement)
            if statement.columns:
                check_columns(statement, components.registrar.bind(statement.written_query).output)
            bound = components.registrar.bind(text)
            if statement.kind == "relation":
                refuse_stream_valued(bound.to_stream, text, statement.name)
                components.sources.create_view(statement.name, bound, statement.text)
            else:
                bound = derived_stream_query(bound)
                components.derivations.create(statement.name, bound, text, statement.text)
        components.advancer.wake()
        done = f"created{self._notes(bound)}"
        return report(f"create {statement.kind}", statement.name, done)

    def _fetch(self, statement: statements.Fetch) -> StatementResult:
        components = self._components
        components.inputs.wait()
        found = components.log.version.find(statement.name)
        if not isinstance(found, StreamDef):
            found = self._query(statement.name, statement)
        changes = components.subscriptions.fetch(found, statement.after, statement.limit)
        return StatementResult("fetch", found.name, changes=changes)

    def _create_query(self, statement: statements.CreateQuery) -> StatementResult:
        text = statement.query_text
        request = RegistrationRequest(
            text, statement.name, statement.options, statement.text, statement.name_span
        )
        (definition,) = self._components.registrar.register([request])
        bound = self._components.registrar.bind_registered(definition.text)
        done = f"registered{self._notes(bound)}"
        if definition.options.get("follow"):
            version = self._components.log.version
            silences = find_silences(
                {s.id: s for s in (stream_of(version, leaf) for leaf in bound.streams)}.values()
            )
            done += "".join(f"; note: {text}" for text in sorted(silences))
        return report("create query", definition.name, done)

    def _notes(self, bound: BoundQuery) -> str:
        return "".join(f"; note: {n}" for n in find_notes(bound, self._components.log.version.find))

    def _drop(self, statement: statements.Drop) -> StatementResult:
        components = self._components
        kind = statement.kind
        # Otherwise a query could be registered meanwhile and lose the stream or relation it reads.
        with components.definitions, components.registrar.lock:
            if kind == "query":
                if isinstance(components.log.version.find(statement.name), StreamDef | RelationDef):
                    raise _other_kind_error(statement)
                components.registrar.unregister(self._query(statement.name, statement))
                return report("drop query", statement.name, "dropped")
            if kind == "summary":
                components.summaries.drop(statement)
                return report("drop summary", statement.name, "dropped")
            wanted = StreamDef if kind == "stream" else RelationDef
            found = components.log.version.find(statement.name)
            if found is None:
                raise unknown_name_error(components.log.version, statement.name, statement)
            if not isinstance(found, wanted) or (isinstance(found, StreamDef) and found.is_pseudo):
                raise _other_kind_error(statement)
            self._refuse_in_use(found, statement)
            components.sources.drop(found)
        return report(f"drop {kind}", statement.name, "dropped")

    def _refuse_in_use(self, found: StreamDef | RelationDef, statement: statements.Drop) -> None:
        components = self._components
        users = components.registrar.users_of(found)
        if records := components.sources.records_of(found):
            readers = components.registrar.users_of(records)
            users += [u for u in readers if u not in (*users, found.name)]
        users += components.summaries.of_stream(found.id)
        if not users:
            return
        named = ", ".join(users[:5]) + (" …" if len(users) > 5 else "")
        raise statement.error(
            "POND-401",
            f'{statement.kind} "{found.name}" is in use',
            detail=f"{count_text(len(users), 'definition')} "
            f"{'reads' if len(users) == 1 else 'read'} it: {named}.",
            hint="DROP them first.",
        )

    # -- looking -------------------------------------------------------------------------------

    def _explain(self, statement: statements.Explain) -> StatementResult:
        plans, level = self._explainer, statement.level
        if statement.name is None:
            return StatementResult("explain", text=plans.of_text(statement.query_text, level))
        found = self._components.log.version.find(statement.name)
        if (text := plans.of(found, level)) is None:
            self._query(statement.name, statement)  # raises what is wrong with the name
        name = found.name if isinstance(found, QueryDef) else statement.name
        return StatementResult("explain", name, text=text)

    def _describe(self, statement: statements.Describe) -> StatementResult:
        found = self._components.log.version.find(statement.name)
        if isinstance(found, QueryDef):
            bound = self._components.registrar.bind_or_suspend(found)
            if bound is None:
                registrar = self._components.registrar
                check_answerable(registrar.find(found.name))
                return self._describe(statement)  # it was dropped, or goes on again
            schema = bound.output
        else:
            schema = find_table(self._components.log.version, statement.name, statement).schema
        table = tabulate(["column", "type"], [(f.name, f.declared) for f in schema.fields])
        return StatementResult("describe", statement.name, table=table)

    # -- names ---------------------------------------------------------------------------------

    def _query(self, name: str, statement: Statement) -> QueryDef:
        return self._components.registrar.find(name, statement.text, statement.name_span)


def _other_kind_error(statement: statements.Drop) -> MillpondError:
    """Make the error of dropping a name that another kind of object has."""
    return statement.error(
        "CQL-216",
        f'"{statement.name}" is not a {statement.kind}',
        hint="DROP STREAM, DROP RELATION and DROP QUERY each drop their own kind.",
    )
