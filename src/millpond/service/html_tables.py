"""Tables as HTML, for notebooks."""

from __future__ import annotations

from html import escape
from typing import Any

import pyarrow as pa

#: How many rows and columns a notebook shows, and how many characters of a value.
SHOWN_ROWS = 50
SHOWN_COLUMNS = 50
SHOWN_CHARACTERS = 200


def write_table(table: pa.Table, caption: str, python_values: Any) -> str:
    """Write the first rows and columns of a table, with a caption; all values are escaped.

    Args:
        table: The rows.
        caption: What is said above them.
        python_values: Gives a column's values as Python's.
    """
    shown = table.select(list(range(min(table.num_columns, SHOWN_COLUMNS)))).slice(0, SHOWN_ROWS)
    heads = "".join(f"<th>{escape(name)}</th>" for name in shown.column_names)
    columns = [python_values(column) for column in shown.columns]
    lines = [
        "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>"
        for row in zip(*columns, strict=True)
    ]
    parts = []
    if table.num_rows > SHOWN_ROWS:
        parts.append(f"{table.num_rows - SHOWN_ROWS:,} more rows")
    if table.num_columns > SHOWN_COLUMNS:
        parts.append(f"{table.num_columns - SHOWN_COLUMNS:,} more columns")
    more = f"<p>… {' and '.join(parts)}</p>" if parts else ""
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>{more}"
    )


def _cell(value: Any) -> str:
    if value is None:
        return "<i>NULL</i>"
    text = str(value)
    return escape(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…")
