"""Column references: find each reference's source by SQL's rules of scope."""

from __future__ import annotations

from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.cql.tree.places import span_of
from millpond.errors import MillpondError
from millpond.model.schema import StructOf, parts_of
from millpond.planner.resolve.duckdb_tree import FunctionCall, is_word_called
from millpond.planner.resolve.leaves import no_such_column_error
from millpond.planner.resolve.names import did_you_mean, join_names, spell
from millpond.planner.resolve.scope import TYPE, Resolution, SelectScope, Source


def resolve_column(
    column: exp.Column, scope: SelectScope, text: str, *, aliases_first: bool
) -> None:
    """Find a reference's meaning, record it, and spell the column as declared.

    The nearest SELECT wins; in one SELECT a source's column comes before an alias of the SELECT
    list, except in ORDER BY (`aliases_first`), as in DuckDB.

    Raises:
        MillpondError: CQL-202 or CQL-203, at the reference.
    """
    fields: list[exp.Identifier] = []
    if column.args.get("table") is not None:
        resolution, fields = _resolve_qualified(column, scope, text)
    else:
        resolution = _resolve_bare(column, scope, text, aliases_first)
    if fields:
        column = _take_fields(column, resolution, fields, text)
    scope.resolved[id(column)] = resolution
    source = resolution.source
    if source is None or not resolution.column:
        _need_wherever(column.name, scope)
        return
    if (type_ := source.type_of(resolution.column)) is not None:
        column.meta[TYPE] = type_
    if resolution.merged:
        at: SelectScope | None = scope
        while at is not None and source not in at.sources:
            at = at.parent
        for holder in (at or scope).find_sources_of(resolution.column):
            holder.need(resolution.column)
    else:
        source.need(resolution.column)


def _need_wherever(name: str, scope: SelectScope) -> None:
    """Keep every column of a name: DuckDB may take an unresolved reference for any of them."""
    at: SelectScope | None = scope
    while at is not None:
        for holder in at.find_sources_of(name):
            holder.need(name)
        at = at.parent


def _take_fields(
    column: exp.Column, resolution: Resolution, fields: list[exp.Identifier], text: str
) -> exp.Column:
    """Write `c.f` as `struct_extract(c, 'f')` in the tree; return the column in it.

    In a SELECT list it keeps its name, which is the last field's.

    Raises:
        MillpondError: CQL-202, a stream's or relation's column has no such field.
    """
    source = resolution.source
    assert source is not None
    type_ = source.type_of(resolution.column)
    parts = [p for p in column.parts if isinstance(p, exp.Identifier)]
    bare = exp.Column(**dict(zip(("this", "table"), parts[: -len(fields)][::-1], strict=False)))
    value: exp.Expr = bare
    for field in fields:
        name = field.name
        if type_ is not None:
            struct = parts_of(type_)
            known = dict(struct.fields) if isinstance(struct, StructOf) else {}
            spelled = next((n for n in known if n.lower() == name.lower()), None)
            if spelled is None:
                raise MillpondError(
                    "CQL-202",
                    f'no field "{name}" in "{to_duckdb(value)}", which is {type_}',
                    hint=json_hint(to_duckdb(value))
                    if type_ == "VARCHAR"
                    else did_you_mean(name, list(known)),
                    text=text,
                    span=span_of(column),
                )
            name, type_ = spelled, known[spelled]
        value = exp.Anonymous(this="struct_extract", expressions=[value, exp.Literal.string(name)])
    for made in value.walk():
        made.meta.update({k: v for k, v in column.meta.items() if k not in made.meta})
    if isinstance(column.parent, exp.Select) and column.arg_key == "expressions":
        value = exp.Alias(this=value, alias=exp.to_identifier(fields[-1].name, quoted=True))
    column.replace(value)
    return bare


def _resolve_qualified(
    column: exp.Column, scope: SelectScope, text: str
) -> tuple[Resolution, list[exp.Identifier]]:
    """Find what `a.b…` means: a column, and the fields taken of it."""
    parts = [p for p in column.parts if isinstance(p, exp.Identifier)]
    qualifier = parts[0].name
    at: SelectScope | None = scope
    structured: Resolution | None = None
    while at is not None:
        source = at.find_source(qualifier)
        if source is not None:
            wanted = parts[1]
            place = source.place(wanted.name)
            if place is None:
                if structured is not None:
                    return structured, parts[1:]
                if source.is_open:
                    return Resolution(source, "", outer=at is not scope), []
                raise no_such_column_error(column, wanted.name, source.columns, source.name, text)
            spell(parts[0], source.name)
            spell(wanted, source.columns[place])
            return Resolution(source, source.columns[place], outer=at is not scope), parts[2:]
        holders = [h for h in at.find_sources_of(qualifier) if _may_be_struct(h, qualifier)]
        if holders and structured is None:
            # A struct's field, `c.f`. A column of a subquery may be no struct; then `c` is a table
            # further out.
            if len(holders) > 1 and qualifier.lower() not in at.merged:
                raise _ambiguity_error(column, holders, text)
            place = holders[0].place(qualifier)
            assert place is not None
            spelled = holders[0].columns[place]
            spell(parts[0], spelled)
            merged = len(holders) > 1
            structured = Resolution(holders[0], spelled, outer=at is not scope, merged=merged)
        at = at.parent
    if structured is not None:
        return structured, parts[1:]
    if any(s.is_open for s in scope.sources):
        return Resolution(None, ""), []
    names = _qualifiers(scope)
    raise MillpondError(
        "CQL-202",
        f'no column "{".".join(p.name for p in parts)}"',
        detail=f'"{qualifier}" is not in the FROM clause, which has: {join_names(names)}.'
        if names
        else f'"{qualifier}" is not in the FROM clause.',
        hint=json_hint(qualifier)
        if any(s.type_of(qualifier) == "VARCHAR" for s in scope.sources)
        else did_you_mean(qualifier, names),
        text=text,
        span=span_of(column),
    )


def json_hint(name: str) -> str:
    """Say how a part of the JSON in a text is taken."""
    return f"If it is JSON, write {name} ->> 'field', or {name} -> 'field' ->> 'inner field'."


def _may_be_struct(source: Source, column: str) -> bool:
    type_ = source.type_of(column)
    return type_ is None or isinstance(parts_of(type_), StructOf)


def _resolve_bare(
    column: exp.Column, scope: SelectScope, text: str, aliases_first: bool
) -> Resolution:
    name = column.name
    if aliases_first and name.lower() in scope.aliases:
        return Resolution(None, "")
    at: SelectScope | None = scope
    while at is not None:
        holders = at.find_sources_of(name)
        if len(holders) > 1 and name.lower() not in at.merged:
            raise _ambiguity_error(column, holders, text)
        if holders:
            place = holders[0].place(name)
            assert place is not None
            spelled = holders[0].columns[place]
            spell(column.this, spelled)
            return Resolution(holders[0], spelled, outer=at is not scope, merged=len(holders) > 1)
        if name.lower() in at.aliases or any(s.is_open for s in at.sources):
            return Resolution(None, "")
        at = at.parent
    raise _unknown_column_error(column, scope, text)


def _ambiguity_error(column: exp.Column, holders: list[Source], text: str) -> MillpondError:
    choices = [f"{s.name}.{column.name}" for s in holders if s.name]
    return MillpondError(
        "CQL-203",
        f'column "{column.name}" is ambiguous',
        detail=f"It could be {' or '.join(choices)}." if choices else None,
        hint=f"Write {choices[0]}." if choices else "Give the subqueries names and qualify it.",
        text=text,
        span=span_of(column),
    )


def _unknown_column_error(column: exp.Column, scope: SelectScope, text: str) -> MillpondError:
    name = column.name
    if is_word_called(name):
        refusal = FunctionCall(name, 0).refusal
        assert refusal is not None
        return MillpondError(
            "CQL-213",
            f'function "{name.lower()}" cannot be used in a query',
            detail=refusal.value,
            hint="Use a window, or BEGIN … END with NOW, to speak of the present.",
            text=text,
            span=span_of(column),
        )
    every: list[str] = []
    at: SelectScope | None = scope
    while at is not None:
        every.extend(c for s in at.sources for c in s.columns if c)
        every.extend(at.aliases)
        at = at.parent
    described = [
        f'"{s.name}" has: {join_names([c for c in s.columns if c])}'
        for s in scope.sources
        if s.name
    ]
    if not scope.sources:
        detail = "There is no FROM clause."
    else:
        detail = f"{'; '.join(described)}." if described else f"There are: {join_names(every)}."
    quoted = column.this.args.get("quoted")
    hint = did_you_mean(name, every)
    if hint is None and quoted:
        hint = f"Put strings in single quotes: '{name}'."
    return MillpondError(
        "CQL-202",
        f'no column "{name}"',
        detail=detail,
        hint=hint,
        text=text,
        span=span_of(column),
    )


def _qualifiers(scope: SelectScope) -> list[str]:
    names: list[str] = []
    at: SelectScope | None = scope
    while at is not None:
        names.extend(s.name for s in at.sources if s.name)
        at = at.parent
    return names
