"""Checks the expressions of computed columns when a stream is created."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millpond.catalog.objects import Definition, StreamDef
from millpond.cql import parse_query
from millpond.cql.tree.statements import CreateStream
from millpond.errors import MillpondError
from millpond.model.schema import Schema
from millpond.planner.bind.bind import bind
from millpond.planner.resolve.names import TablesAlone

_TABLE = "rows_under_test"


def check_computed_columns(statement: CreateStream, schema: Schema) -> None:
    """Check that every computed column is computed from columns of its row before it.

    A computed column may use all columns that are given, and the computed ones declared before it.

    Raises:
        MillpondError: CQL-2xx at the column, CQL-103 if there is no column that is given.
    """
    if not schema.given:
        raise statement.error(
            "CQL-103",
            f'every column of "{statement.name}" is computed',
            hint="Declare the columns that rows are given with.",
        )
    for place, (column, field) in enumerate(zip(statement.columns, schema.fields, strict=True)):
        if field.computed is None or column.computed is None:
            continue
        later = [f.name.lower() for f in schema.fields[place:] if f.computed is not None]
        for used in column.computed.find_all(exp.Column):
            if used.parts[0].name.lower() in later:
                raise MillpondError(
                    "CQL-202",
                    f'column "{field.name}" is computed from "{used.parts[0].name}", '
                    "which is computed after it",
                    hint="Declare what it is computed from before it.",
                    text=statement.text,
                    span=column.span,
                )
        known = [f for n, f in enumerate(schema.fields) if f.computed is None or n < place]
        names = _Rows(StreamDef(0, _TABLE, Schema(tuple(known))))
        cast = f"CAST(({field.computed}) AS {field.type})"
        text = f"SELECT 1 AS one FROM {_TABLE} WHERE {cast} IS NULL"
        try:
            bind(parse_query(text), text, names)
        except MillpondError as error:
            error.text, error.span = statement.text, column.span
            raise


@dataclass(frozen=True)
class _Rows(TablesAlone):
    """Names for binding: the rows of the stream that is being created, and nothing else."""

    rows: StreamDef

    def find(self, name: str) -> Definition | None:
        return self.rows if name.lower() == _TABLE else None

    def names(self) -> list[str]:
        return [_TABLE]
