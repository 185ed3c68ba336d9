"""Admission: turns the rows a source gives into elements and rejects.

A row becomes an element if every column can be cast to its declared type, none that is NOT NULL is
NULL, it has a timestamp, and the timestamp is neither before the heartbeat's floor nor further
ahead of the clock than the stream's AHEAD (SEMANTICS, section 1). Any other row becomes a reject
with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.engine.admission.cast_rows import (
    FirstReasons,
    cast_columns,
    conform,
    format_value,
    project,
    to_mask,
)
from millpond.engine.admission.computed import compute
from millpond.engine.admission.given_rows import CORRUPT, MOST_ROW_BYTES, REFUSED
from millpond.model import time
from millpond.model.duckdb_words import quote_name
from millpond.model.schema import Schema

_DAY = 86_400_000_000
_MOST_DAYS = time.END // _DAY + 1


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
        taken: Rows with a timestamp before the first instant, or not before the second, are passed
            over: they are neither elements nor rejects.
    """

    schema: Schema
    timestamp_by: str | None
    floor: int
    arrival: int
    ceiling: int = time.END
    taken: tuple[int, int] = (time.BEGINNING, time.END)


@dataclass(frozen=True)
class AdmittedRows:
    """Elements (the schema's columns, `__ts` int64 µs) and rejects (reason, raw), in arrival order.

    `reject_rows` are the rejects' positions in the batch, `element_rows` the elements', None if all
    rows are elements. `shed` has the counts of elements that were shed (second, elements, spared),
    if any were.
    """

    elements: pa.Table
    rejects: pa.Table
    reject_rows: np.ndarray
    shed: pa.Table | None = None
    element_rows: np.ndarray | None = None

    def split(self, counts: Sequence[int]) -> Iterator[AdmittedRows]:
        """Split what became of a batch into what became of its first rows, the next, and so on.

        Args:
            counts: How many rows each part of the batch has.
        """
        ends = np.cumsum([0, *counts])
        taken = ends if self.element_rows is None else np.searchsorted(self.element_rows, ends)
        refused = np.searchsorted(self.reject_rows, ends)
        for part, start in enumerate(ends[:-1]):
            first, last = int(refused[part]), int(refused[part + 1])
            yield AdmittedRows(
                self.elements.slice(int(taken[part]), int(taken[part + 1] - taken[part])),
                self.rejects.slice(first, last - first),
                self.reject_rows[first:last] - start,
                element_rows=None
                if self.element_rows is None
                else self.element_rows[taken[part] : taken[part + 1]] - start,
            )


def admit(rows: pa.Table, judge: Admission) -> AdmittedRows:
    """Judge a batch; columns are found by name in any case, and a missing one is NULL."""
    count = rows.num_rows
    reasons = FirstReasons(count)
    if REFUSED in rows.column_names:
        said = rows[REFUSED]
        reasons.mark(to_mask(pc.is_valid(said)), lambda row: said[row].as_py())
    rows = _without_large(conform(rows, judge.schema, reasons), reasons)
    cast = cast_columns(rows, judge.schema, reasons)
    _compute(cast, judge.schema, reasons)
    for field in judge.schema.fields:
        if field.required:
            absent = to_mask(pc.is_null(cast[field.name]))
            reasons.mark(absent, lambda _, name=field.name: f'column "{name}": NULL in NOT NULL')
    passed = np.zeros(count, np.bool_)
    if judge.timestamp_by is None:
        stamps = np.full(count, judge.arrival, dtype=np.int64)
    else:
        by = judge.schema.find(judge.timestamp_by)
        assert by is not None
        stamps, absent = _timestamps(cast[by.name])
        reasons.mark(absent, lambda _: "no timestamp")
        beyond = ~absent & ((stamps <= time.BEGINNING) | (stamps >= time.END))
        since, until = judge.taken
        passed = ~absent & ~beyond & ((stamps < since) | (stamps >= until))
        reasons.mark(beyond, lambda _: "timestamp out of range")
        ahead = ~absent & (stamps > judge.ceiling)
        reasons.mark(ahead, lambda _: "ahead of the clock by more than the stream's AHEAD")
        late = ~absent & (stamps < judge.floor)
        reasons.mark(late, lambda _: "late: its timestamp is before the heartbeat")
    elements = pa.Table.from_arrays(
        [cast[f.name] for f in judge.schema.fields], schema=judge.schema.to_arrow()
    ).append_column("__ts", pa.array(stamps))
    out = reasons.bad | passed
    if not out.any():
        return AdmittedRows(elements, _no_rejects(), np.empty(0, np.int64))
    positions = np.flatnonzero(reasons.bad & ~passed)
    rejects = pa.table(
        {
            "reason": pa.array([reasons.texts[int(i)] for i in positions], pa.string()),
            "raw": raw_text(rows, positions, judge.schema),
        }
    )
    kept = np.flatnonzero(~out)
    return AdmittedRows(elements.filter(pa.array(~out)), rejects, positions, element_rows=kept)


def _compute(cast: dict[str, pa.ChunkedArray], schema: Schema, reasons: FirstReasons) -> None:
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


def _without_large(rows: pa.Table, reasons: FirstReasons) -> pa.Table:
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


def _timestamps(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return int64 microseconds (0 where NULL) and the mask of NULLs."""
    absent = to_mask(pc.is_null(column))
    if pa.types.is_date(column.type):
        days = np.asarray(pc.fill_null(column.cast(pa.int32()), 0).to_numpy(), dtype=np.int64)
        # Days beyond the representable instants stay beyond them.
        return np.clip(days, -_MOST_DAYS, _MOST_DAYS) * _DAY, absent
    stamps = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return np.asarray(stamps, dtype=np.int64), absent


def raw_text(rows: pa.Table, positions: np.ndarray, schema: Schema) -> pa.Array:
    """Return rejected rows as JSON text, or the text the reader could not split."""
    bad = rows.take(pa.array(positions))
    corrupt = bad[CORRUPT] if CORRUPT in bad.column_names else None
    source = pa.table({f"c{i}": bad[f.name] for i, f in enumerate(schema.fields)})
    members = ", ".join(f"{quote_name(f.name)} := c{i}" for i, f in enumerate(schema.fields))
    try:
        json_of = f"to_json(struct_pack({members}))::VARCHAR AS raw"
        text = project(source, json_of)["raw"].combine_chunks()
    except duckdb.Error:  # a value DuckDB has no text for
        names = [f.name for f in schema.fields]
        shown = [[_member(value) for value in column] for column in source.columns]
        members_of = [dict(zip(names, row, strict=True)) for row in zip(*shown, strict=True)]
        text = pa.array([json.dumps(members) for members in members_of], pa.string())
    if corrupt is None:
        return text
    return pc.coalesce(corrupt.combine_chunks().cast(pa.string()), text)


def _member(value: pa.Scalar) -> str | None:
    return format_value(value) if value.is_valid else None
