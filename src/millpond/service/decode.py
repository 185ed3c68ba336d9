"""Rows as clients write them, decoded into columns; typing and judging are admission's."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.csv

from millpond.engine.ingress import CORRUPT
from millpond.errors import MillpondError
from millpond.model.schema import Schema


def from_rows(rows: list[dict[str, Any]]) -> pa.Table:
    """Python dictionaries as text columns where their types do not agree."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            columns[name] = pa.array([_text(v) for v in values], pa.string())
    return pa.table(columns)


def from_text(data: bytes, format: str, schema: Schema) -> pa.Table:
    """Rows written as 'ndjson', 'csv' with a header, or an 'arrow' IPC stream.

    A line that cannot be split into columns is kept as it is, to be rejected with the reason.

    Raises:
        MillpondError: DATA-501 when nothing of it can be read.
    """
    match format:
        case "ndjson":
            return _ndjson(data, schema)
        case "csv":
            return _csv(data)
        case "arrow":
            try:
                return pa.ipc.open_stream(data).read_all()
            except (pa.ArrowInvalid, OSError) as error:
                raise _unreadable("an Arrow IPC stream", str(error)) from error
    raise _unreadable(f'the format "{format}"', "Formats are ndjson, csv and arrow.")


def _ndjson(data: bytes, schema: Schema) -> pa.Table:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unreadable("UTF-8 text", str(error)) from error
    names = {f.name.lower(): f.name for f in schema.fields}
    columns: dict[str, list[Any]] = {f.name: [] for f in schema.fields}
    corrupt: list[str | None] = []
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            row = None
        good = isinstance(row, dict)
        given = {k.lower(): v for k, v in row.items()} if good else {}
        for lower, name in names.items():
            columns[name].append(_text(given.get(lower)))
        corrupt.append(None if good else line)
    table = pa.table({n: pa.array(v, pa.string()) for n, v in columns.items()})
    if any(line is not None for line in corrupt):
        table = table.append_column(CORRUPT, pa.array(corrupt, pa.string()))
    return table


def _csv(data: bytes) -> pa.Table:
    bad: list[tuple[int | None, str]] = []

    def invalid(row: pyarrow.csv.InvalidRow) -> str:
        bad.append((row.number, row.text))
        return "skip"

    try:
        header = next(iter(io.StringIO(data.decode("utf-8").split("\n", 1)[0])), "")
        names = [n.strip().strip('"') for n in header.strip().split(",")]
        table = pyarrow.csv.read_csv(
            io.BytesIO(data),
            parse_options=pyarrow.csv.ParseOptions(
                invalid_row_handler=invalid, newlines_in_values=True
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={n: pa.string() for n in names},
                strings_can_be_null=True,
                null_values=[""],
                quoted_strings_can_be_null=False,
            ),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise _unreadable("CSV with a header", str(error)) from error
    if bad:
        rejected = pa.table({CORRUPT: pa.array([text for _, text in bad], pa.string())})
        table = pa.concat_tables([table, rejected], promote_options="default")
    return table


def _text(value: Any) -> str | None:
    """A JSON value as the text a cast reads; nested values as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value)
    return str(value)


def _unreadable(what: str, detail: str) -> MillpondError:
    return MillpondError(
        "DATA-501",
        f"the rows cannot be read as {what}",
        detail=detail.split("\n", 1)[0],
        hint="Send NDJSON, CSV with a header, or an Arrow IPC stream, and say which.",
    )
