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
    AddColumn,
    AlterConstraint,
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
from millpond.service.definitions.earlier_columns import keep_columns
from millpond.service.queries.options import check_options
from millpond.state.version import Version

#: What the statements of SHOW CREATE create.
Creatable = StreamDef | RelationDef | QueryDef | SummaryDef | SinkDef


def restate(
    found: Creatable, version: Version, records: StreamDef | None = None
) -> tuple[Created, list[AddColumn | AlterConstraint]]:
    """Make the statements that create an object, with all that was altered since.

    Args:
        found: The object.
        version: Where the streams are looked up that its query reads.
        records: The stream of the change records that a relation is fed by.

    Returns:
        The CREATE statement, and behind it what adds columns to a stream.

    Raises:
        MillpondError: CQL-216, no statement has created the object: it came with another one.
    """
    match found:
        case QueryDef():
            return _restate_query(found, version), []
        case SinkDef():
            sink = CreateSink(
                text="",
                name=found.name,
                format=found.format,
                options=found.options,
                query=found.query,
                tag=found.tag,
                owner=found.owner,
                key=found.key,
            )
            return sink, []
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
        added = {field.name for field in found.schema.added}
        early = [c for c in found.constraints if added.isdisjoint(c.columns)]
        created = replace(
            stated,
            if_not_exists=False,
            delay=found.delay,
            idle_after=found.idle_after,
            ahead=found.ahead,
            retain=found.retain,
            retain_rows=found.retain_rows,
            constraints=tuple(early),
            options={"overload": overload} if overload else {},
        )
        columns = [
            AddColumn(text="", name=found.name, column=ColumnDef(f.name, f.type, Span(0, 0)))
            for f in found.schema.added
        ]
        later = [
            AlterConstraint(text="", name=found.name, add=constraint)
            for constraint in found.constraints
            if constraint not in early
        ]
        return created, [*columns, *later]
    if isinstance(stated, CreateRelation) and records is not None:
        fed = replace(
            stated,
            if_not_exists=False,
            delay=records.delay,
            idle_after=records.idle_after,
            ahead=records.ahead,
        )
        return fed, []
    if isinstance(stated, CreateDerived):
        epoch = found.text_epoch if isinstance(found, RelationDef) else None
        if isinstance(found, StreamDef) and found.derived is not None:
            epoch = found.derived.text_epoch
        stated = replace(stated, query=keep_columns(stated.query, version, epoch))
    return replace(stated, if_not_exists=False), []


def _restate_query(found: QueryDef, version: Version) -> CreateQuery:
    """CREATE QUERY: with parameters, unless it has to be written anew for the columns it knows."""
    # The text may be a stream's name with its window, which alone is no statement.
    query, options = parse_query(found.text), given_options(found.options)
    kept = keep_columns(query, version, found.text_epoch)
    if found.template is not None and kept == query:
        values = ", ".join(f"${name} = {value}" for name, value in found.template.constants.items())
        stated = parse_statement(f"CREATE QUERY q WITH ({values}) AS {found.template.text}")
        assert isinstance(stated, CreateQuery)
        return replace(stated, name=found.name, options=options)
    return CreateQuery(text="", name=found.name, query=kept, options=options)


def is_stated_so(
    statement: Created, found: Creatable, version: Version, records: StreamDef | None = None
) -> bool:
    """Whether a statement would create an object just as it is now.

    A column of a stream that was added may be stated like one from the beginning.
    """
    try:
        created, later = restate(found, version, records)
    except MillpondError:
        return False
    if isinstance(statement, CreateStream) and isinstance(created, CreateStream):
        columns = tuple(step.column for step in later if isinstance(step, AddColumn))
        added = tuple(s.add for s in later if isinstance(s, AlterConstraint) and s.add is not None)
        whole = replace(
            created,
            columns=(*created.columns, *columns),
            constraints=(*created.constraints, *added),
        )
        return _meaning(statement) in (_meaning(created), _meaning(whole))
    return _meaning(statement) == _meaning(created)


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
