"""Values, rows and changes as JSON values.

Rows go from Arrow's columns to JSON column by column: how to encode a value (a timestamp as text, a
NaN as its name) is decided once a column and not once a value. A thousand rows of five columns take
about 0.4 ms, most of it the timestamps' text.

JSON has fewer values than SQL, so: timestamps are ISO 8601 texts in UTC with six decimals and no
zone, those of the type TIMESTAMPTZ with the zone +00:00, dates ISO texts, NaN and the infinities
the texts "NaN", "Infinity" and "-Infinity", decimals and intervals texts, integers numbers of any
length (a DECIMAL(38,0), which is what the sum of integers is, counts as an integer), binary values
base64.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.far_times import format_ticks
from millpond.model.loss import Loss
from millpond.model.schema import ARROW_TYPES, struct_type
from millpond.model.time import (
    BEGINNING,
    END,
    LAST,
    format_instant,
    format_interval,
    spell_instant,
)
from millpond.service.results import Changes, python_values

#: What a zoned instant has behind it.
_UTC = "+00:00"

#: Both ends of time as machines write them, by how people read them.
_ENDS = {format_instant(BEGINNING): "-infinity", format_instant(END): "infinity"}

_TYPE_NAMES = {str(arrow): name for name, arrow in ARROW_TYPES.items() if name != "JSON"}


def instant_text(at: int | None) -> str | None:
    """An instant as JSON has it.

    >>> instant_text(1_500_000), instant_text(2**63 - 1), instant_text(None)
    ('1970-01-01T00:00:01.500000', 'infinity', None)
    """
    if at is None:
        return None
    if BEGINNING < at < LAST:
        return _to_iso(spell_instant(at))
    return "infinity" if at > BEGINNING else "-infinity"


def _to_iso(text: str) -> str:
    """A text of `format_instant` as machines write it: with a T and microseconds."""
    iso = text.replace(" ", "T")
    return iso if "." in iso else f"{iso}.000000"


def with_instant(facts: dict[str, Any], key: str) -> dict[str, Any]:
    """Facts whose instant under `key`, microseconds or a text for people, is as JSON has it.

    >>> with_instant({"heartbeat": "1970-01-01 00:00:01"}, "heartbeat")
    {'heartbeat': '1970-01-01T00:00:01.000000'}
    """
    at = facts.get(key)
    if isinstance(at, int):
        return {**facts, key: instant_text(at)}
    return {**facts, key: _ENDS.get(at) or _to_iso(at)} if isinstance(at, str) else facts


def shorten_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """FLOATs as the DOUBLEs with their shortest texts; any other column as it is.

    >>> shorten_floats(pa.chunked_array([pa.array([0.1], pa.float32())])).to_pylist()
    [0.1]
    """
    if not pa.types.is_float32(column.type):
        return column
    return column.cast(pa.string()).cast(pa.float64())


def json_columns(table: pa.Table) -> list[list[Any]]:
    """Each column's values, ready for JSON."""
    return [_column(table.column(i)) for i in range(table.num_columns)]


def json_rows(table: pa.Table) -> list[list[Any]]:
    """The rows, ready for JSON."""
    return [list(row) for row in zip(*json_columns(table), strict=True)]


def to_json_value(value: Any) -> Any:
    """Any value of Python in JSON's values, by the rules of this module."""
    match value:
        case None | bool() | int() | str() | orjson.Fragment():
            return value
        case float():
            return value if math.isfinite(value) else _name_odd_float(value)
        case Decimal():
            # Its own text would be 0E-10 for a zero of ten places.
            return f"{value:f}"
        case datetime():
            naive = value.replace(tzinfo=None) - (value.utcoffset() or timedelta())
            zone = _UTC if value.tzinfo is not None else ""
            return naive.isoformat(timespec="microseconds") + zone
        case date() | time():
            return value.isoformat()
        case timedelta():
            return str(value)
        case pa.MonthDayNano():
            return format_interval(*value)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(key): to_json_value(item) for key, item in value.items()}
        case np.generic():
            return to_json_value(value.item())
    if isinstance(value, Iterable):
        return [to_json_value(item) for item in value]
    return str(value)


def dumps(value: Any) -> bytes:
    """JSON text of JSON values.

    orjson writes a thousand rows of five columns in 0.13 ms where the standard library takes
    0.95 ms, all of it under the interpreter's lock; integers beyond 64 bits are left to the latter.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_leave_out)
        # Half of a surrogate pair, within an error say, is written as JSON's escape of it.
        return text.encode(errors="backslashreplace")


def _leave_out(value: Any) -> None:
    """Write null for a value that only orjson writes: the server refuses such a request anyway."""
    if not isinstance(value, orjson.Fragment):
        raise TypeError(f"{type(value).__name__} is no JSON value")


def loss_json(loss: Loss) -> dict[str, Any]:
    """A loss as JSON values; `text` says it for people."""
    return {
        "stream": loss.stream,
        "cause": str(loss.cause),
        "since": instant_text(loss.since),
        "upto": instant_text(loss.upto),
        "elements": loss.elements,
        "missing": loss.missing,
        "kept": loss.kept,
        "wrong": loss.wrong,
        "text": str(loss),
    }


def format_instants(changes: Changes, text: Callable[[int], str | None] = instant_text) -> pa.Table:
    """Changes with their instants as texts, those JSON has unless said otherwise."""
    texts = [text(at) for at in changes.table["timestamp"].to_pylist()]
    place = changes.table.column_names.index("timestamp")
    return changes.table.set_column(place, "timestamp", pa.array(texts, pa.string()))


def change_objects(changes: Changes) -> list[dict[str, Any]]:
    """The changes as JSON values, one object each."""
    numbers, stamps, signs, *columns = json_columns(format_instants(changes))
    names = changes.columns
    promise: dict[str, Any] = {"exact": changes.exact}
    if not changes.exact:
        promise["loss"] = [loss_json(loss) for loss in changes.loss]
    rows = list(zip(*columns, strict=True)) if columns else [()] * len(numbers)
    return [
        {
            "cursor": changes.cursor_at(number),
            "timestamp": stamp,
            "change": sign,
            "row": dict(zip(names, row, strict=True)),
            **promise,
        }
        for number, stamp, sign, row in zip(numbers, stamps, signs, rows, strict=True)
    ]


def is_whole(arrow: pa.DataType) -> bool:
    """Whether a type is that of whole numbers of any length, a DECIMAL(38,0)."""
    return bool(pa.types.is_decimal(arrow) and arrow.scale == 0 and arrow.precision == 38)


def _name_odd_float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _restore_nulls(texts: list[Any], column: pa.ChunkedArray) -> list[Any]:
    return texts if not column.null_count else [None if t == "NaT" else t for t in texts]


def _column(column: pa.ChunkedArray) -> list[Any]:
    arrow = column.type
    if pa.types.is_timestamp(arrow):
        # One conversion of the whole column: a datetime a value would cost three times the rest.
        stamps = column.cast(pa.timestamp("us", arrow.tz)).to_numpy()
        texts = format_ticks(stamps.astype("datetime64[us]"))
        if arrow.tz is not None:
            texts = [t if t.endswith(("infinity", "NaT")) else t + _UTC for t in texts]
        return _restore_nulls(texts, column)
    if pa.types.is_date32(arrow):
        return _restore_nulls(format_ticks(column.to_numpy().astype("datetime64[D]")), column)
    if pa.types.is_integer(arrow) and not column.null_count:
        return column.to_numpy().tolist()
    if pa.types.is_floating(arrow):
        column = shorten_floats(column)
        if not column.null_count:
            values = column.to_numpy()
            if np.isfinite(values).all():
                return values.tolist()
        elif pc.all(pc.is_finite(column)).as_py() is not False:
            return column.to_pylist()
        return [to_json_value(value) for value in column.to_pylist()]
    if pa.types.is_string(arrow) or pa.types.is_boolean(arrow) or pa.types.is_integer(arrow):
        return column.to_pylist()
    if is_whole(arrow):
        return [None if value is None else int(value) for value in column.to_pylist()]
    return [to_json_value(value) for value in python_values(column)]


def type_name(arrow: pa.DataType) -> str:
    """SQL's name of an Arrow type, or Arrow's own where SQL has none.

    >>> type_name(pa.int64()), type_name(pa.decimal128(10, 2)), type_name(pa.decimal128(38, 0))
    ('BIGINT', 'DECIMAL(10,2)', 'HUGEINT')
    >>> type_name(pa.list_(pa.struct([("a", pa.int32())]))), type_name(pa.timestamp("us", "UTC"))
    ('STRUCT(a INTEGER)[]', 'TIMESTAMPTZ')
    """
    if pa.types.is_decimal(arrow):
        if is_whole(arrow):
            return "HUGEINT"
        return f"DECIMAL({arrow.precision},{arrow.scale})"
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return "VARCHAR"
    if pa.types.is_timestamp(arrow):
        return "TIMESTAMP" if arrow.tz is None else "TIMESTAMPTZ"
    if pa.types.is_list(arrow):
        return f"{type_name(arrow.value_type)}[]"
    if pa.types.is_struct(arrow) and arrow.num_fields:
        return struct_type((part.name, type_name(part.type)) for part in arrow)
    if pa.types.is_dictionary(arrow):
        return type_name(arrow.value_type)
    return _TYPE_NAMES.get(str(arrow), str(arrow))
