"""The first rows of tables: as HTML for notebooks, as text for terminals."""

from __future__ import annotations

from html import escape
from typing import Any

import pyarrow as pa

#: How many rows and columns a notebook shows, and how many characters of a value.
SHOWN_ROWS = 50
SHOWN_COLUMNS = 50
SHOWN_CHARACTERS = 200
#: How many rows and columns a terminal shows, and how many characters of a value.
PRINTED_ROWS = 20
PRINTED_COLUMNS = 20
PRINTED_CHARACTERS = 60


def write_table(table: pa.Table, caption: str, python_values: Any) -> str:
    """Write the first rows and columns of a table, with a caption; all values are escaped.

    Args:
        table: The rows.
        caption: What is said above them.
        python_values: Gives a column's values as Python's.
    """
    shown = _cut(table, SHOWN_ROWS, SHOWN_COLUMNS)
    heads = "".join(f"<th>{escape(name)}</th>" for name in shown.column_names)
    columns = [python_values(column) for column in shown.columns]
    lines = [
        "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>"
        for row in zip(*columns, strict=True)
    ]
    left = _tell_left(table, shown)
    more = f"<p>{left}</p>" if left else ""
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>{more}"
    )


def print_table(table: pa.Table, python_values: Any) -> str:
    """Print the first rows and columns of a table as lines, with the columns' names above.

    Args:
        table: The rows.
        python_values: Gives a column's values as Python's.
    """
    shown = _cut(table, PRINTED_ROWS, PRINTED_COLUMNS)
    columns = []
    for name, column in zip(shown.column_names, shown.columns, strict=True):
        cells = [_shorten(" ".join(name.split()), PRINTED_CHARACTERS)]
        for value in python_values(column):
            text = "NULL" if value is None else " ".join(str(value).split())
            cells.append(_shorten(text, PRINTED_CHARACTERS))
        width = max(map(len, cells))
        is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        columns.append([cell.rjust(width) if is_number else cell.ljust(width) for cell in cells])
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    left = _tell_left(table, shown)
    return "\n".join((*lines, left) if left else lines)


def _cut(table: pa.Table, rows: int, columns: int) -> pa.Table:
    return table.select(list(range(min(table.num_columns, columns)))).slice(0, rows)


def _tell_left(table: pa.Table, shown: pa.Table) -> str:
    """How many rows and columns are not shown; empty if none."""
    counts = {
        "rows": table.num_rows - shown.num_rows,
        "columns": table.num_columns - shown.num_columns,
    }
    parts = [f"{count:,} more {what}" for what, count in counts.items() if count]
    return f"… {' and '.join(parts)}" if parts else ""


def _cell(value: Any) -> str:
    return "<i>NULL</i>" if value is None else escape(_shorten(str(value), SHOWN_CHARACTERS))


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
