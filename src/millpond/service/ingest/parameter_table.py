"""A table of parameters: one text becomes many queries, one a row.

A column named `name` has the names of the queries; every other column has the values of the
parameter of its name. A value has the type of its column, and becomes one constant of that type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.csv

from millpond.cql.print.parameters import fill_parameters
from millpond.errors import MillpondError
from millpond.model.schema import arrow_type, canonical_type
from millpond.service.ingest.arrow_streams import read_arrow
from millpond.service.ingest.row_formats import LARGEST_UNPACKED, check_width
from millpond.service.queries.given_registration import Registration, unreadable_parameters_error
from millpond.service.results import python_values

#: The column that names the queries.
NAME = "name"


def fill_table(cql: str, table: pa.Table, options: Mapping[str, Any]) -> list[Registration]:
    """The queries that a text and a table of its parameters stand for.

    Args:
        cql: The text, with parameters (`$most`).
        table: The parameters, one query a row.
        options: The options of every query.

    Raises:
        MillpondError: CQL-102, CQL-103, as `fill_parameters`; the detail says which row.
    """
    columns = {name: python_values(table[name]) for name in table.column_names}
    given_names = columns.pop(NAME, [None] * table.num_rows)
    found: list[Registration] = []
    for row, name in enumerate(given_names):
        values = {column: items[row] for column, items in columns.items()}
        try:
            fill_parameters(cql, values)
        except MillpondError as error:
            place = place_in(row, table.num_rows)
            error.detail = f"{place} {error.detail or ''}".strip()
            raise
        given = {**options, "params": values}
        found.append((cql, None if name is None else str(name), given))
    return found


def place_in(index: int, length: int) -> str:
    """Say which query of several an error is about."""
    return f"Query {index} of {length} (counting from 0)."


def read_parameters(
    csv: str | None, arrow: bytes | None, types: Mapping[str, str] | None = None
) -> pa.Table:
    """Read a table of parameters that was sent: CSV with a header, or an Arrow IPC stream.

    Args:
        csv: The text of CSV. Numbers, booleans, dates and times are told from texts by the values
            of a whole column, but for the columns whose types are given.
        arrow: The bytes of a stream.
        types: SQL's names of the types of columns of CSV.

    Raises:
        MillpondError: DATA-501, the table cannot be read; CQL-103, a type is none.
    """
    try:
        if arrow is not None:
            return read_arrow(arrow, max(len(arrow), LARGEST_UNPACKED))
        data = (csv or "").encode()
        check_width(data, data.count(b"\n"))
        told = {name: _type(type_) for name, type_ in {NAME: "VARCHAR", **(types or {})}.items()}
        convert = pyarrow.csv.ConvertOptions(column_types=told)
        return pyarrow.csv.read_csv(pa.BufferReader(data), convert_options=convert)
    except (pa.ArrowException, UnicodeEncodeError, ValueError) as error:
        raise unreadable_parameters_error(f"{error}.") from error


def _type(name: str) -> pa.DataType:
    canonical = canonical_type(name)
    if canonical is None:
        raise MillpondError(
            "CQL-103", f'"{name}" is not a type', hint="VARCHAR, BIGINT, DOUBLE, DATE, …"
        )
    return arrow_type(canonical)
