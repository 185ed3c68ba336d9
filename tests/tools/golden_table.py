"""The tables of a golden file: converts values to text and back, and compares bags of rows.

A cell is bare text. `NULL` is NULL and `''` the empty string. A string that would be read as
another value, or has a bar or spaces at its ends, stands in single quotes. Timestamps of
1970-01-01 are written as the time of day, so that a feed reads as a time column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.model import time
from millpond.model.schema import parts_of

_CLOCK = re.compile(r"\d\d:\d\d:\d\d(\.\d{1,6})?")
_QUOTED = re.compile(r"'((?:[^']|'')*)'")
_BARE_IS_NOT_TEXT = re.compile(r"NULL|\s.*|.*\s|.*\|.*|'.*|@.*|", re.DOTALL)


def split_cells(line: str) -> list[str]:
    """Split one line of a table into cells; a bar inside quotes is part of its cell."""
    cells, cell, quoted = [], "", False
    for character in line.strip():
        if character == "'" and (quoted or not cell.strip() or cell.lstrip().startswith("'")):
            quoted = not quoted
        if character == "|" and not quoted:
            cells.append(cell.strip())
            cell = ""
        else:
            cell += character
    return [*cells, cell.strip()]


def parse_time(text: str) -> int:
    """Parse an instant: a time of day (of 1970-01-01), a whole timestamp, or `the beginning`.

    >>> parse_time("00:00:02"), parse_time("1970-01-02 00:00:00")
    (2000000, 86400000000)
    """
    text = text.strip()
    if text == "the beginning":
        return time.BEGINNING
    return time.parse_instant(f"1970-01-01 {text}" if _CLOCK.fullmatch(text) else text)


def parse_cell(text: str, type_name: str) -> Any:
    """Parse a feed's cell as a value of a column's type.

    A cell that is not of the type stays text, so that a golden can feed a bad row.
    """
    if text == "NULL":
        return None
    if quoted := _QUOTED.fullmatch(text):
        return quoted[1].replace("''", "'")
    try:
        return _value(text, type_name)
    except (ValueError, ArithmeticError):
        return text


def _value(text: str, type_name: str) -> Any:
    match type_name:
        case "VARCHAR":
            return text
        case "BOOLEAN":
            return {"true": True, "false": False}.get(text.lower(), text)
        case "FLOAT" | "DOUBLE":
            return float(text)
        case "TIMESTAMP":
            return time.to_datetime(parse_time(text))
        case "TIMESTAMPTZ" if _CLOCK.fullmatch(text):
            at = time.to_datetime(parse_time(text))
            return text if at is None else at.replace(tzinfo=UTC)
        case "TIMESTAMPTZ":
            return text
        case "DATE":
            return date.fromisoformat(text)
        case _ if type_name == "JSON" or parts_of(type_name) is not None:
            return text
        case _ if type_name.startswith("DECIMAL"):
            return Decimal(text)
        case _:
            return int(text)


def show_cell(value: Any) -> str:
    """Write a value as a golden does."""
    if isinstance(value, pa.MonthDayNano):
        return time.format_interval(*value)
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        bare = not _BARE_IS_NOT_TEXT.fullmatch(value)
        return value if bare else "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        zoned = value.tzinfo is not None
        naive = value.astimezone(UTC).replace(tzinfo=None) if zoned else value
        text = time.format_instant(time.from_datetime(naive)).removeprefix("1970-01-01 ")
        return f"{text}+00" if zoned else text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {show_cell(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(show_cell, value)) + "]"
    if isinstance(value, float) and value == 0:
        return "0.0"
    return str(value)


def show_instant(at: int) -> str:
    """Write an instant as a golden does."""
    return time.format_instant(at).removeprefix("1970-01-01 ")


def show_rows(rows: Sequence[Sequence[Any]]) -> list[tuple[str, ...]]:
    return [tuple(show_cell(value) for value in row) for row in rows]


def same_cell(one: str, other: str) -> bool:
    """Whether two cells are equal; floats may differ in their last digits.

    Sums of floats depend on the order of the summands, which a bag does not have.
    """
    if one == other:
        return True
    if not ("." in one or "e" in one) or not ("." in other or "e" in other):
        return False
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-9)
    except ValueError:
        return False


def same_rows(
    expected: Sequence[tuple[str, ...]], actual: Sequence[tuple[str, ...]], ordered: bool
) -> bool:
    """Whether two tables hold the same rows: in the same order, or as bags."""
    if len(expected) != len(actual):
        return False
    if not ordered:
        expected, actual = sorted(expected), sorted(actual)
    return all(
        len(one) == len(other) and all(map(same_cell, one, other))
        for one, other in zip(expected, actual, strict=True)
    )


def draw(columns: Sequence[str], rows: Sequence[tuple[str, ...]], indent: str = "  ") -> str:
    """Write a table as a golden does, with aligned columns."""
    table = [tuple(columns), *rows]
    widths = [max((len(r[i]) for r in table if i < len(r)), default=0) for i in range(len(columns))]
    lines = (
        " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=False)) for row in table
    )
    return "\n".join(indent + line.rstrip() for line in lines)


def diff(
    columns: Sequence[str],
    expected: Sequence[tuple[str, ...]],
    actual: Sequence[tuple[str, ...]],
    ordered: bool,
) -> str:
    """Write the rows that are missing (-), that are too many (+), and that are right."""
    if ordered:
        return (
            f"expected, in this order:\n{draw(columns, expected)}\n"
            f"answered:\n{draw(columns, actual)}"
        )
    rest = list(actual)
    lines = []
    for row in sorted(expected):
        match = next((r for r in rest if same_rows([row], [r], True)), None)
        if match is not None:
            rest.remove(match)
        lines.append((" " if match is not None else "-", row))
    lines += [("+", row) for row in sorted(rest)]
    head = draw(columns, [row for _, row in lines], "").split("\n")
    marks = [" ", *(mark for mark, _ in lines)]
    return "\n".join(f"  {mark} {line}" for mark, line in zip(marks, head, strict=True))
