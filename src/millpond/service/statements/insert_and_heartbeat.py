"""INSERT, UPDATE, DELETE and HEARTBEAT: statements that change what streams and relations hold."""

from __future__ import annotations

import pyarrow as pa

from millpond.catalog.objects import RelationDef, StreamDef, base_name
from millpond.cql.tree import statements
from millpond.cql.tree.statements import Statement
from millpond.errors import MillpondError
from millpond.model.time import format_instant
from millpond.planner.resolve.names import did_you_mean
from millpond.runtime.postgres.source_options import is_replicated
from millpond.service.components import Components
from millpond.service.definitions.reset_clock import ClockReset
from millpond.service.ingest.intake import check_heartbeat
from millpond.service.ingest.sequencer import progress_of, source_key
from millpond.service.results import StatementResult, count_text, report
from millpond.service.statements.insert_values import answer_of, values_of
from millpond.service.statements.update_and_delete import RowChange
from millpond.state.version import Version


class RowStatements:
    """Executes these statements against a pond; errors carry the statement's text."""

    def __init__(self, components: Components) -> None:
        self._components = components

    def insert(self, statement: statements.Insert) -> StatementResult:
        found = find_table(self._components.log.version, statement.name, statement)
        if isinstance(found, StreamDef) and found.is_pseudo:
            raise statement.error(
                "CQL-216",
                f'INSERT into "{found.name}"',
                detail="What becomes of rows is for the stream to say; that is only read.",
                hint=f"INSERT INTO {base_name(found.name)}."
                if found.id > 0
                else "Read it: SELECT * FROM system$actions.",
            )
        if isinstance(found, RelationDef):
            self._refuse_view(found, statement, "INSERT into")
        rows = self._values(statement, found)
        if isinstance(found, StreamDef):
            _refuse_at(statement)
            receipt, number = self._components.intake.push(found, rows)
            self._components.pushed.note(number)
            return report("insert", found.name, str(receipt))
        at = self._instant(statement.at)
        count = self._components.relations_state.insert(found, rows, at)
        return report("insert", found.name, f"{count_text(count, 'row')} inserted")

    def _values(self, statement: statements.Insert, target: StreamDef | RelationDef) -> pa.Table:
        """Compute the rows in the target's columns; missing columns are NULL."""
        names = [f.name for f in target.schema.given]
        given = statement.columns or tuple(names)
        for name in given:
            field = target.schema.find(name)
            if field is not None and field.computed is not None:
                raise statement.error(
                    "CQL-202",
                    f'column "{name}" of "{target.name}" is computed: no value can be given',
                    hint=f"Name columns of {', '.join(names)}.",
                )
            if field is None:
                raise statement.error(
                    "CQL-202",
                    f'no column "{name}" in "{target.name}"',
                    detail=f"Its columns are {', '.join(names)}.",
                    hint=did_you_mean(name, names) or "Name one of these.",
                )
        if len({name.lower() for name in given}) < len(given):
            raise statement.error(
                "CQL-209",
                "a column is named twice",
                hint="Name every column once.",
            )
        if statement.query is not None:
            text = statement.query_text
            self._components.inputs.wait(text)
            answer = self._components.ask(text).table
            return answer_of(statement, given, target, answer, self._components.residual)
        for row in statement.rows:
            if len(row) != len(given):
                raise statement.error(
                    "CQL-217",
                    f"a row has {len(row)} values for {len(given)} columns",
                    detail=f"The columns are {', '.join(given)}.",
                    hint="Give one value a column, or name the columns: INSERT INTO t (a, b).",
                )
        return values_of(statement, given, target, self._components.residual)

    def change(self, statement: statements.Update | statements.Delete) -> StatementResult:
        word = "update" if isinstance(statement, statements.Update) else "delete"
        found = find_table(self._components.log.version, statement.name, statement)
        if isinstance(found, StreamDef):
            raise statement.error(
                "CQL-216",
                f'{word.upper()} of stream "{found.name}"',
                detail="A stream is append-only; only relations are updated.",
                hint="Use a relation for what changes.",
            )
        self._refuse_view(found, statement, f"{word.upper()} of")
        change = RowChange(self._components, found, statement)
        count = change.apply_at(self._instant(statement.at))
        return report(word, found.name, f"{count_text(count, 'row')} {word}d")

    def reset_clock(self, statement: statements.ResetClock) -> StatementResult:
        done = self._components.reset_clock(self._stream(statement), statement.to)
        return report("alter stream", statement.name, describe_reset(done, statement.to))

    def _stream(self, statement: statements.Heartbeat | statements.ResetClock) -> StreamDef:
        return find_written_stream(self._components.log.version, statement.name)

    def heartbeat(self, statement: statements.Heartbeat) -> StatementResult:
        components = self._components
        found = self._stream(statement)
        if found.source is None:
            components.pushed.note(components.intake.heartbeat_to(found, statement.at))
        else:
            with components.sequencer.stream_lock(source_key(found)):
                clock = components.log.version.clock(found.id)
                check_heartbeat(found, progress_of(clock), statement.at)
                components.sequencer.heartbeat_to(found, statement.at)
        at = format_instant(statement.at)
        return report("heartbeat", found.name, f"no element before {at} will come")

    def _refuse_view(self, relation: RelationDef, statement: Statement, what: str) -> None:
        if is_replicated(relation):
            raise statement.error(
                "CQL-216",
                f'{what} relation "{relation.name}"',
                detail="It follows a table of PostgreSQL, and holds what that table holds.",
                hint="Change the table.",
            )
        if relation.view is None:
            return
        records = self._components.sources.records_of(relation)
        raise statement.error(
            "CQL-216",
            f'{what} derived relation "{relation.name}"',
            detail="It holds what its query's answer is, and nothing else."
            if records is None
            else f"It is what the records of {records.name} say.",
            hint="Change the relations its query reads."
            if records is None
            else f"INSERT INTO {records.name}, with the columns {', '.join(records.schema.names)}.",
        )

    def _instant(self, at: int | None) -> int:
        return self._components.current_instant() if at is None else at


def describe_reset(done: ClockReset, to: int) -> str:
    """Say what a reset did, in one line."""
    taken = ""
    if done.taken_back:
        shown = ", ".join(done.taken_back[:5]) + (" …" if len(done.taken_back) > 5 else "")
        taken = f"; changes taken back: {shown}"
    elements = count_text(done.rejected, "element")
    return f"clock set back to {format_instant(to)}, {elements} rejected{taken}"


def find_table(version: Version, name: str, statement: Statement) -> StreamDef | RelationDef:
    """Find the stream or relation a statement names.

    Raises:
        MillpondError: CQL-201, there is none of that name.
    """
    found = version.find(name)
    if isinstance(found, StreamDef | RelationDef):
        return found
    raise unknown_name_error(version, name, statement)


def find_written_stream(version: Version, name: str) -> StreamDef:
    """Find the stream of a name that elements are sent to or read from, or that is derived.

    Raises:
        MillpondError: CQL-201, there is none; CQL-216, it is something else, or Millpond's own.
    """
    found = version.find(name)
    if found is None:
        streams = [s.name for s in version.streams.values() if not s.is_change_log]
        raise MillpondError(
            "CQL-201",
            f'no stream "{name}"',
            hint=did_you_mean(name, streams) or "SHOW STREAMS lists them.",
        )
    if not isinstance(found, StreamDef):
        kind = "relation" if isinstance(found, RelationDef) else "query"
        raise MillpondError(
            "CQL-216", f'"{name}" is a {kind}, not a stream', hint="SHOW STREAMS lists the streams."
        )
    if found.is_pseudo:
        raise MillpondError(
            "CQL-216",
            f'"{name}" is written by Millpond itself',
            detail="It has no clauses, no columns of yours and no heartbeat.",
            hint="Name a stream that elements are sent to or read from.",
        )
    return found


def unknown_name_error(version: Version, name: str, statement: Statement) -> MillpondError:
    """Make the error of naming a stream or relation that does not exist."""
    names = version.names(most_queries=0)
    return statement.error(
        "CQL-201",
        f'no stream or relation "{name}"',
        hint=did_you_mean(name, names) or "SHOW STREAMS and SHOW RELATIONS list what there is.",
    )


def _refuse_at(statement: statements.Insert) -> None:
    if statement.at is None:
        return
    raise statement.error(
        "CQL-103",
        "AT TIMESTAMP on an insert into a stream",
        detail="A stream's elements carry their timestamp in their TIMESTAMP BY column.",
        hint="Leave out AT TIMESTAMP.",
    )
