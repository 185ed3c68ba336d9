"""Rows as programs give them, as columns: dictionaries, or a table of any library."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import pyarrow as pa

from millpond.engine.admission.given_rows import CORRUPT, REFUSED
from millpond.engine.admission.text_values import put_column
from millpond.errors import MillpondError
from millpond.model.unicode_text import check_unicode

#: How the rows of a push may be written.
RowFormat = Literal["ndjson", "json", "csv", "arrow"]


def from_rows(rows: Any) -> pa.Table:
    """Rows as columns: Python dictionaries, whose keys are column names in any case, or a table.

    A table is pyarrow's, pandas', polars' or another's that can be read as Arrow's.

    Raises:
        MillpondError: DATA-501 for anything else.
    """
    if isinstance(rows, pa.Table):
        return free_own_names(rows)
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        try:
            return free_own_names(pa.table(rows))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise unreadable_rows_error("a table", str(error)) from error
    given = list(rows) if isinstance(rows, Iterable) and not isinstance(rows, str | dict) else None
    if given is None or not all(isinstance(row, dict) for row in given):
        raise MillpondError(
            "DATA-501",
            "the rows are neither a table nor dictionaries",
            detail=f"They are a {type(rows).__name__}.",
            hint="Give a table of pyarrow, pandas or polars, or a list with a dictionary a row.",
        )
    spelled: dict[str, str] = {}
    for row in given:
        for name in row:
            spelled.setdefault(str(name).lower(), str(name))
    for name in spelled.values():
        check_unicode(name, "a column's name", "DATA-501")
    folded = [{str(name).lower(): value for name, value in row.items()} for row in given]
    columns: dict[str, pa.Array] = {}
    corrupt: list[str | None] = [None] * len(given)
    for lower, name in spelled.items():
        put_column(columns, name, [row.get(lower) for row in folded], corrupt)
    if any(line is not None for line in corrupt):
        columns[CORRUPT] = pa.array(corrupt, pa.string())
    if not columns:  # a table without a column has no rows either
        columns[""] = pa.nulls(len(given))
    return pa.table(columns)


def free_own_names(table: pa.Table) -> pa.Table:
    """Give columns of a client's that are called as a reader's own another name: nobody reads them.

    Rows that a program gave as dictionaries come with the reader's column of what is no row.
    """
    names = [
        f" {name}" if name == REFUSED or (name == CORRUPT and type_ != pa.string()) else name
        for name, type_ in zip(table.column_names, table.schema.types, strict=True)
    ]
    if names.count(CORRUPT) > 1:
        names = [f" {name}" if name == CORRUPT else name for name in names]
    return table if names == table.column_names else table.rename_columns(names)


def unknown_format_error(format: str) -> MillpondError:
    """The error for an unknown format of rows."""
    known = "Formats are ndjson, json, csv and arrow."
    return unreadable_rows_error(f'the format "{format}"', known)


def unreadable_rows_error(what: str, detail: str) -> MillpondError:
    return MillpondError(
        "DATA-501",
        f"the rows cannot be read as {what}",
        detail=detail.split("\n", 1)[0],
        hint="Send NDJSON, JSON, CSV with a header, or an Arrow IPC stream, and say which.",
    )
