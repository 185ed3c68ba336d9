"""Decodes rows as clients write them into columns; admission casts and judges them."""

from __future__ import annotations

import csv
import io
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv

from millpond.engine.admission.given_rows import CORRUPT, REFUSED
from millpond.engine.admission.json_size import has_more
from millpond.engine.admission.text_values import read_json_rows
from millpond.errors import MillpondError
from millpond.model.schema import Schema
from millpond.service.ingest.arrow_streams import read_arrow
from millpond.service.ingest.given_rows import (
    free_own_names,
    unknown_format_error,
    unreadable_rows_error,
)

#: The most rows, and values, of a push that is sent as text or as an Arrow stream.
MOST_ROWS, MOST_VALUES = 1_000_000, 10_000_000
#: The most commas of an array of JSON, each row of which is read as one value first.
MOST_COMMAS = 1_000_000
#: The most columns that the first line of CSV may name.
MOST_COLUMNS = 10_000
#: The most bytes of an Arrow stream once it is unpacked, if the stream itself does not have more.
LARGEST_UNPACKED = 67_108_864

#: Reads the bounds of a value: numbers stay texts, however long they are.
_VALUES = json.JSONDecoder(parse_int=str, parse_float=str)
_BLANKS = re.compile(r"[ \t\r\n]*")


def from_text(data: bytes, format: str, schema: Schema) -> pa.Table:
    """Rows written as 'ndjson', an array of 'json', 'csv' with a header, or an 'arrow' IPC stream.

    A line, or an element of the array, that cannot be split into columns is kept unchanged, and
    rejected later with the reason.

    Raises:
        MillpondError: DATA-501 when nothing of it can be read, or it has too many rows.
    """
    if format in ("ndjson", "csv"):
        lines = max(data.count(b"\n"), data.count(b"\r"))
        _check_count(lines, len(schema.fields))
    match format:
        case "ndjson":
            texts = _decode(data).split("\n")
            return read_json_rows((line for line in texts if line.strip()), schema)
        case "json":
            if has_more(data, b",", MOST_COMMAS):
                raise unreadable_rows_error("JSON", f"It has more than {MOST_COMMAS:,} values.")
            rows = _split_json(_decode(data))
            _check_count(len(rows), len(schema.fields))
            return read_json_rows(rows, schema)
        case "csv":
            check_width(data, lines)
            return _read_csv(data, schema)
        case "arrow":
            try:
                table = read_arrow(data, max(len(data), LARGEST_UNPACKED))
            except (pa.ArrowException, OSError, ValueError) as error:
                raise unreadable_rows_error("an Arrow IPC stream", str(error)) from error
            _check_count(table.num_rows, len(schema.fields))
            return free_own_names(table)
    raise unknown_format_error(format)


def _check_count(rows: int, columns: int) -> None:
    """Refuse more rows than can be judged at once: each takes memory, however short it is.

    Raises:
        MillpondError: DATA-501.
    """
    most = min(MOST_ROWS, MOST_VALUES // max(columns, 1))
    if rows > most:
        raise MillpondError(
            "DATA-501",
            f"the rows are more than {most:,}",
            detail=f"A push has at most {MOST_ROWS:,} rows and {MOST_VALUES:,} values.",
            hint="Send them in parts; each part has its own Idempotency-Key.",
        )


def check_width(data: bytes, lines: int) -> None:
    """Refuse CSV whose first line names too many columns; all of them would be read.

    Raises:
        MillpondError: DATA-501.
    """
    columns = data.count(b",", 0, data.find(b"\n") + 1 or len(data)) + 1
    if columns > MOST_COLUMNS:
        raise MillpondError(
            "DATA-501",
            f"the CSV has {columns:,} columns",
            detail=f"It may have {MOST_COLUMNS:,}.",
            hint="Send the columns of the stream alone.",
        )
    _check_count(lines, columns)


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unreadable_rows_error("UTF-8 text", str(error)) from error


def _split_json(text: str) -> list[str]:
    """The texts of the elements of an array of JSON; of anything else, its own.

    Raises:
        MillpondError: DATA-501, it is no JSON.
    """
    rows: list[str] = []
    try:
        end = _skip_blanks(text, 0)
        if not text.startswith("[", end):
            rows.append(text[end : (end := _VALUES.raw_decode(text, end)[1])])
        elif text.startswith("]", end := _skip_blanks(text, end + 1)):
            end += 1
        else:
            comma = True
            while comma:
                rows.append(text[end : (end := _VALUES.raw_decode(text, end)[1])])
                end = _skip_blanks(text, end)
                comma = text.startswith(",", end)
                if not comma and not text.startswith("]", end):
                    raise json.JSONDecodeError("Expecting ',' or ']'", text, end)
                end = _skip_blanks(text, end + 1)
        if _skip_blanks(text, end) < len(text):
            raise json.JSONDecodeError("Something stands behind the rows", text, end)
    except RecursionError as error:
        raise unreadable_rows_error("JSON", "It is nested too deeply.") from error
    except ValueError as error:
        raise unreadable_rows_error("JSON", str(error)) from error
    return rows


def _skip_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _read_csv(data: bytes, schema: Schema) -> pa.Table:
    bad: dict[int, str] = {}
    reasons: list[str] = []

    def invalid(row: pyarrow.csv.InvalidRow) -> str:
        bad[row.number - 2] = row.text  # counted from 1, and the header is the first
        found, wanted = row.actual_columns, row.expected_columns
        reasons.append(f"malformed row: fields in the header: {wanted}, in the row: {found}")
        return "skip"

    try:
        text = data.decode("utf-8-sig")
        # The first line says the names; a byte order mark and blanks around them are none of them.
        header = next(csv.reader(io.StringIO(text, newline="")), [])
        _check_header([name.strip() for name in header], schema)
        if data.count(b'"') % 2:
            _check_quotes(text)
        table = pyarrow.csv.read_csv(
            io.BytesIO(data),
            read_options=pyarrow.csv.ReadOptions(use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(
                invalid_row_handler=invalid, newlines_in_values=True
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={n: pa.string() for n in header},
                strings_can_be_null=True,
                null_values=[""],
                quoted_strings_can_be_null=False,
            ),
        )
        own = (CORRUPT, REFUSED)
        names = [name.strip() for name in header]
        table = table.rename_columns([f" {name}" if name in own else name for name in names])
        if not bad:
            return table
        # Each where it stood, for a receipt speaks of rows by their place.
        texts = pa.array(bad.values(), pa.string())
        corrupt = pa.table({CORRUPT: texts, REFUSED: pa.array(reasons, pa.string())})
        together = pa.concat_tables([table, corrupt], promote_options="default")
        order = np.empty(together.num_rows, dtype=np.int64)
        places = np.array(list(bad), dtype=np.int64)
        order[places] = np.arange(table.num_rows, together.num_rows)
        order[np.delete(np.arange(together.num_rows), places)] = np.arange(table.num_rows)
        return together.take(pa.array(order))
    except (pa.ArrowException, ValueError, csv.Error) as error:
        raise unreadable_rows_error("CSV with a header", str(error)) from error


def _check_header(header: list[str], schema: Schema) -> None:
    """Refuses a first line that names no column: it is a row, and the rows have no header.

    Raises:
        MillpondError: DATA-501.
    """
    names = [name.lower() for name in schema.names]
    if not header or any(name.lower() in names for name in header):
        return
    raise MillpondError(
        "DATA-501",
        "the CSV has no header",
        detail=f"Its first line names no column of the stream: {','.join(header)[:200]}",
        hint=f"Send the names of its columns first: {','.join(f.name for f in schema.given)}",
    )


def _check_quotes(text: str) -> None:
    """Check that every quote is closed: Arrow's reader would take the rest of the text as a value.

    Raises:
        ValueError: a quote is never closed.
    """
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    start = 1
    try:
        for _ in rows:
            start = rows.line_num + 1
    except csv.Error as error:
        if "end of data" in str(error):
            raise ValueError(f"In line {start} a quote is opened and never closed") from None
