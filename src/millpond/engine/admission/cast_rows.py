"""The columns of rows as they are given, cast to the types that a stream declares.

Columns are found by name in any case. What DuckDB cannot read is decoded first, bytes are read as
UTF-8, and one DuckDB projection casts every column that has another type than it should. Casts are
DuckDB's, like every scalar in Millpond, so a value means the same whether it came as text or typed.
A value that cannot be cast is NULL, and its row has a reason.

Cost: columns that already have their type are passed through untouched.
"""

from __future__ import annotations

import threading
from datetime import date
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.engine.admission.given_rows import BYTES, CORRUPT
from millpond.engine.admission.nested import Reasons, cast_nested
from millpond.errors import MillpondError
from millpond.model.casts import try_cast_text
from millpond.model.schema import Field, Schema, parts_of

#: The instants DuckDB's TIMESTAMP can hold, its infinities included.
_LEAST_INSTANT, _GREATEST_INSTANT = -9_223_372_022_400_000_000, 2**63 - 1

_LOCAL = threading.local()


class FirstReasons:
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


def conform(rows: pa.Table, schema: Schema, reasons: FirstReasons) -> pa.Table:
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
            if rows.column_names.count(BYTES + name) == 1 and _is_text(column.type):
                column = _put_bytes(rows[BYTES + name], column, field, reasons)
        except (pa.ArrowException, NotImplementedError) as error:
            raise _unreadable_column_error(field.name, rows[name].type, error) from error
        columns[field.name] = _text(column, field, reasons)
    if CORRUPT in rows.column_names:
        # Spark passes the bytes of a line on as they are, also of a file that is no text at all.
        columns[CORRUPT], bad = _utf8(rows[CORRUPT])
        if bad is not None:
            reasons.mark(bad, lambda _: "malformed row: its bytes are not UTF-8")
    return pa.table(columns)


def _put_bytes(
    given: pa.ChunkedArray, texts: pa.ChunkedArray, field: Field, reasons: FirstReasons
) -> pa.ChunkedArray:
    """Put the bytes that were given where they were; a BLOB's texts are read as its bytes first."""
    read = texts.cast(pa.binary())
    if field.type == "BLOB":
        blobs, found = _cast_leaf(texts, field)
        bad = np.isin(np.arange(len(texts)), list(found))
        reasons.mark(bad, lambda row: found[row])
        read = pc.coalesce(blobs.cast(pa.binary()), read)
    return pc.coalesce(given.cast(pa.binary()), read)


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


def _text(column: pa.ChunkedArray, field: Field, reasons: FirstReasons) -> pa.ChunkedArray:
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


def cast_columns(
    rows: pa.Table, schema: Schema, reasons: FirstReasons
) -> dict[str, pa.ChunkedArray]:
    """Cast the columns that `conform` found; computed columns are left out.

    Returns:
        By column, as many values as there are rows: NULL where there is none or it has a reason.
    """
    cast: dict[str, pa.ChunkedArray] = {}
    source: dict[str, pa.ChunkedArray] = {}
    target = schema.to_arrow()
    if CORRUPT in rows.column_names:
        corrupt = to_mask(pc.is_valid(rows[CORRUPT]))
        reasons.mark(corrupt, lambda _: "malformed row: it does not fit the declared columns")
    for field in schema.fields:
        column, want = rows[field.name], target.field(field.name).type
        if field.computed is not None:
            reasons.mark(
                to_mask(pc.is_valid(column)),
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
            failed = to_mask(pc.and_(pc.is_valid(given), pc.is_null(column)))
            reasons.mark(
                failed,
                lambda row, name=name, given=given: (
                    f'column "{name}": {format_value(given[row])} is not {_a(types[name])}'
                ),
            )
    return cast


def _cast_leaf(column: pa.ChunkedArray, field: Field) -> tuple[pa.ChunkedArray, Reasons]:
    """Cast the parts of values, all of one type, as a column of their own."""
    reasons = FirstReasons(len(column))
    schema = Schema((field,))
    try:
        read = _text(_decode(column), field, reasons)
    except (pa.ArrowException, NotImplementedError) as error:
        raise _unreadable_column_error(field.name, column.type, error) from error
    cast = cast_columns(pa.table({field.name: read}), schema, reasons)
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
        result = project(table, sql)
    except duckdb.Error as error:
        if len(names) == 1:
            raise _unreadable_column_error(names[0], source[names[0]].type, error) from error
        # Cast the columns one by one, so that the error names the column that failed.
        return {
            n: c for name in names for n, c in _duckdb_casts({name: source[name]}, types).items()
        }
    return {name: result[f"c{i}"] for i, name in enumerate(names)}


def project(source: pa.Table, sql: str) -> pa.Table:
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


def format_value(value: pa.Scalar) -> str:
    """A value as messages show it, in at most 60 characters."""
    try:
        read = value.as_py()
        text = str(read) if isinstance(read, date | Decimal) else repr(read)
    except (ValueError, OverflowError):  # an instant or a day Python has no object for
        text = str(value.cast(pa.string()))
    return text if len(text) <= 60 else text[:57] + "…'"


def to_mask(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Booleans of Arrow, none of them NULL, as NumPy's."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)
