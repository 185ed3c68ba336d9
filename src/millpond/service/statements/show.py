"""SHOW: lists streams, relations, queries and more as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.catalog.objects import QueryDef, RelationDef, SummaryDef
from millpond.cql.print.printer import print_constraint_form
from millpond.cql.tree.statements import Show
from millpond.model.durations import duration_text
from millpond.operators.protocol.releasing import ReleaseFigures
from millpond.service.changes.dataflow_accounts import sum_figures
from millpond.service.components import Components
from millpond.service.definitions.summaries import describe_summary
from millpond.service.observe.control_tables import Entities
from millpond.state.version import Version


def show(components: Components, entities: Entities, statement: Show) -> pa.Table:
    """Make the table of a SHOW statement."""
    reading = components.floors.capture()
    version = components.log.version
    match statement.what:
        case "streams":
            return tabulate(
                ["name", "time", "rows", "rejected", "heartbeat", "source", "state"],
                [components.sources.row(version, s, reading) for s in version.named_streams()],
            )
        case "relations":
            relations = [
                (r.name, ", ".join(r.primary_key), _describe_source(components, r))
                for r in version.relations.values()
            ]
            return tabulate(["name", "primary key", "source"], relations)
        case "entities":
            rows = [
                (e.id, e.kind, e.of, _list_names(e.figures), _list_names(e.settings))
                for e in entities.every()
            ]
            return tabulate(["id", "kind", "of", "figures", "settings"], rows)
        case "constraints":
            names = ["stream", "name", "constraint", "observed", "violations", "held", "without"]
            return tabulate(names, _list_constraints(components, version))
        case "functions":
            functions = [
                (
                    f["name"],
                    ", ".join(f["arguments"]),
                    f["returns"],
                    f["trusted"],
                    f["calls"],
                    f["rows"],
                )
                for f in components.function_registry.describe()
            ]
            return tabulate(["name", "arguments", "returns", "trusted", "calls", "rows"], functions)
        case "queries":
            queries = [
                (q.name, _state(components, q), q.options.get("materialize", "lazy"), q.text)
                for q in version.queries.values()
            ]
            return tabulate(["name", "state", "materialize", "query"], queries)
        case "sinks":
            names = ["name", "of", "to", "state", "deliveries", "changes", "failures"]
            sinks = [tuple(sink[n] for n in names) for sink in components.sinks.describe()]
            return tabulate(names, sinks)
        case "summaries":
            summaries = [
                (s.name, f"{s.stream} ({s.attribute})", s.kind, *_describe_grid(s), *figures)
                for s in version.summaries.values()
                for figures in [_summary_figures(components, s)]
            ]
            names = ["name", "of", "kind", "granularity", "collapse", "elements", "zones", "bytes"]
            return tabulate(names, summaries)
    raise AssertionError(statement.what)


def _list_constraints(components: Components, version: Version) -> list[tuple[object, ...]]:
    """List the constraints of streams: declared, observed, and the rows of state they save."""
    known: dict[tuple[str, str], list[ReleaseFigures]] = {}
    for figures in components.advancer.accounts.list_releases(version).values():
        for one in figures:
            name = one.rule.stream.lower(), one.rule.constraint.name.lower()
            known.setdefault(name, []).append(one)
    rows: list[tuple[object, ...]] = []
    for stream in version.named_streams():
        # What nobody declared is shown where an operator uses it.
        used = {
            one.rule.constraint.name: one.rule.constraint
            for (name, _), some in known.items()
            if name == stream.name.lower()
            for one in some
            if one.rule.constraint.observed
        }
        for constraint in (*stream.constraints, *used.values()):
            total = sum_figures(known.get((stream.name.lower(), constraint.name.lower()), ()))
            form = print_constraint_form(constraint)
            if total is None:
                rows.append((stream.name, constraint.name, form, None, None, None, None))
                continue
            observed = None
            if total.observed is not None:
                is_time = constraint.time is not None
                observed = duration_text(total.observed) if is_time else f"{total.observed} ROWS"
            without = total.held + total.released
            figured = (observed, total.violations, total.held, without)
            rows.append((stream.name, constraint.name, form, *figured))
    return rows


def _describe_source(components: Components, relation: RelationDef) -> str:
    """Describe where a relation's rows come from."""
    if (records := components.sources.records_of(relation)) is not None:
        return f"changes of {records.name}"
    if relation.view is not None:
        return "query"
    if (trouble := components.replicas.trouble(relation)) is not None:
        detail = f": {trouble.detail}" if trouble.detail else ""
        return f"postgres, stands still: {trouble.primary}{detail}"
    return relation.source.format if relation.source else "statements"


def _describe_grid(summary: SummaryDef) -> tuple[str, str]:
    return duration_text(summary.granularity), f"{summary.rate}, {summary.depth}"


def _summary_figures(components: Components, summary: SummaryDef) -> tuple[int, int, int]:
    with components.log.pin() as pinned:
        figures = describe_summary(pinned, components.invoker.summaries, summary)
    return figures["elements"], figures["zones"], figures["bytes"]


def _list_names(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _state(components: Components, query: QueryDef) -> str:
    if query.suspended is not None:
        return f"suspended: {query.suspended}"
    if query.active and (reason := components.subscriptions.find_stop(query)) is not None:
        return f"changes suspended: {reason}"
    return "active" if query.active else "inactive"


def tabulate(names: Sequence[str], rows: Sequence[Sequence[object]]) -> pa.Table:
    """Make a table of rows; without rows the columns are text."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return pa.table(
        {
            n: pa.array(list(c), None if c else pa.string())
            for n, c in zip(names, columns, strict=True)
        }
    )
