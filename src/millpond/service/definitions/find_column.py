"""The column of a declared table that another part of its statement names."""

from __future__ import annotations

from millpond.errors import MillpondError, Span
from millpond.model.schema import Field, Schema
from millpond.planner.resolve.names import did_you_mean


def find_column(
    schema: Schema, name: str, purpose: str, text: str, span: Span | None = None
) -> Field:
    """Find a column by its name.

    Args:
        schema: The table's columns.
        name: The name, in whatever case.
        purpose: What the column is named for, as in "for the primary key".
        text: The statement's text.
        span: The place of the name in it.

    Raises:
        MillpondError: CQL-202, there is no such column.
    """
    field = schema.find(name)
    if field is None:
        raise MillpondError(
            "CQL-202",
            f'no column "{name}" {purpose}',
            detail=f"The columns are {', '.join(schema.names)}.",
            hint=did_you_mean(name, schema.names) or "Declare the column.",
            text=text,
            span=span,
        )
    return field
