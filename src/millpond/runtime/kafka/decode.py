"""Decodes records' values into columns, which admission casts and judges.

JSON takes one of two ways that give the same: Arrow's reader, for a batch in which every value has
the declared shape, and Python's, value by value, for any other batch. CSV is read by Arrow.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from millpond.engine.admission.given_rows import CORRUPT, REFUSED
from millpond.engine.admission.text_values import read_json_rows
from millpond.model.schema import Schema, parts_of
from millpond.runtime.kafka.avro import AvroDecoder
from millpond.runtime.kafka.read_range import Records
from millpond.runtime.kafka.settings import KafkaOptions

#: What a member of JSON has to be for Arrow's reader; a text for all other types.
_JSON_TYPES = {
    "TINYINT": pa.int64(),
    "SMALLINT": pa.int64(),
    "INTEGER": pa.int64(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
}
_TEXT_TYPES = ("VARCHAR", "TIMESTAMP", "DATE", "TIME")

Decode = Callable[[Sequence[bytes | None]], pa.Table]


def make_decoder(options: KafkaOptions, schema: Schema) -> Callable[[Records], pa.Table]:
    """Make the function that turns records into rows of the columns a stream declares."""
    taken = {name.lower() for name in options.columns.values()}
    payload = Schema(tuple(f for f in schema.given if f.name.lower() not in taken))
    decode = _decoder(options, payload)

    def rows(records: Records) -> pa.Table:
        table = decode(records.values)
        for option, column in options.columns.items():
            table = table.append_column(column, _metadata(option, records, schema, column))
        return table

    return rows


def _decoder(options: KafkaOptions, payload: Schema) -> Decode:
    match options.format:
        case "json":
            return lambda values: decode_json(values, payload)
        case "csv":
            return lambda values: decode_csv(values, payload, options.sep)
        case "avro":
            return AvroDecoder(options, payload).decode
    return lambda values: _raw(values, payload)


def _raw(values: Sequence[bytes | None], payload: Schema) -> pa.Table:
    given = pa.array(values, pa.binary())
    return pa.table({f.name: given for f in payload.fields} or {CORRUPT: pa.nulls(len(given))})


def decode_json(values: Sequence[bytes | None], payload: Schema) -> pa.Table:
    """Read a JSON object a value; a record without a value gives NULLs."""
    quick = _read_json_block(values, payload)
    if quick is not None:
        return quick
    texts, refused = _texts(values)
    return _with_refused(read_json_rows(texts, payload), refused, values)


def _read_json_block(values: Sequence[bytes | None], payload: Schema) -> pa.Table | None:
    """Read all values by one call; None if one of them is not plainly of the declared shape."""
    fields = []
    for field in payload.fields:
        type_ = _JSON_TYPES.get(field.type)
        if type_ is None:
            # A whole number is a DOUBLE as well, and must not depend on what stands beside it.
            if field.type not in _TEXT_TYPES and field.type != "DOUBLE":
                return None
            type_ = pa.float64() if field.type == "DOUBLE" else pa.string()
        fields.append(pa.field(field.name, type_))
    plain = [v for v in values if v and v[:1] == b"{" and v[-1:] == b"}" and b"\n" not in v]
    if not fields or len(plain) < len(values):
        return None
    block = b"\n".join(plain)
    try:
        table = pyarrow.json.read_json(
            io.BytesIO(block),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(fields), unexpected_field_behavior="error"
            ),
        )
    except pa.ArrowException:
        return None
    return table if table.num_rows == len(values) else None


def decode_csv(values: Sequence[bytes | None], payload: Schema, sep: str) -> pa.Table:
    """Read a line of CSV a value, whose values stand for the columns as they are declared.

    A line that ends before the columns that were added to the stream is as old as that, and lacks
    them.
    """
    texts, refused = _texts(values)
    names = [f.name for f in payload.fields]
    lines: list[bytes] = []
    corrupt: list[str | None] = [None] * len(texts)
    for place, text in enumerate(texts):
        # A line end belongs to no line; one inside of quotes belongs to a value.
        line = (text or "").rstrip("\r\n")
        if "\n" in line or "\r" in line or line.count('"') % 2:
            corrupt[place], line = text, ""
        lines.append(line.encode())
    table, bad = _read_lines(lines, names, sep)
    least = len(names) - len(payload.added)
    if older := {place: count for place, count in bad.items() if least <= count < len(names)}:
        for place, count in older.items():
            lines[place] += sep.encode() * (len(names) - count)
        table, bad = _read_lines(lines, names, sep)
    if bad:
        for place in bad:
            # An empty line stands for a record that has no value, or cannot be read.
            if lines[place]:
                corrupt[place] = texts[place]
        good = [n for n in range(len(lines)) if n not in bad]
        places: list[int | None] = [None] * len(lines)
        for row, place in enumerate(good):
            places[place] = row
        table = table.take(pa.array(places, pa.int64()))
    if any(line is not None for line in corrupt):
        table = table.append_column(CORRUPT, pa.array(corrupt, pa.string()))
    return _with_refused(table, refused, values)


def _read_lines(
    lines: Sequence[bytes], names: Sequence[str], sep: str
) -> tuple[pa.Table, dict[int, int]]:
    """Read lines as texts; the places of those that have not as many values as there are names,
    which have no row, each with how many it has."""
    bad: dict[int, int] = {}

    def note(row: pyarrow.csv.InvalidRow) -> str:
        bad[row.number - 1] = row.actual_columns
        return "skip"

    table = pyarrow.csv.read_csv(
        io.BytesIO(b"\n".join(lines) + b"\n"),
        read_options=pyarrow.csv.ReadOptions(use_threads=False, column_names=names),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=sep, invalid_row_handler=note, ignore_empty_lines=False
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    )
    return table, bad


def _texts(values: Sequence[bytes | None]) -> tuple[list[str | None], list[str | None]]:
    """Values as UTF-8, and for each that is none the reason."""
    texts: list[str | None] = []
    refused: list[str | None] = [None] * len(values)
    for place, value in enumerate(values):
        try:
            texts.append(None if value is None else value.decode("utf-8"))
        except UnicodeDecodeError:
            texts.append(None)
            refused[place] = "the record's bytes are not UTF-8"
    return texts, refused


def _with_refused(
    table: pa.Table, refused: list[str | None], values: Sequence[bytes | None]
) -> pa.Table:
    """Add the reasons, and what can be shown of the values they are about."""
    if all(reason is None for reason in refused):
        return table
    if REFUSED in table.column_names:  # what the reader refused has been text
        said = table[REFUSED].to_pylist()
        refused = [one or other for one, other in zip(refused, said, strict=True)]
        table = table.drop_columns([REFUSED])
    shown = table[CORRUPT].to_pylist() if CORRUPT in table.column_names else [None] * len(values)
    for place, (reason, value) in enumerate(zip(refused, values, strict=True)):
        if reason is not None and value is not None:
            shown[place] = value.decode("utf-8", "replace")
    if CORRUPT in table.column_names:
        table = table.drop_columns([CORRUPT])
    table = table.append_column(CORRUPT, pa.array(shown, pa.string()))
    return table.append_column(REFUSED, pa.array(refused, pa.string()))


def _metadata(option: str, records: Records, schema: Schema, column: str) -> pa.Array:
    """What a record has beside its value, as a column."""
    count = len(records.offsets)
    match option:
        case "key_column":
            return pa.array(records.keys, pa.binary())
        case "topic_column":
            return pa.array([records.topic] * count, pa.string())
        case "partition_column":
            return pa.array([records.partition] * count, pa.int64())
        case "offset_column":
            return pa.array(records.offsets, pa.int64())
        case "time_column":
            return pa.array(records.times, pa.timestamp("ms"))
    return _headers(records.headers, schema, column)


def _headers(headers: Sequence[Any], schema: Schema, column: str) -> pa.Array:
    """Headers as a list of (key, value), for a nested column; as JSON for any other."""
    pairs = [[{"key": k, "value": v} for k, v in given or ()] for given in headers]
    field = schema.find(column)
    if field is not None and parts_of(field.type) is not None:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        return pa.array(pairs, kind)
    return pa.array([_headers_json(given) for given in pairs], pa.string())


def _headers_json(pairs: list[dict[str, Any]]) -> str:
    import orjson

    for pair in pairs:
        if pair["value"] is not None:
            pair["value"] = pair["value"].decode("utf-8", "replace")
    return orjson.dumps(pairs).decode()
