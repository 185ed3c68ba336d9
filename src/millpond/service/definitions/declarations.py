"""CREATE STREAM and CREATE RELATION: makes checked definitions of declarations."""

from __future__ import annotations

import re
from collections.abc import Sequence

from millpond.catalog.objects import (
    REJECTS,
    SUFFIXES,
    SYSTEM,
    FileHistory,
    RelationDef,
    SourceDef,
    StreamDef,
    is_reserved,
)
from millpond.catalog.options import OPTIONS
from millpond.cql.print.dialect import print_query
from millpond.cql.tree.statements import (
    ColumnDef,
    CreateDerived,
    CreateRelation,
    CreateStream,
    SourceClause,
)
from millpond.errors import MillpondError, Span
from millpond.model.names import check_name, find_fault_of_column, find_fault_of_name, name_error
from millpond.model.schema import (
    ALIASES,
    ARROW_TYPES,
    DEEPEST_TYPE,
    Field,
    Schema,
    canonical_type,
)
from millpond.planner.resolve.names import did_you_mean
from millpond.service.definitions.change_fed_relations import PUSHED
from millpond.service.definitions.computed_columns import check_computed_columns
from millpond.service.definitions.constraints import check_constraints
from millpond.service.definitions.find_column import find_column
from millpond.service.definitions.source_options import check_source_options
from millpond.service.definitions.taken_files import refuse_taken_files
from millpond.service.queries.options import check_input_options
from millpond.state.version import Version

#: What a history can be read from, and what can follow it.
HISTORY_FORMATS = ("parquet", "csv", "json", "orc", "text")
FOLLOWING = ("kafka", PUSHED)
#: Of which formats it is known how much waits, so that their streams may shed.
SHEDDABLE = frozenset(("csv", "json", "parquet", "orc", "text", "delta", "kafka", PUSHED))
#: Sources whose streams get further columns: what is read finds columns by their names, or has its
#: places counted. Of Kafka's formats that is JSON.
WIDENABLE = frozenset(("csv", "json", "parquet", "orc", "delta", "kafka"))
#: Options of directories that are watched, which a history's is not.
WATCHING = frozenset({"latestfirst", "maxfileage", "maxbytespertrigger", "cleansource"})


def stream_definition(statement: CreateStream, id: int, version: Version) -> StreamDef:
    """The stream a statement declares. Raises CQL-208 to CQL-211."""
    refuse_taken(version, statement)
    schema = read_columns(statement.columns, statement.text)
    check_computed_columns(statement, schema)
    timestamp_by = timestamp_column(statement, schema)
    live, history = _source_and_history(statement)
    definition = StreamDef(
        id,
        statement.name,
        schema,
        timestamp_by,
        statement.delay,
        statement.idle_after,
        statement.retain,
        statement.retain_rows,
        live,
        statement.text,
        ahead=statement.ahead,
        overload=_overload(statement),
        constraints=check_constraints(statement, statement.constraints, schema, version),
        history=history,
    )
    refuse_taken_files(definition, statement, version)
    return definition


def _source_and_history(statement: CreateStream) -> tuple[SourceDef | None, FileHistory | None]:
    """What a stream reads, and what it reads before. Raises CQL-214."""
    source = _source(statement.source, statement.text)
    clause = statement.source
    if source is None or clause is None or clause.then is None:
        return source, None

    def error(primary: str, hint: str, span: Span) -> MillpondError:
        return MillpondError("CQL-214", primary, hint=hint, text=statement.text, span=span)

    if source.format not in HISTORY_FORMATS:
        hint = f"Formats of files are {', '.join(HISTORY_FORMATS)}."
        raise error(f"a history cannot be read from {source.format}", hint, clause.span)
    if unread := sorted(source.options.keys() & WATCHING):
        raise error(
            f'the option "{unread[0]}" is about files that come, and a history is listed once',
            "Leave it out.",
            clause.span,
        )
    if clause.until is not None and statement.timestamp_by is None:
        raise error(
            "a history UNTIL an instant needs TIMESTAMP BY",
            "Name the column whose timestamps say which rows are history.",
            clause.span,
        )
    live = _source(clause.then, statement.text)
    assert live is not None
    if live.format not in FOLLOWING or (live.format == PUSHED and live.options):
        raise error(
            f"a history cannot be followed by {live.format}"
            + (" with options" if live.format == PUSHED else ""),
            "Write THEN kafka OPTIONS (...) or THEN push.",
            clause.then.span,
        )
    return (None if live.format == PUSHED else live), FileHistory(source, clause.until)


def _overload(statement: CreateStream) -> str:
    """What gives way when there is too much to do. Raises CQL-214, CQL-301."""
    options = check_input_options(statement.options, statement.text)
    then = None if statement.source is None else statement.source.then
    live = then or statement.source
    if options and live is not None and live.format not in SHEDDABLE:
        raise unknown_waiting_error(statement.name, live.format, statement.text)
    return str(options.get("overload", OPTIONS["overload"].default))


def unknown_waiting_error(name: str, format: str, text: str) -> MillpondError:
    """The error of saying what gives way in a source that does not tell what waits in it."""
    known = ", ".join(sorted(SHEDDABLE - {PUSHED}))
    return MillpondError(
        "CQL-301",
        f'stream "{name}" cannot shed: nobody knows how much waits in a source of format {format}',
        detail="It is held back: what is not read yet waits in the source.",
        hint=f"Leave out overload; streams shed that are pushed or read {known}.",
        text=text,
    )


def timestamp_column(statement: CreateStream | CreateRelation, schema: Schema) -> str | None:
    """The column of TIMESTAMP BY as declared. Raises CQL-202, CQL-211."""
    if statement.timestamp_by is None:
        return None
    name, span = statement.timestamp_by, statement.timestamp_span
    field = find_column(schema, name, "to take timestamps from", statement.text, span)
    if field.type not in ("TIMESTAMP", "TIMESTAMPTZ", "DATE"):
        raise MillpondError(
            "CQL-211",
            f'the timestamp column "{field.name}" has the type {field.type}',
            detail="TIMESTAMP BY needs a column of type TIMESTAMP, TIMESTAMPTZ or DATE.",
            hint=f'Declare "{field.name}" as TIMESTAMP.',
            text=statement.text,
            span=statement.timestamp_span,
        )
    return field.name


def relation_definition(statement: CreateRelation, id: int, version: Version) -> RelationDef:
    """The relation a statement declares. Raises CQL-202, CQL-208 to CQL-210, CQL-301."""
    refuse_taken(version, statement)
    if statement.non_retroactive and statement.timestamp_by is not None:
        start = statement.text.upper().find("NON")
        raise MillpondError(
            "CQL-301",
            "NON RETROACTIVE relations fed by a log of changes are not available yet",
            detail="A relation with TIMESTAMP BY is what the last record of each key says.",
            hint="Declare the log as a STREAM and read it with ASOF LEFT JOIN, which gives each "
            "element the last record before it; or make the updates with statements.",
            text=statement.text,
            span=Span(start, start + len("NON RETROACTIVE")) if start >= 0 else None,
        )
    schema = read_columns(statement.columns, statement.text)
    for column in statement.columns:
        if column.computed is not None:
            raise MillpondError(
                "CQL-301",
                "computed columns of relations are not available yet",
                hint="Compute it in CREATE RELATION name AS SELECT ..., or in a stream.",
                text=statement.text,
                span=column.span,
            )
    key = [
        find_column(schema, name, "for the primary key", statement.text, statement.name_span).name
        for name in statement.primary_key
    ]
    source = _source(statement.source, statement.text)
    return RelationDef(
        id,
        statement.name,
        schema,
        tuple(key),
        statement.non_retroactive,
        source,
        statement.text,
    )


def refuse_taken(
    version: Version, statement: CreateStream | CreateRelation | CreateDerived
) -> None:
    """Raise CQL-208 when the name a statement creates is taken, CQL-102 when it cannot be one."""
    if find_fault_of_name(statement.name):
        place = statement.error("CQL-102", "")
        check_name(statement.name, place.text, place.span)
    detail = "Streams, relations and queries share one set of names."
    for kind, suffix in SUFFIXES.items():
        if statement.name.lower().endswith(suffix):
            what = "rejects" if kind == REJECTS else "shed elements"
            detail = f"Names that end in {suffix} are those of streams' {what}."
            break
    else:
        if is_reserved(statement.name):
            detail = f"The name {SYSTEM} is the pond's own."
        elif version.find(statement.name) is None:
            return
    raise statement.error(
        "CQL-208",
        f'the name "{statement.name}" is taken',
        detail=detail,
        hint="Choose another name, or DROP the other object first.",
    )


def check_columns(statement: CreateDerived, found: Schema) -> None:
    """Raise CQL-217 when a derived stream or relation names too many or too few columns."""
    if len(statement.columns) != len(found.names):
        raise statement.error(
            "CQL-217",
            f"{len(statement.columns)} columns are named, and the query has {len(found.names)}",
            detail=f"The query's columns are {', '.join(found.names)}.",
            hint="Name each of them, or none.",
        )


#: What to declare instead of types of other systems.
_INSTEAD_OF_TYPES = {
    "JSONB": "Declare it JSON.",
    "VARIANT": "Declare it JSON.",
    "MAP": "Declare it JSON, or an array of structs: STRUCT(key VARCHAR, value INTEGER)[].",
    "STRUCT": "Write STRUCT(name TYPE, ...), of types that columns have.",
    **dict.fromkeys(("LIST", "ARRAY", "ROW"), "Write TYPE[], or STRUCT(name TYPE, ...)."),
    **dict.fromkeys(("UUID", "TIME", "INTERVAL", "ENUM"), "Declare it STRING."),
}
_LIST_OF_TYPES = ", ".join([*ARROW_TYPES, "DECIMAL(p, s)", "STRING", "TYPE[]", "STRUCT(name TYPE)"])


def read_columns(columns: Sequence[ColumnDef], text: str) -> Schema:
    """Read declared columns. Raises CQL-103, CQL-209 and CQL-210."""
    fields: list[Field] = []
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise MillpondError(
                "CQL-209",
                f'the column "{column.name}" is declared twice',
                detail="Names are compared without regard to case.",
                hint="Give it another name.",
                text=text,
                span=column.span,
            )
        seen.add(column.name.lower())
        if fault := find_fault_of_column(column.name):
            raise name_error("the column name", column.name, fault, text, column.span)
        if column.name.startswith("__"):
            raise MillpondError(
                "CQL-103",
                f'the column name "{column.name}" is reserved',
                detail="Names that begin with two underscores are Millpond's own.",
                hint="Give it another name.",
                text=text,
                span=column.span,
            )
        kind = canonical_type(column.type)
        if kind is None:
            known = [*ARROW_TYPES, "DECIMAL(p, s)", *ALIASES]
            raise MillpondError(
                "CQL-210",
                f'no column type "{column.type}"',
                detail=f"The types are {_LIST_OF_TYPES}.",
                hint=_hint_at_type(column.type)
                or did_you_mean(column.type.upper(), known)
                or "Use one of these.",
                text=text,
                span=column.span,
            )
        computed = None if column.computed is None else print_query(column.computed)
        fields.append(Field(column.name, kind, column.required, computed))
    return Schema(tuple(fields))


def _hint_at_type(type_: str) -> str | None:
    """Say how to declare a type of another system, or one that is written in another way."""
    shape = re.sub(r'"(?:[^"]|"")*"', "", type_).upper()
    if re.search(r"\[\s*\d+\s*\]", shape):
        return "Arrays have no fixed size: write TYPE[]."
    if max(shape.count("["), shape.count("(")) > DEEPEST_TYPE:
        return f"Arrays and structs go {DEEPEST_TYPE} levels deep; what is deeper is JSON."
    return _INSTEAD_OF_TYPES.get(re.split(r"[^A-Z]", shape)[0])


def _source(clause: SourceClause | None, text: str) -> SourceDef | None:
    if clause is None:
        return None
    check_source_options(clause, text)
    return SourceDef(clause.format.lower(), {k.lower(): v for k, v in clause.options.items()})
