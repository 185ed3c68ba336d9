"""Computes the totals of kept segments in a worker, and writes them into files.

Such a file is a cache that no epoch refers to (`millpond.state.aggregate_file`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from millpond.engine.aggregates.segment_groups import compute_groups
from millpond.engine.aggregates.segment_sketches import compute_sketch
from millpond.engine.aggregates.segment_totals import compute_blocks
from millpond.engine.matching.results_structure import MatchReader
from millpond.errors import MillpondError
from millpond.model.kept_property import kept_property
from millpond.model.schema import Field
from millpond.runtime.files.match_files import failed_slots
from millpond.state.aggregate_file import Kept, Measured, write_totals
from millpond.state.arrow_file import open_arrow
from millpond.state.file_share import publish_scratch
from millpond.state.segment_file import get_column, open_segment
from millpond.state.store import new_path
from millpond.synopses.group_totals import Grouped
from millpond.synopses.totals import OpenColumn, open_column


@dataclass(frozen=True)
class AggregateJob:
    """Compute the totals of one segment's matches.

    Attributes:
        store: The store's directory.
        segment_id: The segment.
        path: Its file.
        checksum: The checksum of its file.
        matches: The file of matches and its checksum, for each slot of `measured`.
        measured: What is wanted.
        added: The columns that the file may lack.
    """

    store: str
    segment_id: int
    path: str
    checksum: str
    matches: dict[int, tuple[str, str]]
    measured: tuple[Measured, ...]
    added: tuple[Field, ...] = ()


@dataclass(frozen=True)
class AggregateResult:
    """The file of a segment's totals; None if nothing could be computed.

    A slot has no totals where its matches cannot be read, or where its predicate failed.
    """

    segment_id: int
    path: Path | None
    bytes: int
    made: frozenset[Measured]


class _MatchedSegment:
    """`AggregatedSegment` of a segment for one slot, with its stored matches."""

    def __init__(self, table: pa.Table, rows: np.ndarray | None) -> None:
        self._table = table
        self._rows = rows

    @kept_property
    def ts(self) -> np.ndarray:
        stamps: np.ndarray = self._table["__ts"].to_numpy()
        return stamps

    def matching(self, lo: int, hi: int) -> np.ndarray | None:
        if self._rows is None:
            return None
        first, last = np.searchsorted(self._rows, (lo, hi))
        return self._rows[first:last]

    def column(self, name: str) -> OpenColumn:
        return open_column(self.values(name))

    def values(self, name: str) -> pa.ChunkedArray:
        return get_column(self._table, name)


def compute_totals(job: AggregateJob) -> AggregateResult:
    """Compute and write the totals of a job."""
    table = open_segment(Path(job.store) / job.path, job.checksum, job.added)
    made: dict[Measured, Kept] = {}
    views: dict[int | None, _MatchedSegment | None] = {}
    for measured in job.measured:
        slot = measured.slot
        if slot not in views:
            views[slot] = _view(job, table, slot)
        view = views[slot]
        if view is not None:
            made[measured] = _compute(view, measured, table.num_rows)
    if not made:
        return AggregateResult(job.segment_id, None, 0, frozenset())
    path, size = write_totals(new_path(job.store, "aggregates"), job.path, made)
    publish_scratch(path)
    return AggregateResult(job.segment_id, path, size, frozenset(made))


def _compute(view: _MatchedSegment, measured: Measured, size: int) -> Kept:
    if measured.sketch is None:
        return compute_blocks(view, measured.column)
    if (grouped := Grouped.read(measured.sketch)) is not None:
        return compute_groups(view, grouped, 0, size)
    assert measured.column is not None
    return compute_sketch(view, measured.column, measured.sketch, 0, size)


def _view(job: AggregateJob, table: pa.Table, slot: int | None) -> _MatchedSegment | None:
    if slot is None:
        return _MatchedSegment(table, None)
    path, checksum = job.matches[slot]
    try:
        matches = open_arrow(Path(job.store) / path, checksum)
    except MillpondError:
        return None  # it is made again, and then the totals are
    if slot in failed_slots(matches):
        return None
    return _MatchedSegment(table, MatchReader(matches).rows(slot, 0, table.num_rows))
