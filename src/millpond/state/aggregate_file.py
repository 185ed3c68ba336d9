"""Files of totals: the blocked totals of one segment's matches, for some predicates and columns.

    aggregates/<the segment's number>.<checksum>.arrow

Totals are a pure function of files that never change, so no epoch refers to these files: a file is
found by the name of its segment, and its own name says its checksum. A file that is missing, torn
or damaged is made again; opening a store removes the files of segments it does not have.

A row is one entry: the slot of the predicate (NULL: every element), the column (NULL: rows are
counted), the function whose sketch it is (NULL: totals), and the packed totals
(`millpond.synopses.blocked_totals`) or the packed sketch (`millpond.synopses.sketches`).

Sketches rest on DuckDB's hashes and totals by group are computed by it; so a file says which
version made it, and how long the blocks of its totals are. One of another version, or with other
blocks, counts as empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.state.arrow_file import (
    corrupt_file_error,
    forget,
    open_arrow,
    translate_write_errors,
    write_bytes,
)
from millpond.state.file_share import withdraw_scratch
from millpond.state.version import Version
from millpond.synopses.blocked_totals import BLOCK, BlockedTotals
from millpond.synopses.group_totals import Grouped, GroupTotals
from millpond.synopses.sketches import SKETCHES, Sketch

DIRECTORY = "aggregates"

_SCHEMA = pa.schema(
    [
        pa.field("slot", pa.int64()),
        pa.field("column", pa.string()),
        pa.field("sketch", pa.string()),
        pa.field("totals", pa.large_binary(), nullable=False),
    ],
    metadata={"duckdb": duckdb.__version__, "block": str(BLOCK)},
)
_NAME = re.compile(r"([0-9a-f]{32})\.([0-9a-f]{16})\.arrow")
#: Names of files that were not finished.
_UNFINISHED = re.compile(r"\.?[0-9a-f]{32}\.arrow(\.tmp)?")


class Measured(NamedTuple):
    """What totals or a sketch are of: the matches of a slot, and a column of them.

    Attributes:
        slot: The slot; None stands for every element of the stream.
        column: The column; None if rows are counted only.
        sketch: The function whose sketch is wanted, or what totals by group are of
            (`Grouped.write`); None: totals.
    """

    slot: int | None
    column: str | None
    sketch: str | None = None


#: What is kept of a segment's matches.
Kept = BlockedTotals | Sketch | GroupTotals


def write_totals(
    temporary: Path, segment: str, entries: Mapping[Measured, Kept]
) -> tuple[Path, int]:
    """Write a file of totals; return its path and its length.

    Args:
        temporary: A path in the directory of these files, for the file while its checksum is not
            known (`new_path`).
        segment: The segment's path.
        entries: The totals.

    Raises:
        MillpondError: STORE-603, the disk is full or the directory cannot be written.
    """
    table = pa.table(
        [
            pa.array([m.slot for m in entries], pa.int64()),
            pa.array([m.column for m in entries], pa.string()),
            pa.array([m.sketch for m in entries], pa.string()),
            pa.array([t.pack().tobytes() for t in entries.values()], pa.large_binary()),
        ],
        schema=_SCHEMA,
    )
    with translate_write_errors(temporary):
        # Not `write_arrow`: nothing refers to these files, so no other machine looks for them.
        meta = write_bytes(temporary, table, sync=False)
    path = temporary.with_name(f"{Path(segment).stem}.{meta.checksum}.arrow")
    temporary.rename(path)
    return path, meta.bytes


def read_totals(path: Path) -> dict[Measured, Kept]:
    """Read a file of totals, memory-mapped; nothing of one that another version of DuckDB made.

    Raises:
        MillpondError: STORE-602, the file is missing, torn or corrupt.
    """
    table = open_arrow(path, checksum_of_name(path.name))
    entries: dict[Measured, Kept] = {}
    if not table.schema.equals(_SCHEMA, check_metadata=True):
        return entries
    keys = (table[name].to_pylist() for name in ("slot", "column", "sketch"))
    for slot, column, sketch, packed in zip(*keys, table["totals"], strict=True):
        numbers = np.frombuffer(packed.as_buffer(), np.int64)
        unpack = _find_unpack(sketch)
        if unpack is None:
            raise corrupt_file_error(path, f'It has what this version does not know: "{sketch}".')
        entries[Measured(slot, column, sketch)] = unpack(numbers)
    return entries


def _find_unpack(sketch: str | None) -> Callable[[npt.NDArray[np.int64]], Kept] | None:
    if sketch is None:
        return BlockedTotals.unpack
    if Grouped.read(sketch) is not None:
        return GroupTotals.unpack
    return SKETCHES[sketch].unpack if sketch in SKETCHES else None


def checksum_of_name(name: str) -> str | None:
    """Return the checksum a file's name says; None if it is no such name."""
    match = _NAME.fullmatch(name)
    return match[2] if match else None


def segment_of_name(name: str) -> str | None:
    """Return the stem of the segment's file that totals are of; None for another file's name."""
    match = _NAME.fullmatch(name)
    return match[1] if match else None


def list_files(store: Path) -> Iterator[Path]:
    """Yield every file in the directory of totals."""
    directory = store / DIRECTORY
    if directory.is_dir():
        yield from sorted(file for file in directory.iterdir() if file.is_file())


def remove_orphans(store: Path, version: Version) -> list[str]:
    """Remove files of totals that no segment of a version has.

    Returns:
        The paths, relative to the store, of files that are none of Millpond's.
    """
    stems = {Path(segment.path).stem for segment in version.segments_by_id.values()}
    unknown = []
    for file in list_files(store):
        segment = segment_of_name(file.name)
        if segment is None and not _UNFINISHED.fullmatch(file.name):
            unknown.append(f"{DIRECTORY}/{file.name}")
        elif segment not in stems:
            file.unlink(missing_ok=True)
    return unknown


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files of totals; totals in use stay readable."""
    for path in paths:
        forget(path)
        path.unlink(missing_ok=True)
        withdraw_scratch(path)
