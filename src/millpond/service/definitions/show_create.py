"""SHOW CREATE: writes the statement that would create an object as the object is now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millpond.catalog.objects import QueryDef, RelationDef, StreamDef, SummaryDef, given_options
from millpond.catalog.options import OPTIONS
from millpond.catalog.sink_def import SinkDef
from millpond.cql import parse_statement
from millpond.cql.print.dialect import parse_query
from millpond.cql.print.printer import meaning
from millpond.cql.tree.statements import (
    ColumnDef,
    Created,
    CreateDerived,
    CreateQuery,
    CreateRelation,
    CreateSink,
    CreateStream,
    CreateSummary,
)
from millpond.errors import MillpondError, Span
from millpond.model.schema import Field
from millpond.service.queries.options import check_options

#: What the statements of SHOW CREATE create.
Creatable = StreamDef | RelationDef | QueryDef | SummaryDef | SinkDef


def restate(found: Creatable, records: StreamDef | None = None) -> Created:
    """Make the statement that creates an object, with all that was altered since.

    `records` is the stream of the change records that a relation is fed by.

    Raises:
        MillpondError: CQL-216, no statement has created the object: it came with another one.
    """
    match found:
        case QueryDef():
            # The text may be a stream's name with its window, which alone is no statement.
            query, options = parse_query(found.text), given_options(found.options)
            return CreateQuery(text="", name=found.name, query=query, options=options)
        case SinkDef():
            return CreateSink(
                text="",
                name=found.name,
                format=found.format,
                options=found.options,
                query=found.query,
                tag=found.tag,
                owner=found.owner,
                key=found.key,
            )
    stated = _parse_created(found.text)
    name = getattr(stated, "name", "")
    if stated is None or name.lower() != found.name.lower():
        raise MillpondError(
            "CQL-216",
            f'"{found.name}" was not created by a statement of its own',
            detail="It came with another stream, relation or query, or is the pond's.",
            hint="SHOW CREATE what it came with.",
        )
    if isinstance(found, StreamDef) and isinstance(stated, CreateStream):
        overload = {} if found.overload == OPTIONS["overload"].default else found.overload
        return replace(
            stated,
            if_not_exists=False,
            columns=(*stated.columns, *map(_restate_column, found.schema.added)),
            delay=found.delay,
            idle_after=found.idle_after,
            ahead=found.ahead,
            retain=found.retain,
            retain_rows=found.retain_rows,
            constraints=found.constraints,
            options={"overload": overload} if overload else {},
        )
    if isinstance(stated, CreateRelation) and records is not None:
        return replace(
            stated,
            if_not_exists=False,
            delay=records.delay,
            idle_after=records.idle_after,
            ahead=records.ahead,
        )
    return replace(stated, if_not_exists=False)


def _restate_column(added: Field) -> ColumnDef:
    return ColumnDef(added.name, added.type, Span(0, 0))


def is_stated_so(statement: Created, found: Creatable, records: StreamDef | None = None) -> bool:
    """Whether a statement would create an object just as it is now."""
    try:
        return _meaning(statement) == _meaning(restate(found, records))
    except MillpondError:
        return False


def _meaning(statement: Created) -> tuple[Any, ...]:
    """What a statement creates: the same for equal options, however their values are written."""
    plain = replace(statement, if_not_exists=False, name=statement.name.lower())
    if isinstance(plain, CreateQuery):
        options = check_options(plain.options)
        plain = replace(plain, options=dict(sorted(options.items())), or_replace=False)
    return meaning(plain)


def _parse_created(
    text: str,
) -> CreateStream | CreateRelation | CreateDerived | CreateSummary | None:
    try:
        stated = parse_statement(text)
    except MillpondError:
        return None
    if isinstance(stated, CreateStream | CreateRelation | CreateDerived | CreateSummary):
        return stated
    return None
