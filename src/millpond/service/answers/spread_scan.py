"""Scans of large windows that are spread over workers: what an invocation reads, they read.

Where work spreads over machines, the driver has neither the processors nor, on its own disk, the
segments for a scan of a whole history. So above a size workers read the segments, apply the
predicate and give what is left: rows, or totals, or totals by group (`runtime/scans`). The
driver merges them as it merges what it reads itself. Where matches or totals are kept for a query,
its answers need no scan, and are computed in the driver as ever.

INV-SPREAD-1: an answer is the same, spread or not. Workers give the very rows and exact totals; if
they cannot (no workers, rows that are too large, a predicate that fails), the driver reads.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.engine.aggregates.segment_groups import merge_groups
from millpond.engine.aggregates.segment_totals import Asked
from millpond.engine.invocation.window_slices import SegmentView
from millpond.errors import MillpondError
from millpond.model.windows import Rows, interval
from millpond.runtime.protocol import Done, Runtime
from millpond.runtime.scans.scan_task import (
    ARRIVAL,
    ScanJob,
    ScannedFile,
    read_groups,
    read_rows,
    read_totals,
)
from millpond.service.queries.prepared import PreparedQuery
from millpond.state.segment_file import TIMESTAMP
from millpond.state.version import SegmentRef, Version
from millpond.synopses.group_totals import Grouped, GroupTotals
from millpond.work import check_work, current_work

log = logging.getLogger("millpond.answers")

#: From so many rows on, a scan is spread. On a busy machine a driver took 0.3 seconds for a
#: million, and a spread scan 2.9 seconds in all.
SPREAD_ROWS = 10_000_000
#: So many tasks a worker: the last ones to end are then small.
_TASKS_OF_A_WORKER = 3
#: The errors that end a request, and not only its tasks.
_ENDS = ("POND-405", "SERVE-715")


class SpreadScans:
    """Lets workers scan for invocations; safe to use from any thread.

    Attributes:
        least_rows: From how many rows on scans are spread.
        count: How many scans were.
    """

    def __init__(self, store: Path, runtime: Runtime) -> None:
        self._store, self._runtime = store, runtime
        self.least_rows = SPREAD_ROWS
        self.count = 0

    @property
    def can_spread(self) -> bool:
        """Whether there are workers to spread scans over, and they are well."""
        return self._runtime.spreads and self._runtime.trouble is None

    def read_leaf(
        self,
        version: Version,
        query: PreparedQuery,
        number: int,
        stream: StreamDef,
        segments: Sequence[SegmentRef],
        instant: int,
        most: int,
    ) -> list[SegmentView] | None:
        """Read the rows of a leaf's window that match.

        Args:
            version: A version that is pinned.
            query: The query.
            number: The leaf's number.
            stream: Its stream.
            segments: The stream's segments.
            instant: The instant of the answer.
            most: How many bytes the rows may have.

        Returns:
            They, as segments; None if the driver is to read them.
        """
        leaf = query.bound.streams[number]
        if isinstance(leaf.window, Rows) or query.factors[number] is None:
            return None
        columns = leaf.columns or stream.schema.names[:1]
        plan = self._plan(version, query, number, stream, segments, instant)
        if plan is None:
            return None
        share = max(1, most // len(plan))
        found = self._run(partial(read_rows, columns=tuple(columns), most=share), plan)
        if found is None:
            return None
        tables = [table for part in found for table in part if table.num_rows]
        return [_ReadRows(table) for table in tables]

    def read_totals(
        self,
        version: Version,
        query: PreparedQuery,
        stream: StreamDef,
        segments: Sequence[SegmentRef],
        instant: int,
        asked: Sequence[Asked],
    ) -> list[list[Any]] | None:
        """Compute totals of each segment's matches in the window; None if the driver is to."""
        plan = self._plan(version, query, 0, stream, segments, instant)
        if plan is None:
            return None
        found = self._run(partial(read_totals, asked=tuple(asked)), plan)
        return None if found is None else [totals for part in found for totals in part]

    def read_groups(
        self,
        version: Version,
        query: PreparedQuery,
        stream: StreamDef,
        segments: Sequence[SegmentRef],
        instant: int,
        grouped: Grouped,
        most: int,
    ) -> GroupTotals | None:
        """Compute totals by group of the matches in the window; None if the driver is to.

        Args:
            most: How many groups all tasks together may give.
        """
        plan = self._plan(version, query, 0, stream, segments, instant)
        if plan is None:
            return None
        share = max(1, most // len(plan))
        found = self._run(partial(read_groups, grouped=grouped, most=share), plan)
        return None if found is None else merge_groups(grouped, found)

    def _plan(
        self,
        version: Version,
        query: PreparedQuery,
        number: int,
        stream: StreamDef,
        segments: Sequence[SegmentRef],
        instant: int,
    ) -> list[ScanJob] | None:
        """Divide the scan among workers; None if it is not to be spread."""
        if not self.can_spread:
            return None
        leaf, slot = query.bound.streams[number], query.slots[number]
        if stream.is_pseudo or isinstance(leaf.window, Rows):
            return None
        low, high = interval(leaf.window, instant)
        if slot is not None and version.slot(stream.id, slot) is None:
            slot = None  # dropped since the query was prepared
        files = [
            (segment, _describe(version, segment, slot))
            for segment in segments
            if segment.min_ts <= high and (low is None or segment.max_ts >= low)
        ]
        if not files or sum(s.rows for s, f in files if f.matches is None) < self.least_rows:
            return None
        seed = query.seed + number if leaf.seed is None else leaf.seed
        job = partial(
            ScanJob,
            str(self._store),
            low=low,
            high=high,
            schema=stream.schema,
            factors=query.factors[number],
            slot=slot,
            sample=None if leaf.sample is None else (seed, leaf.sample),
            added=version.added_columns(stream.id),
        )
        return [job(tuple(part)) for part in self._divide(files)]

    def _divide(
        self, files: Sequence[tuple[SegmentRef, ScannedFile]]
    ) -> Iterator[list[ScannedFile]]:
        """Divide files into parts of about as many rows, each of files that one machine has."""
        of_machine: defaultdict[str, list[tuple[SegmentRef, ScannedFile]]] = defaultdict(list)
        for segment, file in files:
            of_machine[self._runtime.prefer(segment.path)].append((segment, file))
        total = sum(segment.rows for segment, _ in files)
        share = -(-total // (_TASKS_OF_A_WORKER * self._runtime.workers))
        for own in of_machine.values():
            part: list[ScannedFile] = []
            rows = 0
            for segment, file in own:
                part.append(file)
                rows += segment.rows
                if rows >= share:
                    yield part
                    part, rows = [], 0
            if part:
                yield part

    def _run(
        self, task: Callable[[ScanJob], Done | None], jobs: Sequence[ScanJob]
    ) -> list[Done] | None:
        """Run the tasks of one scan; None if one of them could not give what it was to."""
        check_work()
        near = [self._runtime.prefer(job.files[0].path) for job in jobs]
        try:
            found = self._runtime.ask(task, jobs, near)
        except Exception as error:
            work = current_work()
            if work is not None:
                work.check()
            if isinstance(error, MillpondError) and error.code in _ENDS:
                raise
            log.warning("the driver reads what workers could not: %s", _first_line(error))
            return None
        done = [each for each in found if each is not None]
        if len(done) < len(found):
            return None
        self.count += 1
        return done


def _describe(version: Version, segment: SegmentRef, slot: int | None) -> ScannedFile:
    refs = version.matches(segment.id) if slot is not None else ()
    found = next(
        (
            (ref.path, ref.checksum)
            for ref in refs
            if slot is not None and ref.low <= slot < ref.upto
        ),
        None,
    )
    return ScannedFile(segment.path, segment.checksum, segment.seq_runs, found)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).split("\n")[0]


class _ReadRows(SegmentView):
    """The rows of a segment that a worker has read, all of which match."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._arrivals = table[ARRIVAL].to_numpy()
        self._stamps: np.ndarray = table[TIMESTAMP].to_numpy()

    @property
    def ts(self) -> np.ndarray:
        return self._stamps

    @property
    def min_ts(self) -> int:
        return int(self._stamps[0])

    @property
    def max_ts(self) -> int:
        return int(self._stamps[-1])

    def matching(self, lo: int, hi: int) -> np.ndarray | None:
        return None

    def sequence(self, rows: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._arrivals[rows]
        return found

    def take(self, rows: np.ndarray, columns: Sequence[str]) -> pa.Table:
        return self._table.select(list(columns)).take(pa.array(rows))

    def span(self, lo: int, hi: int, columns: Sequence[str]) -> pa.Table:
        return self._table.select(list(columns)).slice(lo, hi - lo)

    def row_bytes(self, columns: Sequence[str] | None) -> float:
        read = self._table if columns is None else self._table.select(list(columns))
        return read.nbytes / max(1, read.num_rows)

    def last_per_key(
        self, by: tuple[str, ...], count: int, every: bool, compute: Callable[[], np.ndarray]
    ) -> np.ndarray:
        return compute()
