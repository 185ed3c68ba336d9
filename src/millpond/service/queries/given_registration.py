"""How programs give queries to register: one by one, or as a text and a table of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.errors import MillpondError

#: A query to register: its text, its name (given one when None), its options; or its text alone.
Registration = str | tuple[str, str | None, dict[str, Any]]


def parts(registration: Registration) -> tuple[str, str | None, dict[str, Any]]:
    """Text, name and options of a registration.

    >>> parts("SELECT * FROM s")
    ('SELECT * FROM s', None, {})
    """
    return (registration, None, {}) if isinstance(registration, str) else registration


def table_of_parameters(rows: Any) -> pa.Table:
    """A program's parameters as a table: a list of dictionaries, or a table of any library.

    Raises:
        MillpondError: DATA-501, it is neither, or the values of a column have no type in common.
    """
    try:
        if hasattr(rows, "__arrow_c_stream__"):
            return pa.table(rows)
        if isinstance(rows, Iterable) and not isinstance(rows, str | bytes | Mapping):
            given: Sequence[Any] = list(rows)
            if all(isinstance(row, Mapping) for row in given):
                names = dict.fromkeys(str(name) for row in given for name in row)
                return pa.table({name: [row.get(name) for row in given] for name in names})
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise unreadable_parameters_error(f"{error}.") from error
    raise unreadable_parameters_error(f"It is a {type(rows).__name__}.")


def unreadable_parameters_error(detail: str) -> MillpondError:
    """The error for a table of parameters that is none."""
    return MillpondError(
        "DATA-501",
        "the table of parameters cannot be read",
        detail=detail,
        hint="Give a column for each parameter, and `name` for the names of the queries.",
    )
