"""Derived streams: which queries may define one, and the schema of its elements."""

from __future__ import annotations

from dataclasses import replace

from millpond.errors import MillpondError, Span
from millpond.model.schema import Field, Schema, canonical_type
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.explain.logical_plan import is_monotonic

#: DuckDB's types of whole numbers a stream's columns do not have.
_WHOLE = ("HUGEINT", "UHUGEINT", "UBIGINT", "UINTEGER", "USMALLINT", "UTINYINT")


def derived_stream_query(bound: BoundQuery) -> BoundQuery:
    """The stream-valued query a derived stream is made by (SEMANTICS, section 4).

    Raises:
        MillpondError: CQL-222, it is relation-valued and rows leave its answer.
    """
    if bound.to_stream is not None:
        return bound
    if not is_monotonic(bound):
        raise MillpondError(
            "CQL-222",
            "the query of a derived stream gives a relation",
            detail="Rows leave its answer as well as come to it, so it is to be said which of them"
            " are the stream's elements.",
            hint="Write ISTREAM(…) for the rows that come, DSTREAM(…) for those that leave, or"
            " RSTREAM(…) for all rows each time.",
            text=bound.text,
            span=Span(0, len(bound.text)),
        )
    return replace(bound, to_stream="istream")


def derived_stream_schema(bound: BoundQuery) -> Schema:
    """The columns of a derived stream: the query's, of types a stream's columns can have.

    Raises:
        MillpondError: CQL-210, a column has no such type.
    """
    fields = []
    for field in bound.output.fields:
        type_name = canonical_type(field.type)
        if type_name is None and field.type in _WHOLE:
            type_name = "DECIMAL(38,0)"
        if type_name is None:
            raise MillpondError(
                "CQL-210",
                f'the column "{field.name}" has a type a stream cannot have: {field.type}',
                hint=f"Cast it in the query, for example CAST({field.name} AS STRING).",
                text=bound.text,
            )
        fields.append(Field(field.name, type_name))
    return Schema(tuple(fields))
