"""Writes segments of change logs: small ones that are written together lie in one file.

A step of a thousand followed queries finds a few rows for each. A file takes a block of the disk
and a sync, however small it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from millpond.runtime.batch_tasks import SEGMENT_BYTES, SEGMENT_ROWS, BuiltSegment, SplitRun
from millpond.runtime.chunks import divide
from millpond.state.arrow_file import FileMeta, write_together
from millpond.state.segment_file import SEQUENCE, TIMESTAMP, encode_elements
from millpond.state.store import new_path
from millpond.state.version import DATA

#: Bytes of a file of several segments, about. It stays until all of them are merged or trimmed, so
#: this is what one segment that stays can hold.
MOST_SHARED_BYTES = 1 << 16


def write_logs(
    store: str, parts: Sequence[tuple[int, pa.Table]], apart: Iterable[int] = ()
) -> list[BuiltSegment]:
    """Write changes as segments of change logs, which no query is matched against.

    Args:
        store: The store's directory.
        parts: For each segment the id of its log, and its changes with `__ts` and `__seq`.
        apart: The places in `parts` of changes that number themselves: each gets a file.

    Returns:
        The segments, in the order of `parts`.

    Raises:
        MillpondError: STORE-603, a file cannot be written.
    """
    files = _share(parts, frozenset(apart))
    tables = [_lay_together([parts[place][1] for place in places]) for places in files]
    paths = [new_path(store, "segments") for _ in files]
    written = write_together(list(zip(paths, map(encode_elements, tables), strict=True)))
    built: dict[int, BuiltSegment] = {}
    for places, file in zip(files, written, strict=True):
        start = 0
        for place in places:
            log, changes = parts[place]
            own = FileMeta(file.path, changes.num_rows, file.bytes, file.checksum)
            stamps = changes[TIMESTAMP].to_numpy()  # in a shared log they are not in order
            first, last = int(stamps.min()), int(stamps.max())
            run = (SplitRun(0, (), 0),)
            built[place] = BuiltSegment(log, DATA, own, first, last, run, start=start)
            start += changes.num_rows
    return [built[place] for place in range(len(parts))]


def write_log(store: str, log_id: int, changes: pa.Table) -> list[BuiltSegment]:
    """Write changes of one change log, with `__at` and `__sign`, as its segments; none of none.

    Raises:
        MillpondError: STORE-603, a file cannot be written.
    """
    if not changes.num_rows:
        return []
    stamps = changes["__at"].cast(pa.int64())
    elements = changes.drop_columns(["__at"]).append_column(TIMESTAMP, stamps)
    parts = []
    for _, part in divide(elements, SEGMENT_ROWS, SEGMENT_BYTES):
        numbers = pa.array(np.arange(len(part), dtype=np.int64))
        parts.append((log_id, part.append_column(SEQUENCE, numbers).combine_chunks()))
    return write_logs(store, parts)


def discard_all(gone: Iterable[BuiltSegment], kept: Iterable[BuiltSegment]) -> None:
    """Remove the files of segments that will not be committed, but for those others are in."""
    used = {built.file.path for built in kept}
    for built in gone:
        if built.file.path not in used:
            built.discard()


def _share(parts: Sequence[tuple[int, pa.Table]], apart: frozenset[int]) -> list[list[int]]:
    """Divide places of `parts` among files."""
    files: list[list[int]] = []
    open_files: dict[pa.Schema, tuple[list[int], int]] = {}
    for place, (_, changes) in enumerate(parts):
        size = changes.nbytes
        if place in apart or size > MOST_SHARED_BYTES // 2:
            files.append([place])
            continue
        file, held = open_files.get(changes.schema, ([], MOST_SHARED_BYTES + 1))
        if held + size > MOST_SHARED_BYTES:
            file, held = [], 0
            files.append(file)
        file.append(place)
        open_files[changes.schema] = file, held + size
    return files


def _lay_together(tables: Sequence[pa.Table]) -> pa.Table:
    if len(tables) == 1:
        return tables[0]
    whole = pa.concat_tables(tables).combine_chunks()
    at = whole.schema.get_field_index(SEQUENCE)
    return whole.set_column(at, SEQUENCE, pa.array(np.arange(whole.num_rows, dtype=np.int64)))
