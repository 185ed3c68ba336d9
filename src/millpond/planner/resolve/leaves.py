"""Occurrences of streams and relations: find the definition, window and sample of each."""

from __future__ import annotations

from sqlglot import exp

from millpond.catalog.objects import QueryDef, RelationDef, StreamDef
from millpond.cql.tree import nodes
from millpond.cql.tree.places import span_of
from millpond.errors import MillpondError, Span
from millpond.model.schema import Schema
from millpond.model.windows import Bound, Now, Period, Range, Rows, Unbounded, Window
from millpond.planner.resolve.names import (
    Names,
    did_you_mean,
    join_names,
    see_definition,
    spell,
)
from millpond.planner.resolve.scope import Leaf


def period_of(node: nodes.Period) -> Period:
    """Return the window of a `BEGIN … END`."""
    begin, end = node.args["begin"], node.args["end"]
    return Period(
        Bound(begin.args.get("instant"), begin.args.get("offset")),
        Bound(end.args.get("instant"), end.args.get("offset")),
    )


def leaf_of(
    table: exp.Table, text: str, catalog: Names, period: Period | None, *, direct: bool
) -> Leaf:
    """Make the leaf of a table reference that is no CTE.

    Args:
        table: The reference.
        text: The statement's text, for errors.
        catalog: Where the name is looked up.
        period: The `BEGIN … END` in force, if any.
        direct: Whether the period belongs to the reference's own SELECT. Then a window of the
            reference contradicts the period; in a subquery the reference's own window wins.

    Raises:
        MillpondError: CQL-201, CQL-204, CQL-216 or CQL-218.
    """
    definition = _find(table, text, catalog)
    leaf = Leaf(table, definition)
    window = table.args.get(nodes.WINDOW)
    sample = table.args.get(nodes.STREAM_SAMPLE)
    if isinstance(definition, RelationDef):
        if window is not None:
            raise windowed_relation_error(definition.name, window, text)
        if sample is not None:
            raise sampled_relation_error(definition.name, sample, text)
        return leaf
    if window is not None:
        leaf.window = _window(window, definition.schema, definition.name, text)
        if period is not None and direct:
            raise MillpondError(
                "CQL-218",
                f'"{definition.name}" has a window in brackets and BEGIN … END besides',
                detail="BEGIN … END is the window of every stream of the FROM clause.",
                hint="Keep one of the two.",
                text=text,
                span=span_of(window),
            )
    elif period is not None:
        leaf.window = period
    if sample is not None:
        leaf.sample = sample_of(sample)
    return leaf


def sample_of(sample: exp.Expr) -> float:
    """Return the per cent of a `SAMPLE(p)`."""
    return float(sample.name)


def name_span(table: exp.Table) -> Span | None:
    """Find the place of a table reference's name, without its window and alias."""
    parts = [s for s in (span_of(p) for p in table.parts) if s is not None]
    return Span(min(s.start for s in parts), max(s.end for s in parts)) if parts else None


def _find(table: exp.Table, text: str, catalog: Names) -> StreamDef | RelationDef:
    name = ".".join(p.name for p in table.parts)
    definition = see_definition(table, catalog.find(name))
    if isinstance(definition, StreamDef | RelationDef):
        return definition
    if isinstance(definition, QueryDef):
        raise MillpondError(
            "CQL-216",
            f'"{definition.name}" is a standing query, not a stream or relation',
            detail="A FROM clause reads streams and relations.",
            hint=f"Read its answer with INVOKE {definition.name}, or write its text as a "
            "subquery here.",
            text=text,
            span=name_span(table),
        )
    readable = [n for n in catalog.names() if not isinstance(catalog.find(n), QueryDef)]
    raise MillpondError(
        "CQL-201",
        f'no stream or relation "{name}"',
        detail=f"There are: {join_names(sorted(readable))}." if readable else "There are none yet.",
        hint=did_you_mean(name, [*readable, *catalog.names()])
        or ("SHOW STREAMS and SHOW RELATIONS list them." if readable else "Create it first."),
        text=text,
        span=name_span(table),
    )


def sampled_relation_error(name: str, sample: exp.Expr, text: str) -> MillpondError:
    """Make the error CQL-216 for SAMPLE behind a relation."""
    return MillpondError(
        "CQL-216",
        f'sample taken of relation "{name}"',
        detail="SAMPLE thins out a stream's elements; a relation has none.",
        hint="Remove the SAMPLE clause.",
        text=text,
        span=span_of(sample),
    )


def windowed_relation_error(name: str, window: exp.Expr, text: str) -> MillpondError:
    """Make the error CQL-204 for a window behind a relation."""
    span = span_of(window)
    clause = text[span.start : span.end] if span else "the window"
    return MillpondError(
        "CQL-204",
        f'window applied to relation "{name}"',
        detail=f'A window turns a stream into a relation, and "{name}" already is one.',
        hint=f'Remove {clause}, or declare "{name}" as a stream.',
        text=text,
        span=span,
    )


def _window(window: exp.Expr, schema: Schema, stream: str, text: str) -> Window:
    match window.args["kind"]:
        case "now":
            return Now()
        case "unbounded":
            return Unbounded()
        case "range":
            return Range(window.args["size"], window.args.get("slide"))
    return Rows(
        window.args["rows"],
        tuple(_partition(c, schema, stream, text) for c in window.args.get("by") or []),
    )


def _partition(column: exp.Expr, schema: Schema, stream: str, text: str) -> str:
    found = schema.find(column.name)
    if found is None:
        raise no_such_column_error(column, column.name, schema.names, stream, text)
    assert isinstance(column, exp.Identifier)
    spell(column, found.name)
    return found.name


def no_such_column_error(
    column: exp.Expr, name: str, columns: tuple[str, ...], owner: str, text: str
) -> MillpondError:
    """Make the error CQL-202 for a column that could only be in one place."""
    return MillpondError(
        "CQL-202",
        f'no column "{name}" in "{owner}"',
        detail=f'"{owner}" has: {join_names(columns)}.',
        hint=did_you_mean(name, columns),
        text=text,
        span=span_of(column),
    )
