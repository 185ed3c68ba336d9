"""A table of parameters: one text becomes many queries, one a row.

A column named `name` has the names of the queries; every other column has the values of the
parameter of its name. A value has the type of its column, and becomes one constant of that type.

In CSV nothing says what a column is. A number is taken exactly as it is written, or refused. What
looks like a date or a time stays a text: it may be one of texts, and where it is compared with a
time, CQL takes the text as one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
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

#: A number without an exponent, and how many digits the numbers of a column may have.
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")
_MOST_DIGITS = 38


def fill_table(cql: str, table: pa.Table, options: Mapping[str, Any]) -> list[Registration]:
    """The queries that a text and a table of its parameters stand for.

    Args:
        cql: The text, with parameters (`$most`).
        table: The parameters, one query a row.
        options: The options of every query.

    Raises:
        MillpondError: CQL-102, CQL-103, as `fill_parameters`; the detail says which row. DATA-501,
            two columns have one name.
    """
    for name, times in Counter(table.column_names).items():
        if times > 1:
            raise unreadable_parameters_error(f'The column "{name}" is there {times} times.')
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
        csv: The text of CSV. Numbers and booleans are told from texts by the values of a whole
            column, but for the columns whose types are given.
        arrow: The bytes of a stream.
        types: SQL's names of the types of columns of CSV.

    Raises:
        MillpondError: DATA-501, the table cannot be read, or a number cannot be taken exactly;
            CQL-103, a type is none, or of a column that is not there.
    """
    try:
        if arrow is not None:
            return read_arrow(arrow, max(len(arrow), LARGEST_UNPACKED))
        data = (csv or "").encode()
        check_width(data, data.count(b"\n"))
        told = {name: _type(type_) for name, type_ in {NAME: "VARCHAR", **(types or {})}.items()}
        found = _read_csv(data, told)
        if missing := sorted((types or {}).keys() - set(found.column_names)):
            raise MillpondError(
                "CQL-103",
                f'the table has no column "{missing[0]}", whose type is given',
                hint=f"It has {', '.join(found.column_names)}.",
            )
        guessed = {
            field.name: pa.string()
            for field in found.schema
            if field.name not in told and not _is_exact(field.type)
        }
        texts = _read_csv(data, {**told, **guessed}) if guessed else found
        for place, field in enumerate(found.schema):
            if field.name in guessed:
                is_null = found.column(place).is_null().to_pylist()
                values = texts.column(place).to_pylist()
                own = [None if no else text for no, text in zip(is_null, values, strict=True)]
                is_number = pa.types.is_floating(field.type)
                exact = _take_numbers(field.name, own) if is_number else pa.array(own, pa.string())
                found = found.set_column(place, field.name, exact)
        return found
    except (pa.ArrowException, UnicodeEncodeError, ValueError) as error:
        raise unreadable_parameters_error(f"{error}.") from error


#: What is NULL in columns that are no texts: NaN is not, in any spelling.
_NULLS = [
    text for text in pyarrow.csv.ConvertOptions().null_values if text.strip("-").lower() != "nan"
]


def _read_csv(data: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
    convert = pyarrow.csv.ConvertOptions(column_types=dict(types), null_values=_NULLS)
    return pyarrow.csv.read_csv(pa.BufferReader(data), convert_options=convert)


def _is_exact(type_: pa.DataType) -> bool:
    """Whether values that were guessed to be of a type are as they were written."""
    kinds = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_null)
    return any(is_kind(type_) for is_kind in kinds)


def _take_numbers(name: str, texts: Sequence[str | None]) -> pa.Array:
    """Numbers as they are written: decimals, or floating-point ones if one has an exponent.

    Raises:
        MillpondError: DATA-501, neither can have all of them as they are.
    """
    written = [None if text is None else text.strip() for text in texts]
    if all(text is None or _PLAIN.fullmatch(text) for text in written):
        numbers = [None if text is None else Decimal(text) for text in written]
        tuples = [number.as_tuple() for number in numbers if number is not None]
        scale = max(-int(t.exponent) for t in tuples)
        whole = max(len(t.digits) + int(t.exponent) for t in tuples)
        if max(whole, 1) + scale <= _MOST_DIGITS:
            return pa.array(numbers, pa.decimal128(_MOST_DIGITS, scale))
        raise _inexact_error(name, f"its numbers have more than {_MOST_DIGITS} digits together")
    for text in written:
        if text is None or not math.isfinite(number := float(text)):
            continue
        if Decimal(text) != Decimal(repr(number)):
            raise _inexact_error(name, f"{text} would become {number!r}")
    return pa.array([None if text is None else float(text) for text in written], pa.float64())


def _inexact_error(name: str, reason: str) -> MillpondError:
    error = unreadable_parameters_error(f'Column "{name}": {reason}.')
    error.hint = 'Say the type of the column: "types": {"' + name + '": "VARCHAR"}, or DOUBLE.'
    return error


def _type(name: str) -> pa.DataType:
    canonical = canonical_type(name)
    if canonical is None:
        raise MillpondError(
            "CQL-103", f'"{name}" is not a type', hint="VARCHAR, BIGINT, DOUBLE, DATE, …"
        )
    return arrow_type(canonical)
