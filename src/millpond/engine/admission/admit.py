"""Admission: turns the rows a source gives into elements and rejects.

A row becomes an element if every column can be cast to its declared type, none that is NOT NULL is
NULL, it has a timestamp, and the timestamp is neither before the heartbeat's floor nor further
ahead of the clock than the stream's AHEAD (SEMANTICS, section 1). Any other row becomes a reject
with the reason. Casts are DuckDB's, like every scalar in Millpond, so a value means the same
whether it came as text or typed.

Cost: columns that already have their type are passed through untouched; one DuckDB projection
casts all the others.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.engine.admission.computed import compute
from millpond.engine.admission.nested import Reasons, cast_nested
from millpond.errors import MillpondError
from millpond.model import time
from millpond.model.casts import try_cast_text
from millpond.model.duckdb_words import quote_name
from millpond.model.schema import Field, Schema, parts_of

#: A column a reader may add: the text of a row it could not split into columns.
CORRUPT = "__corrupt"
#: Another: why a row can be no element, in the reader's words; NULL for all other rows.
REFUSED = "__refused"

#: The instants DuckDB's TIMESTAMP can hold, its infinities included.
_LEAST_INSTANT, _GREATEST_INSTANT = -9_223_372_022_400_000_000, 2**63 - 1
_DAY = 86_400_000_000
_MOST_DAYS = time.END // _DAY + 1

#: The most bytes a row may have as it is given, in Arrow's form.
MOST_ROW_BYTES = 16_777_216

_LOCAL = threading.local()


@dataclass(frozen=True)
class Admission:
    """By what one batch is judged.

    Attributes:
        schema: The stream's columns.
        timestamp_by: The column that is the timestamp, or None for system time.
        floor: Elements with a timestamp below it are late.
        arrival: The clock when the batch was accepted: it is the timestamp on system time, and the
            `rejected_at` of rejects.
        ceiling: Elements with a timestamp above it are too far ahead of the clock.
    """

    schema: Schema
    timestamp_by: str | None
    floor: int
    arrival: int
    ceiling: int = time.END


@dataclass(frozen=True)
class AdmittedRows:
    """Elements (the schema's columns, `__ts` int64 µs) and rejects (reason, raw), in arrival order.

    `reject_rows` are the rejects' positions in the batch. `shed` has the counts of elements that
    were shed (second, elements, spared), if any were.
    """

    elements: pa.Table
    rejects: pa.Table
    reject_rows: np.ndarray
    shed: pa.Table | None = None


def admit(rows: pa.Table, judge: Admission) -> AdmittedRows:
    """Judge a batch; columns are found by name in any case, and a missing one is NULL."""
    count = rows.num_rows
    reasons = _Reasons(count)
    if REFUSED in rows.column_names:
        said = rows[REFUSED]
        reasons.mark(_mask(pc.is_valid(said)), lambda row: said[row].as_py())
    rows = _without_large(_conform(rows, judge.schema, reasons), reasons)
    cast = _cast(rows, judge.schema, reasons)
    _compute(cast, judge.schema, reasons)
    for field in judge.schema.fields:
        if field.required:
            absent = _mask(pc.is_null(cast[field.name]))
            reasons.mark(absent, lambda _, name=field.name: f'column "{name}": NULL in NOT NULL')
    if judge.timestamp_by is None:
        stamps = np.full(count, judge.arrival, dtype=np.int64)
    else:
        by = judge.schema.find(judge.timestamp_by)
        assert by is not None
        stamps, absent = _timestamps(cast[by.name])
        reasons.mark(absent, lambda _: "no timestamp")
        beyond = ~absent & ((stamps <= time.BEGINNING) | (stamps >= time.END))
        reasons.mark(beyond, lambda _: "timestamp out of range")
        ahead = ~absent & (stamps > judge.ceiling)
        reasons.mark(ahead, lambda _: "ahead of the clock by more than the stream's AHEAD")
        late = ~absent & (stamps < judge.floor)
        reasons.mark(late, lambda _: "late: its timestamp is before the heartbeat")
    elements = pa.Table.from_arrays(
        [cast[f.name] for f in judge.schema.fields], schema=judge.schema.to_arrow()
    ).append_column("__ts", pa.array(stamps))
    if not reasons.bad.any():
        return AdmittedRows(elements, _no_rejects(), np.empty(0, np.int64))
    positions = np.flatnonzero(reasons.bad)
    rejects = pa.table(
        {
            "reason": pa.array([reasons.texts[int(i)] for i in positions], pa.string()),
            "raw": raw_text(rows, positions, judge.schema),
        }
    )
    return AdmittedRows(elements.filter(pa.array(~reasons.bad)), rejects, positions)


def _compute(cast: dict[str, pa.ChunkedArray], schema: Schema, reasons: _Reasons) -> None:
    """Compute the computed columns, in the order they are declared, of rows without a reason."""
    for place, field in enumerate(schema.fields):
        if field.computed is None:
            continue
        known = [f for n, f in enumerate(schema.fields) if f.computed is None or n < place]
        good = np.flatnonzero(~reasons.bad)
        rows = pa.table({f.name: cast[f.name] for f in known})
        given = rows if len(good) == rows.num_rows else rows.take(pa.array(good))
        values, found = compute(given, field)
        if given is not rows:
            places = np.full(rows.num_rows, -1, np.int64)
            places[good] = np.arange(len(good))
            values = values.take(pa.array(places, mask=places < 0))
        cast[field.name] = values
        failed = np.zeros(rows.num_rows, np.bool_)
        failed[good[list(found)]] = True
        texts = {int(good[row]): reason for row, reason in found.items()}
        reasons.mark(failed, lambda row, texts=texts: texts[row])


class _Reasons:
    """The first reason found against each row, if there is any."""

    def __init__(self, count: int) -> None:
        self.bad = np.zeros(count, dtype=bool)
        self.texts: dict[int, str] = {}

    def mark(self, rows: np.ndarray, reason) -> None:  # type: ignore[no-untyped-def]
        """Give `reason(row)` to those rows set in a mask that have no reason yet."""
        fresh = rows & ~self.bad
        if fresh.any():
            for i in np.flatnonzero(fresh):
                self.texts[int(i)] = reason(int(i))
            self.bad |= fresh


def _without_large(rows: pa.Table, reasons: _Reasons) -> pa.Table:
    """Reject rows of more than `MOST_ROW_BYTES`, and empty them, so that nothing copies them.

    Only batches are looked into that have so many bytes, by halves.
    """
    sizes: dict[int, int] = {}
    parts = [(0, rows.num_rows)]
    while parts:
        start, count = parts.pop()
        size = rows.slice(start, count).nbytes
        if size <= MOST_ROW_BYTES or not count:
            continue
        if count == 1:
            sizes[start] = size
            continue
        half = count // 2
        parts += [(start, half), (start + half, count - half)]
    if not sizes:
        return rows
    large = np.zeros(rows.num_rows, dtype=bool)
    large[list(sizes)] = True
    reasons.mark(large, lambda _: f"the row has more than {MOST_ROW_BYTES:,} bytes")
    return rows.take(pa.array(np.arange(rows.num_rows), mask=large))


def _no_rejects() -> pa.Table:
    return pa.table({"reason": pa.array([], pa.string()), "raw": pa.array([], pa.string())})


def _conform(rows: pa.Table, schema: Schema, reasons: _Reasons) -> pa.Table:
    """Find the schema's columns by name (exact first, then in any case), and the corrupt text.

    Raises:
        MillpondError: DATA-501, a column is there twice or has a type nothing can read.
    """
    lower = {name.lower(): name for name in reversed(rows.column_names)}
    columns: dict[str, pa.ChunkedArray] = {}
    for field in schema.fields:
        name = field.name if field.name in rows.column_names else lower.get(field.name.lower())
        if name is None:
            columns[field.name] = pa.chunked_array([pa.nulls(rows.num_rows)])
            continue
        if rows.column_names.count(name) > 1:
            raise MillpondError(
                "DATA-501",
                f'the column "{name}" is there twice',
                hint="Give every column once.",
            )
        try:
            column = _decode(rows[name])
        except (pa.ArrowException, NotImplementedError) as error:
            raise _unreadable_column_error(field.name, rows[name].type, error) from error
        columns[field.name] = _text(column, field, reasons)
    if CORRUPT in rows.column_names:
        # Spark passes the bytes of a line on as they are, also of a file that is no text at all.
        columns[CORRUPT], _ = _utf8(rows[CORRUPT])
    return pa.table(columns)


def _decode(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Make a column one DuckDB can read: decode it, and give it a type DuckDB knows."""
    type_ = column.type
    if pa.types.is_dictionary(type_):
        decoded = [chunk.dictionary_decode() for chunk in column.chunks]
        return _decode(pa.chunked_array(decoded, type_.value_type))
    if pa.types.is_run_end_encoded(type_):
        decoded = [pc.run_end_decode(chunk) for chunk in column.chunks]
        return _decode(pa.chunked_array(decoded, type_.value_type))
    if pa.types.is_string_view(type_) or pa.types.is_decimal256(type_):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(type_):
        return column.cast(pa.large_binary())
    if pa.types.is_float16(type_):
        return column.cast(pa.float32())
    return column


def _text(column: pa.ChunkedArray, field: Field, reasons: _Reasons) -> pa.ChunkedArray:
    """Read text as UTF-8; reject rows whose bytes are not, and show them with replacements.

    Bytes are read as the UTF-8 of a text, also of a number's or an instant's, unless the column is
    a BLOB: Kafka and Parquet writers hand on texts like that.
    """
    if field.type == "BLOB":
        return column
    if _is_bytes(column.type):
        large = pa.types.is_large_binary(column.type)
        column = column.cast(pa.binary()) if not large else column
        text = pa.large_string() if large else pa.string()
        chunks = [chunk.view(text) for chunk in column.chunks]
        column = pa.chunked_array(chunks, text)
    if not _is_text(column.type):
        return column
    column, bad = _utf8(column)
    if bad is not None:
        reasons.mark(bad, lambda _: f'column "{field.name}": its bytes are not UTF-8')
    return column


def _utf8(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, np.ndarray | None]:
    """Replace bytes that are not UTF-8; return the column and which rows had any (None: no row)."""
    try:
        column.validate(full=True)
        return column, None
    except pa.ArrowInvalid:
        large = pa.types.is_large_string(column.type)
        given = column.cast(pa.large_binary() if large else pa.binary()).to_pylist()
    shown = [None if x is None else x.decode("utf-8", "replace") for x in given]
    pairs = zip(given, shown, strict=True)
    bad = np.array([x is not None and x != (y or "").encode() for x, y in pairs], dtype=np.bool_)
    return pa.chunked_array([pa.array(shown, column.type)]), bad


def _in_range(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert timestamps to UTC microseconds; NULL where DuckDB cannot hold the instant."""
    unit = column.type.unit
    if unit == "ns":  # 64 bits of nanoseconds are three centuries
        return column.cast(pa.timestamp("us"), safe=False)
    scale = {"s": 1_000_000, "ms": 1_000, "us": 1}[unit]
    ticks = column.cast(pa.int64())
    low, high = -(-_LEAST_INSTANT // scale), _GREATEST_INSTANT // scale
    bounds = pc.min_max(ticks).as_py()
    if bounds["min"] is not None and (bounds["min"] < low or bounds["max"] > high):
        fits = pc.and_(pc.greater_equal(ticks, low), pc.less_equal(ticks, high))
        column = pc.if_else(fits, column, pa.scalar(None, column.type))
    return column if column.type == pa.timestamp("us") else column.cast(pa.timestamp("us"))


def _cast(rows: pa.Table, schema: Schema, reasons: _Reasons) -> dict[str, pa.ChunkedArray]:
    cast: dict[str, pa.ChunkedArray] = {}
    source: dict[str, pa.ChunkedArray] = {}
    target = schema.to_arrow()
    if CORRUPT in rows.column_names:
        corrupt = _mask(pc.is_valid(rows[CORRUPT]))
        reasons.mark(corrupt, lambda _: "malformed row: it does not fit the declared columns")
    for field in schema.fields:
        column, want = rows[field.name], target.field(field.name).type
        if field.computed is not None:
            reasons.mark(
                _mask(pc.is_valid(column)),
                lambda _, name=field.name: f'column "{name}" is computed: no value can be given',
            )
            continue
        if parts_of(field.type) is not None:
            cast[field.name], found = cast_nested(column, field, _cast_leaf)
            if found:
                bad = np.zeros(rows.num_rows, np.bool_)
                bad[list(found)] = True
                reasons.mark(bad, lambda row, found=found: found[row])
            continue
        if pa.types.is_timestamp(column.type):
            # A zoned timestamp is an instant already; dropping the zone keeps the instant, in UTC.
            zone = column.type.tz
            column = _in_range(column)
            if want != column.type and zone is not None:
                column = column.cast(pa.timestamp("us", tz="UTC"))
        if column.type == want and field.type != "JSON":
            cast[field.name] = column
        elif pa.types.is_null(column.type):
            cast[field.name] = pa.chunked_array([pa.nulls(rows.num_rows, want)])
        elif field.type != "VARCHAR" and _is_text(column.type):
            source[field.name] = pc.utf8_trim_whitespace(column)
        else:
            source[field.name] = column
    types = {f.name: f.type for f in schema.fields}
    for name, column in _duckdb_casts(source, types).items():
        cast[name] = column.cast(target.field(name).type)
    for name, column in cast.items():
        given = rows[name]
        if column is not given and parts_of(types[name]) is None:
            failed = _mask(pc.and_(pc.is_valid(given), pc.is_null(column)))
            reasons.mark(
                failed,
                lambda row, name=name, given=given: (
                    f'column "{name}": {_format_value(given[row])} is not {_a(types[name])}'
                ),
            )
    return cast


def _cast_leaf(column: pa.ChunkedArray, field: Field) -> tuple[pa.ChunkedArray, Reasons]:
    """Cast the parts of values, all of one type, as a column of their own."""
    reasons = _Reasons(len(column))
    schema = Schema((field,))
    try:
        read = _text(_decode(column), field, reasons)
    except (pa.ArrowException, NotImplementedError) as error:
        raise _unreadable_column_error(field.name, column.type, error) from error
    cast = _cast(pa.table({field.name: read}), schema, reasons)
    return cast[field.name], reasons.texts


def _attempt(column: str, given: pa.DataType, type_: str) -> str:
    if type_ == "JSON":  # a text is JSON already; any other value is written as JSON
        read = f"TRY_CAST({column} AS JSON)" if _is_text(given) else f"to_json({column})"
        return f"CAST({read} AS VARCHAR)"
    if _is_text(given):
        return try_cast_text(column, type_)
    return f"TRY_CAST({column} AS {type_})"


def _a(type_: str) -> str:
    return f"an {type_}" if type_ == "INTEGER" else f"a {type_}"


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
    )


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _duckdb_casts(
    source: dict[str, pa.ChunkedArray], types: dict[str, str]
) -> dict[str, pa.ChunkedArray]:
    """Cast each column to its type; NULL where a value cannot be cast."""
    if not source:
        return {}
    names = list(source)
    table = pa.table({f"c{i}": source[name] for i, name in enumerate(names)})
    sql = ", ".join(
        f"{_attempt(f'c{i}', source[n].type, types[n])} AS c{i}" for i, n in enumerate(names)
    )
    try:
        result = _project(table, sql)
    except duckdb.Error as error:
        if len(names) == 1:
            raise _unreadable_column_error(names[0], source[names[0]].type, error) from error
        # Cast the columns one by one, so that the error names the column that failed.
        return {
            n: c for name in names for n, c in _duckdb_casts({name: source[name]}, types).items()
        }
    return {name: result[f"c{i}"] for i, name in enumerate(names)}


def _project(source: pa.Table, sql: str) -> pa.Table:
    """Evaluate expressions over a table's rows.

    Each thread keeps its connection: opening one takes longer than casting a small push.
    """
    connection = getattr(_LOCAL, "connection", None)
    if connection is None:
        connection = duckdb.connect(":memory:", config={"threads": "1"})
        # How a zoned instant reads as text or as a day must not depend on the machine.
        connection.execute("SET TimeZone = 'UTC'")
        _LOCAL.connection = connection
    try:
        connection.register("source", source)
        table = connection.sql(f"SELECT {sql} FROM source").to_arrow_table()
        connection.unregister("source")
    except duckdb.Error:
        # After a fatal error a database is useless for ever.
        del _LOCAL.connection
        raise
    return table


def _unreadable_column_error(name: str, type_: pa.DataType, error: Exception) -> MillpondError:
    return MillpondError(
        "DATA-501",
        f'the column "{name}" has a type that cannot be read: {type_}',
        detail=str(error).split("\n", 1)[0][:300],
        hint="Send it as numbers, text or timestamps.",
    )


def _format_value(value: pa.Scalar) -> str:
    try:
        read = value.as_py()
        text = str(read) if isinstance(read, date | Decimal) else repr(read)
    except (ValueError, OverflowError):  # an instant or a day Python has no object for
        text = str(value.cast(pa.string()))
    return text if len(text) <= 60 else text[:57] + "…'"


def _timestamps(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return int64 microseconds (0 where NULL) and the mask of NULLs."""
    absent = _mask(pc.is_null(column))
    if pa.types.is_date(column.type):
        days = np.asarray(pc.fill_null(column.cast(pa.int32()), 0).to_numpy(), dtype=np.int64)
        # Days beyond the representable instants stay beyond them.
        return np.clip(days, -_MOST_DAYS, _MOST_DAYS) * _DAY, absent
    stamps = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return np.asarray(stamps, dtype=np.int64), absent


def _mask(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)


def raw_text(rows: pa.Table, positions: np.ndarray, schema: Schema) -> pa.Array:
    """Return rejected rows as JSON text, or the text the reader could not split."""
    bad = rows.take(pa.array(positions))
    corrupt = bad[CORRUPT] if CORRUPT in bad.column_names else None
    source = pa.table({f"c{i}": bad[f.name] for i, f in enumerate(schema.fields)})
    members = ", ".join(f"{quote_name(f.name)} := c{i}" for i, f in enumerate(schema.fields))
    try:
        json_of = f"to_json(struct_pack({members}))::VARCHAR AS raw"
        text = _project(source, json_of)["raw"].combine_chunks()
    except duckdb.Error:  # a value DuckDB has no text for
        names = [f.name for f in schema.fields]
        shown = [[_member(value) for value in column] for column in source.columns]
        members_of = [dict(zip(names, row, strict=True)) for row in zip(*shown, strict=True)]
        text = pa.array([json.dumps(members) for members in members_of], pa.string())
    if corrupt is None:
        return text
    return pc.coalesce(corrupt.combine_chunks().cast(pa.string()), text)


def _member(value: pa.Scalar) -> str | None:
    return _format_value(value) if value.is_valid else None
