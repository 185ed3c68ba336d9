"""Executes statements: changes the pond and gives each statement's result.

docs/spec/statements.md says what each statement does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from millpond.catalog.objects import QueryDef, RelationDef, StreamDef, SummaryDef, fold_name
from millpond.catalog.sink_def import SinkDef
from millpond.cql.print.printer import print_name, print_statement
from millpond.cql.tree import statements
from millpond.cql.tree.statements import Created, Statement, kind_of
from millpond.errors import MillpondError, Span
from millpond.model.schema import canonical_type
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.explain.notes import find_notes
from millpond.planner.resolve.views import refuse_stream_valued
from millpond.runtime.postgres.source_options import is_replicated
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
from millpond.service.definitions.show_create import is_stated_so, restate
from millpond.service.observe.control_tables import Entities
from millpond.service.observe.explain import Explainer
from millpond.service.queries.options import check_options, check_stream_options
from millpond.service.queries.prepared import knows_all_columns
from millpond.service.queries.registration_request import RegistrationRequest
from millpond.service.results import StatementResult, count_text, report
from millpond.service.statements.describe import describe
from millpond.service.statements.drop import Dependents, Droppable, drop_with, find_dependents
from millpond.service.statements.insert_and_heartbeat import (
    RowStatements,
    find_written_stream,
    unknown_name_error,
)
from millpond.service.statements.show import show

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
            # A query in FROM may need a stream that has to be made first; then it is tried again.
            return self._components.inner_streams.make_for(lambda: self._attempt(statement))
        except MillpondError as error:
            whereabouts = statement.name_span or Span(0, len(statement.text))
            raise error.at(statement.text, whereabouts) from error

    def _attempt(self, statement: Statement) -> StatementResult:
        """Execute a statement, but for IF NOT EXISTS and IF EXISTS where nothing is to be done."""
        if isinstance(statement, Created) and statement.if_not_exists:
            return self._create_unless_there(statement)
        if (
            isinstance(statement, statements.Drop)
            and statement.if_exists
            and self._look_up(statement.kind, statement.name) is None
        ):
            return report(f"drop {statement.kind}", statement.name, "is not there")
        return self._dispatch(statement)

    def _create_unless_there(self, statement: Created) -> StatementResult:
        """Create what a statement says unless there is one; note where that one is another."""
        kind = kind_of(statement)
        if (found := self._look_up(kind, statement.name)) is None:
            try:
                return self._dispatch(statement)
            except MillpondError as error:
                # Somebody may have created it meanwhile.
                found = self._look_up(kind, statement.name)
                if error.code != "CQL-208" or found is None:
                    raise
        other = (
            ""
            if is_stated_so(statement, found, self._components.log.version, self._records_of(found))
            else ", and otherwise: see SHOW CREATE"
        )
        return report(f"create {kind}", found.name, f"is there already{other}")

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
                self._components.inputs.wait(definition.text, definition.text_epoch)
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
            case statements.Alter(kind="stream"):
                return self._alter_stream(statement)
            case statements.AlterConstraint():
                return self._alter_constraint(statement)
            case statements.AddColumn():
                return self._add_column(statement)
            case statements.ResetClock():
                return self._rows.reset_clock(statement)
            case statements.Alter():
                definition = self._query(statement.name, statement)
                self._alter_query(statement, definition)
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
                return describe(self._components, statement)
            case statements.ShowCreate():
                shown = self._find(statement)
                version = self._components.log.version
                created, later = restate(shown, version, self._records_of(shown))
                text = "\n".join(f"{print_statement(step)};" for step in (created, *later))
                return StatementResult("show create", statement.name, text=text)
            case statements.Fetch():
                return self._fetch(statement)
            case statements.CreateDerived():
                return self._create_derived(statement)
        raise AssertionError(statement)

    # -- definitions ---------------------------------------------------------------------------

    def _create_stream(self, statement: statements.CreateStream) -> StatementResult:
        components = self._components

        def define(id: int) -> StreamDef:
            return self._confine(stream_definition(statement, id, components.log.version))

        self._await_runtime(statement, define)
        with components.definitions:
            definition = define(components.log.next_id())
            components.sources.create_stream(definition)
        return report("create stream", definition.name, "created")

    def _alter_stream(self, statement: statements.Alter) -> StatementResult:
        stream = find_written_stream(self._components.log.version, statement.name)
        if stream.derived is not None:
            check_stream_options(statement.options, statement.text)
            self._components.subscriptions.resume(stream)
            return report("alter stream", stream.name, "goes on")
        self._await_pushes(stream)
        self._components.alter_stream(stream, statement.options, statement.text)
        return report("alter stream", stream.name, "altered")

    def _alter_constraint(self, statement: statements.AlterConstraint) -> StatementResult:
        stream = self._declared(statement, "Add constraints to the streams that it reads.")
        self._components.alter_constraints(statement, stream)
        return report("alter stream", stream.name, "altered")

    def _add_column(self, statement: statements.AddColumn) -> StatementResult:
        stream = self._declared(statement, "Drop it, and derive it from another query.")
        column = statement.column
        found = stream.schema.find(column.name)
        if found is not None and statement.if_not_exists:
            is_equal = found.type == canonical_type(column.type)
            other = "" if is_equal else f", and otherwise: it is {found.type}"
            return report("alter stream", stream.name, f"{found.name} is there already{other}")
        self._await_pushes(stream)
        self._components.add_column(statement, stream)
        return report("alter stream", stream.name, "altered")

    def _declared(
        self, statement: statements.AlterConstraint | statements.AddColumn, hint: str
    ) -> StreamDef:
        """The stream that a statement alters, which was declared with its columns."""
        stream = find_written_stream(self._components.log.version, statement.name)
        if stream.derived is not None:
            raise statement.error(
                "CQL-216",
                f'"{statement.name}" is no stream that was declared with its columns',
                hint=hint,
            )
        return stream

    def _create_relation(self, statement: statements.CreateRelation) -> StatementResult:
        components = self._components

        def define(id: int) -> RelationDef:
            return self._confine(relation_definition(statement, id, components.log.version))

        self._await_runtime(statement, define)
        with components.definitions:
            definition = define(components.log.next_id())
            if is_change_source(statement):
                by = timestamp_column(statement, definition.schema)
                components.sources.create_fed(
                    *change_source(statement, definition, components.log.next_id(), by)
                )
                return report("create relation", definition.name, "created")
            if is_replicated(definition):
                rows = components.replicas.create(definition)
                components.events.definitions_changed()
            else:
                rows = components.sources.create_relation(definition)
        loaded = f", {count_text(rows, 'row')} read" if definition.source else ""
        return report("create relation", definition.name, f"created{loaded}")

    def _await_runtime(
        self,
        statement: statements.CreateStream | statements.CreateRelation,
        define: Callable[[int], object],
    ) -> None:
        """Wait for what a source is looked at with while others can still define things.

        What is wrong with the statement is said without waiting.
        """
        if statement.source is not None:
            define(0)  # no id is taken for it
            self._components.runtime.wait_until_started()

    def _await_pushes(self, stream: StreamDef) -> None:
        """Let others define things while Spark starts, before which no pushed row is an element.

        A stream is altered behind the rows that were pushed before.
        """
        if stream.id in self._components.intake.list_waiting_streams():
            self._components.runtime.wait_until_started()

    def _confine(self, definition: _D) -> _D:
        """Check the source of a client's definition against the policy."""
        if self._policy is None:
            return definition
        changed: dict[str, Any] = {
            "source": self._policy.confine(definition.source, definition.text)
        }
        if isinstance(definition, StreamDef) and definition.history is not None:
            files = self._policy.confine(definition.history.source, definition.text)
            assert files is not None
            changed["history"] = replace(definition.history, source=files)
        return replace(definition, **changed)

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
                components.new_derivations.create(statement.name, bound, text, statement.text)
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
        request = RegistrationRequest.of_statement(statement)
        text = request.text
        registrar = self._components.registrar
        replaced = None
        if statement.or_replace:
            found = self._look_up("query", statement.name)
            if (
                isinstance(found, QueryDef)
                and is_stated_so(statement, found, self._components.log.version)
                and knows_all_columns(self._components.log.version, registrar.bind(text), found)
            ):
                return report("create query", found.name, "is there already")
            replaced = self._components.redefinitions.replace(request)
            self._components.inner_streams.drop_unread()
        definition = replaced or registrar.register([request])[0]
        bound = self._components.registrar.bind_registered(definition.text, definition.text_epoch)
        notes = self._notes(bound, bool(definition.options.get("follow")))
        done = f"{'registered' if replaced is None else 'replaced'}{notes}"
        return report("create query", definition.name, done)

    def _alter_query(self, statement: statements.Alter, definition: QueryDef) -> None:
        components = self._components
        if statement.constants:
            components.redefinitions.alter_parameters(
                definition, statement.constants, statement.options
            )
            components.inner_streams.drop_unread()
        else:
            components.registrar.alter(definition, statement.options, statement.text)

    def _notes(self, bound: BoundQuery, is_followed: bool = False) -> str:
        notes = find_notes(bound, self._components.log.version.find, is_followed)
        return "".join(f"; note: {note}" for note in notes)

    def _drop(self, statement: statements.Drop) -> StatementResult:
        components = self._components
        kind = f"drop {statement.kind}"
        # Otherwise a query could be registered meanwhile and lose the stream or relation it reads.
        with components.definitions, components.registrar.lock:
            found = self._find(statement)
            dependents = find_dependents(components, found)
            if statement.cascade and dependents.found:
                drop_with(components, dependents)
                return report(kind, found.name, f"dropped, with {dependents.describe()}")
            match found:
                case QueryDef():
                    components.registrar.unregister(found)
                case SinkDef():
                    components.sinks.drop(statement)
                case _ if dependents.found:
                    raise _in_use_error(statement, dependents)
                case SummaryDef():
                    components.summaries.drop(statement)
                case _:
                    with components.replicas.dropping([found]):
                        components.sources.drop(found)
        return report(kind, statement.name, "dropped")

    # -- looking -------------------------------------------------------------------------------

    def _explain(self, statement: statements.Explain) -> StatementResult:
        plans, level = self._explainer, statement.level
        if statement.name is None:
            options = check_options(statement.options, statement.text)
            told = plans.explain_text(statement.query_text, level, options=options)
            return StatementResult("explain", text=told)
        found = self._components.log.version.find(statement.name)
        if (text := plans.explain_object(found, level)) is None:
            self._query(statement.name, statement)  # raises what is wrong with the name
        name = found.name if isinstance(found, QueryDef) else statement.name
        return StatementResult("explain", name, text=text)

    # -- names ---------------------------------------------------------------------------------

    def _look_up(self, kind: str, name: str) -> Droppable | None:
        """The object of a kind and a name, if there is one."""
        version = self._components.log.version
        if kind == "summary":
            return version.summaries.get(fold_name(name))
        if kind == "sink":
            return version.sinks.get(fold_name(name))
        found = version.find(name)
        wanted = {"stream": StreamDef, "relation": RelationDef, "query": QueryDef}[kind]
        return found if isinstance(found, wanted) else None

    def _records_of(self, found: Droppable) -> StreamDef | None:
        """The stream of the records that a relation is fed by."""
        return (
            self._components.sources.records_of(found) if isinstance(found, RelationDef) else None
        )

    def _find(self, statement: statements.Drop | statements.ShowCreate) -> Droppable:
        """The object that a statement names. Raises CQL-201, CQL-216."""
        components = self._components
        version = components.log.version
        if statement.kind == "summary":
            return components.summaries.find(statement.name)
        if statement.kind == "sink":
            return components.sinks.find(statement.name)
        found = version.find(statement.name)
        if statement.kind == "query":
            if isinstance(found, StreamDef | RelationDef):
                raise _other_kind_error(statement)
            return self._query(statement.name, statement)
        if found is None:
            raise unknown_name_error(version, statement.name, statement)
        wanted = StreamDef if statement.kind == "stream" else RelationDef
        if not isinstance(found, wanted) or (isinstance(found, StreamDef) and found.is_pseudo):
            raise _other_kind_error(statement)
        return found

    def _query(self, name: str, statement: Statement) -> QueryDef:
        return self._components.registrar.find(name, statement.text, statement.name_span)


def _in_use_error(statement: statements.Drop, dependents: Dependents) -> MillpondError:
    count = len(dependents.named)
    return statement.error(
        "POND-401",
        f'{statement.kind} "{dependents.root.name}" is in use',
        detail=f"{count_text(count, 'definition')} {'reads' if count == 1 else 'read'} it: "
        f"{dependents.describe()}.",
        hint="DROP them first, or all of them together: "
        f"DROP {statement.kind.upper()} {print_name(dependents.root.name)} CASCADE.",
    )


def _other_kind_error(statement: statements.Drop | statements.ShowCreate) -> MillpondError:
    """Make the error of a name that another kind of object has."""
    verb = "DROP" if isinstance(statement, statements.Drop) else "SHOW CREATE"
    return statement.error(
        "CQL-216",
        f'"{statement.name}" is not a {statement.kind}',
        hint=f"{verb} STREAM, {verb} RELATION and {verb} QUERY are each of their own kind.",
    )
