"""DESCRIBE: the columns of an object, and what else is known of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from millpond.catalog.objects import QueryDef, RelationDef, StreamDef, fold_name, given_options
from millpond.cql.print.printer import print_constraint
from millpond.cql.tree.statements import Describe
from millpond.model.durations import duration_text
from millpond.model.secret_options import find_literal_secret
from millpond.model.time import END, format_instant
from millpond.planner.resolve.inner_streams import PREFIX
from millpond.service.components import Components
from millpond.service.queries.prepared import check_answerable
from millpond.service.queries.window_needs import list_holders
from millpond.service.results import StatementResult
from millpond.service.sinks.sinks import describe_selection
from millpond.service.statements.insert_and_heartbeat import find_table
from millpond.service.statements.show import tabulate
from millpond.state.version import Version


def describe(components: Components, statement: Describe) -> StatementResult:
    """Describe an object; of summaries and sinks those whose name nothing else has.

    Raises CQL-201, POND-402.
    """
    version = components.log.version
    found = version.find(statement.name)
    if found is None and (aside := _describe_aside(version, fold_name(statement.name))):
        nothing = tabulate(["column", "type"], [])
        return StatementResult("describe", statement.name, table=nothing, facts=dict(aside))
    if isinstance(found, QueryDef):
        registrar = components.registrar
        while (bound := registrar.bind_or_suspend(found)) is None:
            found = registrar.find(found.name)
            check_answerable(found)  # else it was dropped, or goes on again
        schema = bound.output
        facts = _describe_query(components, found)
    else:
        table = find_table(components.log.version, statement.name, statement)
        schema = table.schema
        facts = (
            _describe_stream(components, table)
            if isinstance(table, StreamDef)
            else _describe_relation(components, table)
        )
    columns = tabulate(["column", "type"], [(f.name, f.declared) for f in schema.fields])
    return StatementResult("describe", statement.name, table=columns, facts=dict(facts))


def _describe_aside(version: Version, name: str) -> list[tuple[str, str]]:
    """Describe the summary or the sink of a name, which have names of their own."""
    if (summary := version.summaries.get(name)) is not None:
        return [
            ("kind", "summary"),
            ("of", f"{summary.attribute} of {summary.stream}"),
            ("form", summary.kind),
            ("granularity", _length(summary.granularity)),
            ("collapse", f"rate {summary.rate}, depth {summary.depth}"),
            ("memory", f"{summary.memory} bytes"),
        ]
    if (sink := version.sinks.get(name)) is not None:
        return [
            ("kind", "sink"),
            ("to", sink.format),
            ("of", describe_selection(sink)),
            *([("key", ", ".join(sink.key))] if sink.key else []),
            *_describe_options(sink.options),
            ("delivered", f"{sink.position.changes} changes in {sink.position.deliveries}"),
            *([("cursor", sink.position.cursor)] if sink.position.cursor else []),
            *([("dead", sink.dead)] if sink.dead is not None else []),
        ]
    return []


def _describe_options(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The options of a source or a sink, without secrets that are written out."""
    for name, value in options.items():
        is_secret = find_literal_secret({name: str(value)}) is not None
        yield name, "(a secret)" if is_secret else str(value)


def _describe_query(components: Components, query: QueryDef) -> Iterator[tuple[str, str]]:
    yield "kind", "query"
    yield "query", query.text
    if query.template is not None:
        yield "template", query.template.text
        yield "parameters", ", ".join(f"{n} = {v}" for n, v in query.template.constants.items())
    for name, value in given_options(query.options).items():
        yield name, ", ".join(value) if isinstance(value, list | tuple) else str(value)
    if query.suspended is not None:
        yield "suspended", query.suspended
    yield "registered at", format_instant(query.registered_at)
    if (reason := components.subscriptions.find_stop(query)) is not None:
        yield "changes", f"suspended: {reason}"
    else:
        followed = components.log.version.change_log(query.id) is not None
        yield "changes", "computed" if followed else "not asked for yet"
    bound = components.registrar.bind_or_suspend(query)
    if notes := components.find_notes(query, bound):
        yield "notes", "; ".join(notes)
    if sinks := [s.name for s in components.log.version.sinks.values() if s.query_id == query.id]:
        yield "sinks", ", ".join(sinks)


def _describe_stream(components: Components, stream: StreamDef) -> Iterator[tuple[str, str]]:
    if stream.is_pseudo:
        yield "kind", "stream that comes with another" if stream.id >= 0 else "stream of the pond"
        return
    yield "kind", "derived stream" if stream.derived is not None else "stream"
    if stream.derived is not None:
        yield "query", stream.derived.text
    else:
        yield "timestamps", stream.timestamp_by or "arrival"
    if stream.timestamp_by is not None:
        yield "delay", _length(stream.delay) if stream.delay else "none"
        idle = stream.idle_after
        yield "idle after", "never" if idle is None else _length(idle)
    if stream.ahead is not None:
        yield "ahead", "unbounded" if stream.ahead >= END else _length(stream.ahead)
    if stream.retain_rows is not None:
        yield "retain", f"{stream.retain_rows} rows"
    else:
        yield "retain", "everything" if stream.retain is None else _length(stream.retain)
    if stream.retain is not None or stream.retain_rows is not None:
        holders = list_holders(components.registrar, components.log.version, stream)
        if names := _list_some(holders):
            yield "kept longer for", names
    if stream.derived is None:
        yield "source", stream.source_name or "statements"
        yield from _describe_options(stream.source.options if stream.source is not None else {})
        if stream.history is not None and stream.history.until is not None:
            yield "history until", format_instant(stream.history.until)
        yield "overload", stream.overload
    if stream.constraints:
        yield "constraints", ", ".join(map(print_constraint, stream.constraints))
    yield from _describe_readers(components, stream)


def _describe_relation(components: Components, relation: RelationDef) -> Iterator[tuple[str, str]]:
    records = components.sources.records_of(relation)
    derived = relation.view is not None and records is None
    yield "kind", "derived relation" if derived else "relation"
    if relation.primary_key:
        yield "primary key", ", ".join(relation.primary_key)
    if relation.non_retroactive:
        yield "updates", "non retroactive"
    if derived:
        yield "query", relation.view or ""
    elif records is not None:
        yield "source", f"changes of {records.name}"
    else:
        yield "source", relation.source.format if relation.source is not None else "statements"
        yield from _describe_options(relation.source.options if relation.source else {})
    yield from _describe_readers(components, relation)


def _length(length: int) -> str:
    return duration_text(length).lower()


def _describe_readers(
    components: Components, read: StreamDef | RelationDef
) -> Iterator[tuple[str, str]]:
    if names := _list_some(components.registrar.users_of(read)):
        yield "read by", names


def _list_some(names: Sequence[str]) -> str:
    """Write the first names that are anybody's own, and how many more there are."""
    own = [name for name in names if not name.startswith(PREFIX)]
    return ", ".join(own[:20]) + (f" and {len(own) - 20:,} more" if len(own) > 20 else "")
