"""What a job feeds its dataflow: elements of kept segments, read when it is their turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.engine.dataflow.inputs import FEW, GivenInputs, find_end
from millpond.model.time import BEGINNING
from millpond.runtime.advance_job import AdvanceJob, SegmentFile
from millpond.runtime.shared_log_task import select_for_members
from millpond.state.segment_file import global_seq, open_segment


class SegmentInputs:
    """The elements of a job's streams, and the changes of its relations, which are in memory.

    Elements wait in their segments, which are mapped. A slice is copied when it is read.
    """

    def __init__(
        self,
        job: AdvanceJob,
        needs: Mapping[str, Sequence[str]],
        relations: Mapping[str, pa.Table],
        after: int,
        upto: int,
    ) -> None:
        """Take in what comes after an instant, up to another.

        Args:
            job: The job, which has the segments.
            needs: By stream, the columns that are read.
            relations: By relation, its changes.
            after, upto: The instants.
        """
        self._job = job
        self._needs = needs
        self._relations = GivenInputs(relations, few=0)
        self._streams = {name: _Segments(job, name, needs[name], after, upto) for name in needs}
        rows = sum(table.num_rows for table in relations.values())
        self._few = rows + sum(one.count() for one in self._streams.values()) < FEW

    def find_end(self, after: int, upto: int, size: int) -> int:
        if self._few:
            return upto
        some = self._relations.list_instants(after, upto)
        for one in self._streams.values():
            some += one.list_instants(after, upto)
        return find_end(some, upto, size)

    def measure(self, after: int, upto: int) -> int:
        if self._few:
            return 0
        some = [part for one in self._streams.values() for part in one.list_instants(after, upto)]
        size = int(sum(len(instants) * width for instants, width in some))
        return size + self._relations.measure(after, upto)

    def read(self, name: str, after: int, upto: int) -> pa.Table | None:
        if name in self._streams:
            return self._streams[name].read(after, upto)
        return self._relations.read(name, after, upto)


def read_back(
    job: AdvanceJob, needs: Mapping[str, Sequence[str]], stream: str, upto: int
) -> Iterator[pa.Table]:
    """Read the elements up to an instant that still matter, segment by segment."""
    for file in job.streams[stream]:
        if file.min_ts <= upto:
            one = replace(job, streams={stream: (file,)})
            table = _Segments(one, stream, needs[stream], BEGINNING - 1, upto).read(
                BEGINNING - 1, upto
            )
            if table.num_rows:
                yield table


class _Segments:
    """The segments of one stream that a job reads."""

    def __init__(
        self, job: AdvanceJob, stream: str, columns: Sequence[str], after: int, upto: int
    ) -> None:
        self._members, self._shard, self._stream = job.sinks[0].members, job.shard, stream
        self._columns = [*columns, "__ts", "__seq"]
        low = job.since.get(stream)
        #: No element up to here matters.
        self._low = after if low is None else max(after, min(low - 1, job.position))
        self._empty: pa.Table | None = None
        #: Mapped segments with elements that matter: file, rows, timestamps, bytes of a row.
        self._parts: list[tuple[SegmentFile, pa.Table, npt.NDArray[np.int64], float]] = []
        for file in job.streams[stream]:
            table = open_segment(Path(job.store) / file.path, file.checksum, file.added)
            # The predicates of a shared log's members are of any column.
            table = table.select(self._columns if self._members is None else table.column_names)
            self._empty = table.slice(0, 0)
            if file.max_ts > self._low and file.min_ts <= upto:
                self._parts.append((file, table, table["__ts"].to_numpy(), 0.0))
        if self.count() >= FEW:
            self._parts = [
                (file, table, ts, table.nbytes / max(table.num_rows, 1))
                for file, table, ts, _ in self._parts
            ]

    def count(self) -> int:
        """At most so many elements matter."""
        return sum(table.num_rows for _, table, _, _ in self._parts)

    def list_instants(self, after: int, upto: int) -> list[tuple[npt.NDArray[np.int64], float]]:
        """The instants of the elements of (after, upto] by segment, and the bytes of each."""
        after, found = max(after, self._low), []
        for file, _, ts, width in self._parts:
            if file.max_ts > after and file.min_ts <= upto:
                lo, hi = np.searchsorted(ts, (after, upto), side="right")
                if lo < hi:
                    found.append((ts[lo:hi], width))
        return found

    def read(self, after: int, upto: int) -> pa.Table:
        """Read the elements of (after, upto] that matter, in the order of timestamp and arrival."""
        after, members = max(after, self._low), self._members
        parts = []
        for file, table, ts, _ in self._parts:
            if file.max_ts <= after or file.min_ts > upto:
                continue
            lo, hi = np.searchsorted(ts, (after, upto), side="right")
            if lo < hi:
                part = table.slice(lo, hi - lo)
                sequence = global_seq(part["__seq"].to_numpy(), file.seq_runs)
                at = part.schema.get_field_index("__seq")
                part = part.set_column(at, "__seq", pa.array(sequence))
                parts.append(
                    part if self._shard is None else self._shard.select(self._stream, part)
                )
        if not parts and members is not None:
            return pa.table({name: pa.nulls(0) for name in (*self._columns, members.column)})
        if not parts:
            if self._empty is None:
                return pa.table({name: pa.nulls(0) for name in self._columns})
            return self._empty
        found = pa.concat_tables(parts)
        ts, seq = found["__ts"].to_numpy(), found["__seq"].to_numpy()
        if len(parts) > 1 or not bool((np.diff(ts) > 0).all()):
            found = found.take(pa.array(np.lexsort((seq, ts))))
        found = found.combine_chunks()
        return found if members is None else select_for_members(found, members).combine_chunks()
