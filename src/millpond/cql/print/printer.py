"""Print statements and queries as text.

Printing is canonical: statements that mean the same, up to the order of free clauses and the
spelling of names, windows and durations, print alike. The printed text reads as the same statement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import singledispatch
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from millpond.cql.parse.queries import QueryParser
from millpond.cql.parse.tokens import CqlTokenizer
from millpond.cql.print.dialect import print_query
from millpond.cql.tree.statements import (
    AddColumn,
    Alter,
    AlterConstraint,
    AlterSystem,
    Ask,
    Created,
    CreateDerived,
    CreateQuery,
    CreateRelation,
    CreateSink,
    CreateStream,
    CreateSummary,
    Delete,
    Describe,
    Drop,
    Explain,
    Fetch,
    Heartbeat,
    Insert,
    Invoke,
    ResetClock,
    Show,
    ShowCreate,
    SourceClause,
    Statement,
    Update,
)
from millpond.errors import Span
from millpond.model.constraints import FOREIGN_KEY, UNIQUE, Constraint
from millpond.model.duckdb_words import quote_name
from millpond.model.durations import duration_text
from millpond.model.secret_options import name_of_secret
from millpond.model.time import END, format_instant

__all__ = [
    "meaning",
    "print_constraint",
    "print_constraint_form",
    "print_name",
    "print_query",
    "print_statement",
]

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
#: Words that are no names, or that might be read together with the next word.
_SPECIAL = frozenset(
    word
    for phrase, kind in CqlTokenizer.KEYWORDS.items()
    if " " in phrase or kind not in QueryParser.ID_VAR_TOKENS
    for word in phrase.upper().split()
)


def print_statement(statement: Statement) -> str:
    """Print a statement's canonical text, without a semicolon."""
    return _print(statement)


def meaning(statement: Statement) -> tuple[Any, ...]:
    """Return what a statement says, without its text and places: equal for equal statements.

    >>> from millpond.cql.script import parse_statement
    >>> meaning(parse_statement("invoke  q")) == meaning(parse_statement("INVOKE q"))
    True
    """
    values = [type(statement).__name__]
    for field in fields(statement):
        if field.name not in ("text", "filled_text", "offset") and not field.name.endswith("span"):
            values.append(_without_places(getattr(statement, field.name)))
    return tuple(values)


def _without_places(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_without_places(item) for item in value)
    if isinstance(value, SourceClause):
        return (value.format, value.options, value.until, _without_places(value.then))
    if hasattr(value, "span") and isinstance(value.span, Span):
        return (value.name, value.type, value.required, value.computed)
    return value


def print_name(name: str) -> str:
    """Print a name as CQL, in double quotes where needed.

    >>> print_name("flights$rejects"), print_name("select"), print_name("my name")
    ('flights$rejects', '"select"', '"my name"')
    """
    if _PLAIN_NAME.fullmatch(name) and name.upper() not in _SPECIAL:
        return name
    return quote_name(name)


def print_constraint(constraint: Constraint) -> str:
    """Print a constraint as CREATE STREAM declares it.

    >>> print_constraint(Constraint("c", "clustered", ("a",), rows=5))
    'CONSTRAINT c CLUSTERED BY (a) WITHIN 5 ROWS'
    """
    return f"CONSTRAINT {print_name(constraint.name)} {print_constraint_form(constraint)}"


def print_constraint_form(constraint: Constraint) -> str:
    """Print a constraint without its name."""
    columns = f"({_names(constraint.columns)})"
    if constraint.kind == UNIQUE:
        return f"UNIQUE {columns}"
    if constraint.time is not None:
        within = f" WITHIN INTERVAL {duration_text(constraint.time)}"
    else:
        within = f" WITHIN {constraint.rows} ROWS"
    if constraint.kind == FOREIGN_KEY:
        return f"FOREIGN KEY {columns} REFERENCES {print_name(constraint.references or '')}{within}"
    return f"{constraint.kind.upper()} BY {columns}{within}"


@singledispatch
def _print(statement: Statement) -> str:
    raise TypeError(f"not a statement: {statement!r}")


@_print.register
def _(statement: CreateStream) -> str:
    parts = [_columns(statement.columns), *map(print_constraint, statement.constraints)]
    text = f"CREATE STREAM {_new_name(statement)} ({', '.join(parts)})"
    text += _timestamps(statement)
    if statement.retain is not None:
        text += f" RETAIN INTERVAL {duration_text(statement.retain)}"
    if statement.retain_rows is not None:
        text += f" RETAIN {statement.retain_rows} ROWS"
    options = f" WITH {_options(statement.options, ' = ')}" if statement.options else ""
    return text + _source(statement.source) + options


@_print.register
def _(statement: CreateRelation) -> str:
    retroactive = "NON RETROACTIVE " if statement.non_retroactive else ""
    columns = _columns(statement.columns)
    if statement.primary_key:
        columns += f", PRIMARY KEY ({_names(statement.primary_key)})"
    text = f"CREATE {retroactive}RELATION {_new_name(statement)} ({columns})"
    return text + _timestamps(statement) + _source(statement.source)


@_print.register
def _(statement: CreateDerived) -> str:
    kind, name = statement.kind.upper(), _new_name(statement)
    columns = f" ({_names(statement.columns)})" if statement.columns else ""
    return f"CREATE {kind} {name}{columns} AS {print_query(statement.query)}"


@_print.register
def _(statement: CreateQuery) -> str:
    given = statement.options or statement.constants
    options = f" WITH {_options(statement.options, ' = ', statement.constants)}" if given else ""
    name = _new_name(statement)
    replacing = "OR REPLACE " * statement.or_replace
    # A query with parameters is printed as written: its tree has their values.
    query = statement.written_query if statement.constants else print_query(statement.query)
    return f"CREATE {replacing}QUERY {name}{options} AS {query}"


@_print.register
def _(statement: CreateSummary) -> str:
    name, stream = _new_name(statement), print_name(statement.stream)
    text = f"CREATE SUMMARY {name} ON {stream} ({print_name(statement.attribute)})"
    text += f" WITH GRANULARITY INTERVAL {duration_text(statement.granularity)}"
    text += f" AND COLLAPSE ({statement.rate}, {statement.depth}) USING {statement.kind.upper()}"
    return text + (f" MEMORY '{statement.memory} bytes'" if statement.memory is not None else "")


@_print.register
def _(statement: CreateSink) -> str:
    if statement.query is not None:
        selected = f"QUERY {print_name(statement.query)}"
    elif statement.tag is not None:
        selected = f"QUERIES TAGGED {_string(statement.tag)}"
    else:
        selected = f"QUERIES OF OWNER {_string(statement.owner or '')}"
    format_name, options = print_name(statement.format), _options(statement.options, " ")
    name = _new_name(statement)
    key = f" KEY ({_names(statement.key)})" if statement.key else ""
    return f"CREATE SINK {name} USING {format_name} {options} FROM {selected}{key}"


@_print.register
def _(statement: Invoke) -> str:
    text = f"INVOKE {print_name(statement.name)}{_at(statement.at)}"
    text += f" BUDGET '{statement.budget}'" if statement.budget is not None else ""
    return text + (f" AFTER {_string(statement.after)}" if statement.after is not None else "")


@_print.register
def _(statement: Fetch) -> str:
    after = f" AFTER {_string(statement.after)}" if statement.after is not None else ""
    limit = f" LIMIT {statement.limit}" if statement.limit is not None else ""
    return f"FETCH {print_name(statement.name)}{after}{limit}"


@_print.register
def _(statement: Ask) -> str:
    return print_query(statement.query)


@_print.register
def _(statement: Alter) -> str:
    kind, name = statement.kind.upper(), print_name(statement.name)
    return f"ALTER {kind} {name} SET {_options(statement.options, ' = ', statement.constants)}"


@_print.register
def _(statement: AlterConstraint) -> str:
    head = f"ALTER STREAM {print_name(statement.name)}"
    if statement.add is not None:
        return f"{head} ADD {print_constraint(statement.add)}"
    return f"{head} DROP CONSTRAINT {print_name(statement.drop or '')}"


@_print.register
def _(statement: AddColumn) -> str:
    once = "IF NOT EXISTS " * statement.if_not_exists
    column = _columns((statement.column,))
    return f"ALTER STREAM {print_name(statement.name)} ADD COLUMN {once}{column}"


@_print.register
def _(statement: ResetClock) -> str:
    to = format_instant(statement.to)
    return f"ALTER STREAM {print_name(statement.name)} RESET CLOCK TO TIMESTAMP '{to}'"


@_print.register
def _(statement: AlterSystem) -> str:
    return f"ALTER SYSTEM SET {_options(statement.options, ' = ')}"


@_print.register
def _(statement: Drop) -> str:
    name = f"{'IF EXISTS ' * statement.if_exists}{print_name(statement.name)}"
    return f"DROP {statement.kind.upper()} {name}{' CASCADE' * statement.cascade}"


@_print.register
def _(statement: Insert) -> str:
    columns = f" ({_names(statement.columns)})" if statement.columns else ""
    head = f"INSERT INTO {print_name(statement.name)}{columns}"
    if statement.query is not None:
        return f"{head} {print_query(statement.query)}{_at(statement.at)}"
    rows = ", ".join(f"({', '.join(map(print_query, row))})" for row in statement.rows)
    return f"{head} VALUES {rows}{_at(statement.at)}"


@_print.register
def _(statement: Update) -> str:
    changes = ", ".join(
        f"{print_name(column)} = {print_query(value)}" for column, value in statement.assignments
    )
    name = print_name(statement.name)
    return f"UPDATE {name} SET {changes}{_where(statement.where)}{_at(statement.at)}"


@_print.register
def _(statement: Delete) -> str:
    return f"DELETE FROM {print_name(statement.name)}{_where(statement.where)}{_at(statement.at)}"


@_print.register
def _(statement: Heartbeat) -> str:
    return f"HEARTBEAT {print_name(statement.name)}{_at(statement.at)}"


@_print.register
def _(statement: Explain) -> str:
    if statement.query is not None:
        options = f"WITH {_options(statement.options, ' = ')} " if statement.options else ""
        return f"EXPLAIN {statement.level.upper()} {options}{print_query(statement.query)}"
    assert statement.name is not None
    return f"EXPLAIN {statement.level.upper()} {print_name(statement.name)}"


@_print.register
def _(statement: Show) -> str:
    return f"SHOW {statement.what.upper()}"


@_print.register
def _(statement: ShowCreate) -> str:
    return f"SHOW CREATE {statement.kind.upper()} {print_name(statement.name)}"


@_print.register
def _(statement: Describe) -> str:
    return f"DESCRIBE {print_name(statement.name)}"


def _new_name(statement: Created) -> str:
    return f"{'IF NOT EXISTS ' * statement.if_not_exists}{print_name(statement.name)}"


def _columns(columns: tuple[Any, ...]) -> str:
    return ", ".join(
        f"{print_name(column.name)} {column.type}"
        f"{f' AS ({print_query(column.computed)})' if column.computed is not None else ''}"
        f"{' NOT NULL' * column.required}"
        for column in columns
    )


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(map(print_name, names))


def _timestamps(statement: CreateStream | CreateRelation) -> str:
    text = ""
    if statement.timestamp_by is not None:
        text += f" TIMESTAMP BY {print_name(statement.timestamp_by)}"
    if statement.delay:
        text += f" DELAY INTERVAL {duration_text(statement.delay)}"
    if statement.idle_after is not None:
        text += f" IDLE AFTER INTERVAL {duration_text(statement.idle_after)}"
    if statement.ahead is not None:
        length = duration_text(statement.ahead) if statement.ahead < END else None
        text += " AHEAD UNBOUNDED" if length is None else f" AHEAD INTERVAL {length}"
    return text


def _where(condition: exp.Expression | None) -> str:
    return f" WHERE {print_query(condition)}" if condition is not None else ""


def _at(instant: int | None) -> str:
    return f" AT TIMESTAMP '{format_instant(instant)}'" if instant is not None else ""


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _options(
    options: dict[str, Any], sign: str, constants: Mapping[str, str] = MappingProxyType({})
) -> str:
    parts = [f"{_key(key)}{sign}{_value(value, sign)}" for key, value in options.items()]
    parts += [f"${name}{sign}{constant}" for name, constant in constants.items()]
    return f"({', '.join(parts)})"


def _key(key: str) -> str:
    return key if print_name(key) == key else _string(key)


def _value(value: Any, sign: str) -> str:
    if isinstance(value, str):
        # Only sources and sinks, whose options have no "=", name secrets.
        if sign == " " and name_of_secret(value) is not None:
            return value
        return _string(value)
    return str(value).upper() if isinstance(value, bool) else repr(value)


def _source(source: SourceClause | None, word: str = "USING") -> str:
    if source is None:
        return ""
    # The parser reads a format in lower case unless it is quoted.
    lower = source.format == source.format.lower()
    name = print_name(source.format) if lower else quote_name(source.format)
    options = f" OPTIONS {_options(source.options, ' ')}" if source.options else ""
    until = "" if source.until is None else f" UNTIL TIMESTAMP '{format_instant(source.until)}'"
    return f" {word} {name}{options}{until}{_source(source.then, 'THEN')}"
