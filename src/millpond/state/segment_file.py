"""Segments' files: elements, without the columns that follow from others.

Beside its declared columns an element has its timestamp (`__ts`, int64 µs) and its arrival number
in the segment (`__seq`, int64). Where elements came in time order, the number is the row; where the
timestamp is taken from a column, it is that column. Such a column is not written, and opening the
file gives it back without copying a byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from millpond.model.schema import Field, arrow_type
from millpond.state.arrow_file import open_arrow

TIMESTAMP, SEQUENCE = "__ts", "__seq"
#: The key of a file's metadata that names the column the timestamps are.
_TIMESTAMPS_OF = b"millpond.timestamps"

#: The numbers from 0 on, shared by all segments whose rows are in the order of their arrival.
_numbers = pa.array(np.arange(1 << 16))


def encode_elements(elements: pa.Table) -> pa.Table:
    """Encode elements for their file; `open_segment` is the inverse."""
    kept = elements
    if elements[SEQUENCE].equals(pa.chunked_array([_first_numbers(elements.num_rows)])):
        kept = kept.drop_columns([SEQUENCE])
    stamps = elements[TIMESTAMP]
    for column in _instants(elements):
        if _as_numbers(elements[column]).equals(stamps):
            kept = kept.drop_columns([TIMESTAMP])
            return kept.replace_schema_metadata({_TIMESTAMPS_OF: column})
    return kept


def open_segment(
    path: str | Path, checksum: str | None = None, added: Sequence[Field] = ()
) -> pa.Table:
    """Open a segment's elements, memory-mapped: the declared columns, `__ts`, `__seq`.

    Args:
        path: The file.
        checksum: Its checksum.
        added: `Schema.added` of its stream: those that the file lacks are NULL in every element.

    Raises:
        MillpondError: STORE-602, the file is missing, torn or corrupt.
    """
    table = open_arrow(path, checksum)
    names = table.column_names
    if TIMESTAMP not in names:
        column = (table.schema.metadata or {})[_TIMESTAMPS_OF].decode()
        at = len(names) - (SEQUENCE in names)
        table = table.add_column(at, TIMESTAMP, _as_numbers(table[column]))
        table = table.replace_schema_metadata()
    if SEQUENCE not in names:
        table = table.append_column(SEQUENCE, _first_numbers(table.num_rows))
    return add_columns(table, added) if added else table


def add_columns(elements: pa.Table, added: Sequence[Field]) -> pa.Table:
    """Add the columns that elements lack because they are older, with NULL in every row."""
    names = set(elements.column_names)
    for column in added:
        if column.name not in names:
            type_ = arrow_type(column.type)
            at = elements.schema.get_field_index(TIMESTAMP)
            nulls = _nulls(type_, (elements.num_rows - 1).bit_length()).slice(0, elements.num_rows)
            elements = elements.add_column(at, pa.field(column.name, type_), nulls)
    return elements


@lru_cache(64)
def _nulls(type_: pa.DataType, bits: int) -> pa.Array:
    """2 ** bits NULLs of a type, shared by all segments that are that large."""
    return pa.nulls(1 << bits, type_)


def open_rows(
    path: str | Path,
    checksum: str,
    seq_runs: tuple[tuple[int, int], ...],
    rows: int,
    added: Sequence[Field] = (),
) -> pa.Table:
    """Open a segment's own rows of a file that may have those of other segments, too.

    Args:
        path: The file.
        checksum: Its checksum.
        seq_runs: `SegmentRef.seq_runs`: the segment's rows begin with the `__seq` of the first run.
        rows: How many rows the segment has.
        added: As of `open_segment`.

    Raises:
        MillpondError: STORE-602, the file is missing, torn or corrupt.
    """
    table = open_segment(path, checksum, added)
    return table if table.num_rows == rows else table.slice(seq_runs[0][0], rows)


def global_seq(local: np.ndarray, seq_runs: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Compute the arrival numbers of a segment's `__seq` values.

    Args:
        local: int64, in any order.
        seq_runs: `SegmentRef.seq_runs`: ascending (local_start, base).

    >>> global_seq(np.array([0, 1, 2, 3]), ((0, 100), (2, 500))).tolist()
    [100, 101, 500, 501]
    """
    if len(seq_runs) == 1:
        start, base = seq_runs[0]
        return local if start == base else local + (base - start)
    runs = np.asarray(seq_runs, dtype=np.int64)
    holding = np.searchsorted(runs[:, 0], local, side="right") - 1
    return local + (runs[:, 1] - runs[:, 0])[holding]


def _first_numbers(count: int) -> pa.Array:
    """int64[count]: 0, 1, 2, …"""
    global _numbers
    if count > len(_numbers):
        _numbers = pa.array(np.arange(1 << (count - 1).bit_length()))
    return _numbers.slice(0, count)


def _instants(elements: pa.Table) -> Iterable[str]:
    """Find the columns that may be the timestamps: instants in µs without NULL."""
    for field in elements.schema:
        fits = pa.types.is_timestamp(field.type) and field.type.unit == "us"
        if fits and not elements[field.name].null_count:
            yield field.name


def _as_numbers(instants: pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = [chunk.view(pa.int64()) for chunk in instants.chunks]
    return pa.chunked_array(chunks, pa.int64())


def get_column(table: pa.Table, name: str) -> pa.Array:
    """Return a segment's column as one array, without copying."""
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
