"""Admission: from the rows a source gives to elements and rejects.

A row becomes an element if every column can be cast to its declared type, it has a timestamp, and
the timestamp is not before the heartbeat's floor (SEMANTICS, section 1). Any other row becomes a
reject with the reason. Casts are DuckDB's, like every scalar in Millpond, so a value means the same
whether it came as text or typed.

Cost: columns that already have their type are passed through untouched; one DuckDB projection
casts all the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model import time
from millpond.model.schema import Schema

#: A column a reader may add: the text of a row it could not split into columns.
CORRUPT = "__corrupt"


@dataclass(frozen=True)
class Admission:
    """How one batch is judged.

    Attributes:
        schema: The stream's columns.
        timestamp_by: The column that is the timestamp, or None for system time.
        floor: Elements with a timestamp below it are late.
        arrival: The clock when the batch was accepted: the timestamp on system time, and the
            `rejected_at` of rejects.
    """

    schema: Schema
    timestamp_by: str | None
    floor: int
    arrival: int


@dataclass(frozen=True)
class Admitted:
    """Elements (the schema's columns, `__ts` int64 µs) and rejects (reason, raw), in arrival order.

    `reject_rows` are the rejects' positions in the batch.
    """

    elements: pa.Table
    rejects: pa.Table
    reject_rows: np.ndarray


def admit(rows: pa.Table, judge: Admission) -> Admitted:
    """Judge a batch; columns are found by name in any case, and a missing one is NULL."""
    rows = _conform(rows, judge.schema)
    cast, reasons = _cast(rows, judge.schema)
    count = rows.num_rows
    if judge.timestamp_by is None:
        stamps = np.full(count, judge.arrival, dtype=np.int64)
    else:
        field = judge.schema.find(judge.timestamp_by)
        assert field is not None
        stamps, absent = _timestamps(cast[field.name])
        reasons.mark(absent, lambda _: "no timestamp")
        beyond = ~absent & ((stamps <= time.BEGINNING) | (stamps >= time.END))
        reasons.mark(beyond, lambda _: "timestamp out of range")
        late = ~absent & (stamps < judge.floor)
        floor = time.format_instant(judge.floor)
        reasons.mark(
            late,
            lambda i: (
                f"late: timestamp {time.format_instant(int(stamps[i]))} is before"
                f" the heartbeat {floor}"
            ),
        )
    elements = pa.Table.from_arrays(
        [cast[f.name] for f in judge.schema.fields], schema=judge.schema.to_arrow()
    ).append_column("__ts", pa.array(stamps))
    if not reasons.bad.any():
        return Admitted(elements, _no_rejects(), np.empty(0, np.int64))
    positions = np.flatnonzero(reasons.bad)
    rejects = pa.table(
        {
            "reason": pa.array([reasons.texts[int(i)] for i in positions], pa.string()),
            "raw": _raw_text(rows, positions, judge.schema),
        }
    )
    return Admitted(elements.filter(pa.array(~reasons.bad)), rejects, positions)


class _Reasons:
    """The first reason found against each row."""

    def __init__(self, count: int) -> None:
        self.bad = np.zeros(count, dtype=bool)
        self.texts: dict[int, str] = {}

    def mark(self, rows: np.ndarray, reason) -> None:  # type: ignore[no-untyped-def]
        """Give `reason(row)` to the rows set in a mask that have none yet."""
        fresh = rows & ~self.bad
        if fresh.any():
            for i in np.flatnonzero(fresh):
                self.texts[int(i)] = reason(int(i))
            self.bad |= fresh


def _no_rejects() -> pa.Table:
    return pa.table({"reason": pa.array([], pa.string()), "raw": pa.array([], pa.string())})


def _conform(rows: pa.Table, schema: Schema) -> pa.Table:
    """The schema's columns by name (exact first, then in any case) and the corrupt-text column."""
    lower = {name.lower(): name for name in reversed(rows.column_names)}
    columns: dict[str, pa.ChunkedArray] = {}
    for field in schema.fields:
        name = field.name if field.name in rows.column_names else lower.get(field.name.lower())
        columns[field.name] = (
            rows[name] if name is not None else pa.chunked_array([pa.nulls(rows.num_rows)])
        )
    if CORRUPT in rows.column_names:
        columns[CORRUPT] = rows[CORRUPT]
    return pa.table(columns)


def _cast(rows: pa.Table, schema: Schema) -> tuple[dict[str, pa.ChunkedArray], _Reasons]:
    reasons = _Reasons(rows.num_rows)
    cast: dict[str, pa.ChunkedArray] = {}
    wanted: list[str] = []
    target = schema.to_arrow()
    for field in schema.fields:
        column, want = rows[field.name], target.field(field.name).type
        if column.type == want:
            cast[field.name] = column
        elif pa.types.is_null(column.type):
            cast[field.name] = pa.chunked_array([pa.nulls(rows.num_rows, want)])
        elif pa.types.is_timestamp(column.type) and pa.types.is_timestamp(want):
            # A zoned timestamp is an instant already; dropping the zone keeps it, in UTC.
            cast[field.name] = column.cast(pa.timestamp("us"), safe=False)
        else:
            wanted.append(field.name)
    if CORRUPT in rows.column_names:
        corrupt = _mask(pc.is_valid(rows[CORRUPT]))
        reasons.mark(corrupt, lambda _: "malformed row: it does not have the stream's columns")
    if wanted:
        types = {f.name: f.type for f in schema.fields}
        source = pa.table(
            {
                f"c{i}": _plain(rows[name].combine_chunks(), types[name])
                for i, name in enumerate(wanted)
            }
        )
        sql = ", ".join(f"TRY_CAST(c{i} AS {types[n]}) AS c{i}" for i, n in enumerate(wanted))
        with duckdb.connect(":memory:", config={"threads": "1"}) as connection:
            connection.register("source", source)
            result = connection.sql(f"SELECT {sql} FROM source").to_arrow_table()
        for i, name in enumerate(wanted):
            column = result[f"c{i}"].cast(target.field(name).type)
            given = rows[name]
            failed = _mask(pc.and_(pc.is_valid(given), pc.is_null(column)))
            reasons.mark(
                failed,
                lambda row, name=name, given=given: (
                    f'column "{name}": {_shown(given[row].as_py())} is not a {types[name]}'
                ),
            )
            cast[name] = column
    return cast, reasons


def _plain(column: pa.Array, wanted: str) -> pa.Array:
    """A column DuckDB can cast: text is trimmed for types other than text."""
    if pa.types.is_string(column.type) and wanted != "VARCHAR":
        return pc.utf8_trim_whitespace(column)
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    return column


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…'"


def _timestamps(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """int64 microseconds (0 where NULL) and the mask of NULLs."""
    absent = _mask(pc.is_null(column))
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    stamps = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return np.asarray(stamps, dtype=np.int64), absent


def _mask(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)


def _raw_text(rows: pa.Table, positions: np.ndarray, schema: Schema) -> pa.Array:
    """Rejected rows as JSON text, or the text the reader could not split."""
    bad = rows.take(pa.array(positions))
    corrupt = bad[CORRUPT] if CORRUPT in bad.column_names else None
    source = pa.table({f"c{i}": bad[f.name] for i, f in enumerate(schema.fields)})
    members = ", ".join(
        '"{}" := c{}'.format(f.name.replace('"', '""'), i) for i, f in enumerate(schema.fields)
    )
    with duckdb.connect(":memory:", config={"threads": "1"}) as connection:
        connection.register("source", source)
        sql = f"SELECT to_json(struct_pack({members}))::VARCHAR AS raw FROM source"
        text = connection.sql(sql).to_arrow_table()["raw"].combine_chunks()
    if corrupt is None:
        return text
    return pc.coalesce(corrupt.combine_chunks().cast(pa.string()), text)
