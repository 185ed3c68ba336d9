"""INSERT's rows, of VALUES or of a query: casts them to the target's columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.cql import to_duckdb
from millpond.cql.tree import statements
from millpond.cql.tree.nodes import SummaryEstimate
from millpond.cql.tree.places import span_of
from millpond.engine.admission.nested import Misfit, read_json
from millpond.engine.scalars.residual_query import Residual
from millpond.errors import MillpondError
from millpond.model.casts import cast_value
from millpond.model.duckdb_words import quote_name
from millpond.model.schema import Field, ListOf, StructOf, parts_of
from millpond.planner.check.constant_calls import check_constants


def values_of(
    statement: statements.Insert,
    columns: Sequence[str],
    target: StreamDef | RelationDef,
    residual: Residual,
) -> pa.Table:
    """Cast the rows of VALUES to the target's columns, by DuckDB; columns not given are NULL.

    Every value is cast by itself, because DuckDB would first look for one type for all rows.

    Raises:
        MillpondError: CQL-205 at a value that does not fit its column or cannot be computed,
            CQL-212 and CQL-213 at a call that a query may not make, POND-405 if the values take too
            much time or memory.
    """
    for given_row in statement.rows:
        for value in given_row:
            if (estimate := value.find(SummaryEstimate)) is not None:
                raise MillpondError(
                    "CQL-224",
                    "an estimate in VALUES",
                    detail="VALUES are constants.",
                    hint="Write INSERT INTO … SELECT ….",
                    text=statement.text,
                    span=span_of(estimate) or span_of(value),
                )
    check_constants([value for row in statement.rows for value in row], statement.text)
    fields = [field for name in columns if (field := target.schema.find(name)) is not None]
    rows = [
        [cast_expression(v, field) for v, field in zip(row, fields, strict=True)]
        for row in statement.rows
    ]
    given = {name.lower(): f"v{i}" for i, name in enumerate(columns)}
    items = []
    for field in target.schema.fields:
        source = given.get(field.name.lower(), f"CAST(NULL AS {field.type})")
        items.append(f"{source} AS {quote_name(field.name)}")
    names = ", ".join(f"v{i}" for i in range(len(columns)))
    try:
        table = residual.evaluate(
            f"SELECT {', '.join(items)} FROM (VALUES {_list_columns(rows)}) t({names})", {}
        )
    except MillpondError as error:
        if error.code == "POND-405":
            raise error.at(statement.text, statement.name_span) from error
        row, column, reason = _find_culprit(rows, residual, error)
        raise MillpondError(
            "CQL-205",
            f'a value does not fit column "{fields[column].name}" of "{target.name}"',
            detail=reason.detail,
            hint=_hint_of(fields[column].type),
            text=statement.text,
            span=span_of(statement.rows[row][column]) or statement.name_span,
        ) from error
    return table.cast(target.schema.to_arrow())


def answer_of(
    statement: statements.Insert,
    columns: Sequence[str],
    target: StreamDef | RelationDef,
    answer: pa.Table,
    residual: Residual,
) -> pa.Table:
    """Cast the rows of INSERT's query to the target's columns; columns not given are NULL.

    Raises:
        MillpondError: CQL-217 for another number of columns, CQL-205 for a value that cannot be
            cast.
    """
    if answer.num_columns != len(columns):
        raise MillpondError(
            "CQL-217",
            f"the query has {answer.num_columns} columns for {len(columns)}",
            detail=f"The columns are {', '.join(columns)}.",
            hint="Select one for each, or name the columns: INSERT INTO t (a, b).",
            text=statement.text,
            span=statement.query_span,
        )
    places = {name.lower(): place for place, name in enumerate(columns)}
    items = []
    for field in target.schema.fields:
        place = places.get(field.name.lower())
        value = "NULL" if place is None else f"v{place}"
        items.append(f"{cast_value(value, field.type)} AS {quote_name(field.name)}")
    given = answer.rename_columns([f"v{place}" for place in range(len(columns))])
    try:
        table = residual.evaluate(f"SELECT {', '.join(items)} FROM given", {"given": given})
    except MillpondError as error:
        raise MillpondError(
            "CQL-205",
            f'what the query answers does not fit the columns of "{target.name}"',
            detail=error.detail,
            hint="Cast it in the query, with CAST or TRY_CAST.",
            text=statement.text,
            span=statement.query_span,
        ) from error
    return table.cast(target.schema.to_arrow())


def cast_expression(value: exp.Expression, field: Field) -> str:
    """Write SQL that casts an expression to a column's type; a string may be JSON."""
    if parts_of(field.type) is not None and isinstance(value, exp.Literal) and value.is_string:
        try:
            return _write_parts(read_json(value.name, field), field.type)
        except Misfit:
            pass  # DuckDB says what is wrong with it, at its place
    return cast_value(to_duckdb(value), field.type)


def _write_parts(value: Any, type_: str) -> str:
    if value is None:
        return f"CAST(NULL AS {type_})"
    match parts_of(type_):
        case ListOf(element):
            return f"CAST([{', '.join(_write_parts(v, element) for v in value)}] AS {type_})"
        case StructOf(fields):
            members = (f"{quote_name(n)} := {_write_parts(value[n], kind)}" for n, kind in fields)
            return f"CAST(struct_pack({', '.join(members)}) AS {type_})"
    return cast_value(to_duckdb(exp.Literal.string(value)), type_)


def _list_columns(rows: Sequence[Sequence[str]]) -> str:
    return ", ".join(f"({', '.join(row)})" for row in rows)


def _find_culprit(
    rows: Sequence[Sequence[str]], residual: Residual, error: MillpondError
) -> tuple[int, int, MillpondError]:
    """Find the first value that cannot be computed, by bisection: its row, column and error."""
    low, high = 0, len(rows)
    while high - low > 1:
        middle = (low + high) // 2
        if _find_error(f"FROM (VALUES {_list_columns(rows[low:middle])}) t", residual):
            high = middle
        else:
            low = middle
    for column, value in enumerate(rows[low]):
        if reason := _find_error(f"SELECT {value}", residual):
            return low, column, reason
    return low, 0, error


def _find_error(sql: str, residual: Residual) -> MillpondError | None:
    try:
        residual.evaluate(sql, {})
    except MillpondError as error:
        return error
    return None


def _hint_of(column_type: str) -> str:
    """Say what a value of a column's type looks like."""
    if column_type.startswith("TIMESTAMP"):
        return (
            f"The column is {column_type}: write 'YYYY-MM-DD HH:MM:SS', or another format as"
            " strptime('31.12.2013', '%d.%m.%Y')."
        )
    if column_type == "DATE":
        return "The column is DATE: write 'YYYY-MM-DD'."
    return f"The column is {column_type}; a value is a constant expression."
