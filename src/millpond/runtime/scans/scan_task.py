"""Reads segments for one invocation in a worker: the rows that match, or aggregates of them.

An invocation of a large window is spread so (`service/answers/spread_scan.py`). Workers give what
the driver would have read, and the driver goes on as with segments of its own. A task that cannot
give it, because a predicate fails or the rows are too many, gives None: then the driver reads, and
says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from millpond.engine.aggregates.segment_groups import compute_groups, merge_groups
from millpond.engine.aggregates.segment_sketches import compute_sketch
from millpond.engine.aggregates.segment_totals import Asked, compute_totals, find_rows
from millpond.engine.matching.find_matches import find_matches
from millpond.engine.matching.results_structure import MatchReader
from millpond.engine.predicates.factors import Factors
from millpond.errors import MillpondError
from millpond.model.kept_property import kept_property
from millpond.model.schema import Field, Schema
from millpond.runtime.files.match_files import failed_slots
from millpond.state.arrow_file import open_arrow
from millpond.state.segment_file import TIMESTAMP, get_column, global_seq, open_segment
from millpond.synopses.group_totals import Grouped, GroupTotals
from millpond.synopses.sampling import choose_sample
from millpond.synopses.totals import OpenColumn, open_column

#: The column of arrival numbers in the rows that are read.
ARRIVAL = "__arrival"

Read = TypeVar("Read")


@dataclass(frozen=True)
class ScannedFile:
    """A segment's file, and that of its stored matches if there are any; with checksums."""

    path: str
    checksum: str
    seq_runs: tuple[tuple[int, int], ...]
    matches: tuple[str, str] | None


@dataclass(frozen=True)
class ScanJob:
    """Read what a leaf of a query has of some segments.

    Attributes:
        store: The store's directory.
        files: The segments.
        low: The least timestamp of the window; None if it has no beginning.
        high: The greatest.
        schema: The stream's.
        factors: The leaf's predicate; None if every element matches.
        slot: Its slot in the Query SteM, by which stored matches are read.
        sample: The seed and the percentage of its sample.
        added: The columns that files may lack.
    """

    store: str
    files: tuple[ScannedFile, ...]
    low: int | None
    high: int
    schema: Schema
    factors: Factors | None
    slot: int | None
    sample: tuple[int, float] | None
    added: tuple[Field, ...] = ()


class _ScannedSegment:
    """`AggregatedSegment` of a segment as the leaf sees it."""

    def __init__(self, job: ScanJob, file: ScannedFile) -> None:
        self._job, self._file = job, file
        self.table = open_segment(Path(job.store) / file.path, file.checksum, job.added)

    @kept_property
    def ts(self) -> np.ndarray:
        stamps: np.ndarray = self.table[TIMESTAMP].to_numpy()
        return stamps

    @kept_property
    def _stored(self) -> MatchReader | None:
        if self._file.matches is None or self._job.slot is None:
            return None
        path, checksum = self._file.matches
        try:
            table = open_arrow(Path(self._job.store) / path, checksum)
        except MillpondError:
            return None  # matches can be computed anew
        return None if self._job.slot in failed_slots(table) else MatchReader(table)

    def matching(self, lo: int, hi: int) -> np.ndarray | None:
        rows = self._matching(lo, hi)
        if self._job.sample is None:
            return rows
        candidates = np.arange(lo, hi, dtype=np.int64) if rows is None else rows
        seed, percent = self._job.sample
        return candidates[choose_sample(seed, self.sequence(candidates), percent)]

    def _matching(self, lo: int, hi: int) -> np.ndarray | None:
        if self._job.factors is None:
            return None
        if self._stored is not None and self._job.slot is not None:
            return self._stored.rows(self._job.slot, lo, hi)
        part = self.table.slice(lo, hi - lo)
        return find_matches(part, self._job.factors, self._job.schema) + lo

    def sequence(self, rows: np.ndarray) -> np.ndarray:
        return global_seq(self.table["__seq"].to_numpy()[rows], self._file.seq_runs)

    def column(self, name: str) -> OpenColumn:
        return open_column(self.values(name))

    def values(self, name: str) -> pa.ChunkedArray:
        return get_column(self.table, name)


def read_rows(job: ScanJob, columns: Sequence[str], most: int) -> list[pa.Table] | None:
    """Read the matching rows of each segment: the columns, timestamps and arrival numbers.

    Args:
        job: What to read.
        columns: The columns.
        most: How many bytes the rows may have.

    Returns:
        A table for each segment, perhaps without rows; None if they are too large, or a predicate
        fails.
    """
    held = 0

    def read(segment: _ScannedSegment, lo: int, hi: int) -> pa.Table:
        nonlocal held
        rows = segment.matching(lo, hi) if lo < hi else np.zeros(0, np.int64)
        if rows is None:
            rows = np.arange(lo, hi, dtype=np.int64)
        names = [*columns, *(TIMESTAMP,) * (TIMESTAMP not in columns)]
        table = segment.table.select(names).take(pa.array(rows)).combine_chunks()
        table = table.append_column(ARRIVAL, pa.array(segment.sequence(rows), pa.int64()))
        held += table.nbytes
        if held > most:
            raise _TooLarge
        return table

    return _scan(job, read)


def read_totals(job: ScanJob, asked: Sequence[Asked]) -> list[list[Any]] | None:
    """Compute the totals and sketches of each segment's matches; None if a predicate fails."""

    def read(segment: _ScannedSegment, lo: int, hi: int) -> list[Any]:
        totals = iter(compute_totals(segment, [a for a in asked if a.sketch is None], lo, hi))
        return [
            next(totals)
            if each.sketch is None
            else compute_sketch(segment, each.column or "", each.sketch, lo, hi)
            for each in asked
        ]

    return _scan(job, read)


def read_groups(job: ScanJob, grouped: Grouped, most: int) -> GroupTotals | None:
    """Compute the totals by group of the matches of all segments.

    Args:
        job: What to read.
        grouped: What is asked of groups.
        most: How many groups there may be.

    Returns:
        The totals; None if the groups are too many, or a predicate fails.
    """

    def read(segment: _ScannedSegment, lo: int, hi: int) -> GroupTotals:
        totals = compute_groups(segment, grouped, lo, hi)
        if totals.table.num_rows > most:
            raise _TooLarge
        return totals

    found = _scan(job, read)
    merged = None if found is None else merge_groups(grouped, found)
    return merged if merged is not None and merged.table.num_rows <= most else None


class _TooLarge(Exception):
    """The rows are too large to be sent."""


def _scan(job: ScanJob, read: Callable[[_ScannedSegment, int, int], Read]) -> list[Read] | None:
    found = []
    try:
        for file in job.files:
            segment = _ScannedSegment(job, file)
            found.append(read(segment, *find_rows(segment, job.low, job.high)))
    except (MillpondError, _TooLarge):
        return None
    return found
