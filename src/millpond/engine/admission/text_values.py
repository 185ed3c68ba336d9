"""Values of JSON, and of Python, as columns that admission casts: each with its type, or as text.

A value means the same whatever stands beside it: a column of several types becomes text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.engine.admission.given_rows import BYTES, CORRUPT, MOST_ROW_BYTES, REFUSED
from millpond.engine.admission.json_size import has_more
from millpond.model.schema import Schema, leaf_types
from millpond.model.unicode_text import find_lone_surrogate

#: The most members a row may have, those of the objects in it too; each takes microseconds.
MOST_MEMBERS = 100_000
_NO_OBJECT = "malformed row: it cannot be read as a JSON object"
_HALF = "malformed row: a text of it has half a surrogate pair"
#: Python types whose values of one column keep their type; of all others the text is taken.
_TYPED = (bool, int, float, str, bytes, datetime, date)
_BYTES = (bytes, bytearray, memoryview)


def read_json_rows(lines: Iterable[str | None], schema: Schema) -> pa.Table:
    """Read a JSON object a text, of the schema's columns, found in any case.

    What is no object is kept unchanged, in the column `CORRUPT`. None gives a row of NULLs. A row
    of more than `MOST_MEMBERS` is not read. The column `REFUSED` says why a row is none.
    """
    names = {f.name.lower(): f.name for f in schema.fields}
    # A float has fewer digits than a DECIMAL may have.
    exact = {
        f.name.lower()
        for f in schema.fields
        if any(t.startswith("DECIMAL") for t in leaf_types(f.type))
    }
    number = Decimal if exact else None
    columns: dict[str, list[Any]] = {f.name: [] for f in schema.fields}
    corrupt: list[str | None] = []
    refused: dict[int, str] = {}
    for line in lines:
        row: Any = None
        if line is not None and _has_many_members(line):
            refused[len(corrupt)] = f"the row has more than {MOST_MEMBERS:,} members"
        # A row that is too large will be rejected: it need not be read, which takes seconds.
        elif line is None or len(line) <= MOST_ROW_BYTES:
            # Not JSON, or a number of thousands of digits.
            with suppress(ValueError, RecursionError):
                row = {} if line is None else json.loads(line, parse_float=number)
        good = isinstance(row, dict) and (
            line is None
            or "\\u" not in line
            or find_lone_surrogate(json.dumps(row, ensure_ascii=False, default=to_json_value))
            is None
        )
        if not good and line is not None and len(line) <= MOST_ROW_BYTES:
            why = _HALF if isinstance(row, dict) else _NO_OBJECT
            refused.setdefault(len(corrupt), why)
        given = {k.lower(): v for k, v in row.items()} if good else {}
        for lower, name in names.items():
            value = given.get(lower)
            if isinstance(value, Decimal) and lower not in exact:
                value = float(value)
            columns[name].append(to_text(value, str if lower in exact else to_json_value))
        corrupt.append(None if good else line)
    table = pa.table({n: pa.array(v, pa.string()) for n, v in columns.items()})
    if any(line is not None for line in corrupt):
        table = table.append_column(CORRUPT, pa.array(corrupt, pa.string()))
    if refused:
        reasons = [refused.get(place) for place in range(len(corrupt))]
        table = table.append_column(REFUSED, pa.array(reasons, pa.string()))
    return table


def _has_many_members(line: str) -> bool:
    if len(line) <= 4 * MOST_MEMBERS or len(line) > MOST_ROW_BYTES:
        return False
    return has_more(line.encode("utf-8", "replace"), b":", MOST_MEMBERS)


def put_column(
    columns: dict[str, pa.Array], name: str, values: list[Any], corrupt: list[str | None]
) -> None:
    """Put a column of values: with their type if they have one in common, else as text.

    Bytes beside other values are a column of their own, `BYTES` and the name. A text with half a
    surrogate pair is put into `corrupt`, at its row.
    """
    types = {type(value) for value in values if value is not None}
    if not types or (len(types) == 1 and types <= set(_TYPED)):
        try:
            columns[name] = pa.array(values)
            return
        except (ValueError, TypeError, OverflowError):
            pass
    given = [bytes(v) if isinstance(v, _BYTES) else None for v in values]
    if any(value is not None for value in given):
        columns[BYTES + name] = pa.array(given, pa.binary())
        values = [None if isinstance(v, _BYTES) else v for v in values]
    texts: list[str | None] = []
    for place, value in enumerate(values):
        text = to_text(value)
        if text is not None and find_lone_surrogate(text) is not None:
            corrupt[place] = ascii(value)
            text = None
        texts.append(text)
    columns[name] = pa.array(texts, pa.string())


def to_text(value: Any, default: Callable[[Any], Any] | None = None) -> str | None:
    """A value as the text a cast reads; nested values as JSON."""
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(Decimal(value))  # str(int) refuses thousands of digits
        case dict() | list() | tuple():
            try:
                return _nested_json(value, default)
            except (TypeError, ValueError, RecursionError):
                return str(value)
    return str(value)


def to_json_value(value: Any) -> float | str:
    """A nested value that JSON has no form for, as JSON."""
    return float(value) if isinstance(value, Decimal) else _nested_text(value)


def _nested_json(value: Any, default: Callable[[Any], Any] | None) -> str:
    try:
        return json.dumps(value, default=default or _refuse_exact)
    except _ExactError:
        return _write_json(value)


class _ExactError(Exception):
    """A value has a decimal in it, of which a double would not keep all digits."""


def _refuse_exact(value: Any) -> str:
    if isinstance(value, Decimal):
        raise _ExactError
    return _nested_text(value)


def _write_json(value: Any) -> str:
    """Write a value as JSON, the decimals in it as numbers with all of their digits."""
    match value:
        case dict():
            members = (f"{json.dumps({k: 0})[1:-4]}: {_write_json(v)}" for k, v in value.items())
            return "{" + ", ".join(members) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_write_json, value)) + "]"
        case Decimal() if value.is_finite():
            return f"{value:f}"
    return json.dumps(value, default=_nested_text)


def _nested_text(value: Any) -> str:
    """The text that a cast reads as a value: of bytes, each by its number."""
    if isinstance(value, _BYTES):
        return "".join(f"\\x{byte:02X}" for byte in bytes(value))
    return str(value)
