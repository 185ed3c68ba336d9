"""Writes the streams of the pond's own: what gave way, and the control tables.

An element is durable with the epoch it is committed in, through the journal as every epoch, and is
read as any stream: `SELECT * FROM system$actions [RANGE 1 HOUR]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.runtime.batch_tasks import BuiltSegment, in_time_order, write_segment
from millpond.service.events import Events
from millpond.service.ingest.floors import FloorsInFlight
from millpond.service.ingest.segment_refs import segment_ref
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.epoch_log import EpochLog
from millpond.state.segment_file import open_segment
from millpond.state.version import SegmentRef, StreamClock, Version

#: Of each row, the values of all columns but the instant.
Rows = Sequence[Sequence[object]]


@dataclass(frozen=True)
class Appended:
    """Rows that are written, and become elements with an epoch.

    Attributes:
        stream: Of which stream.
        built: Their segment.
        at: Their instant.
    """

    stream: StreamDef
    built: BuiltSegment
    at: int

    def describe(self, version: Version) -> tuple[SegmentRef, StreamClock]:
        """Their segment and the stream's clock, for the epoch after a version."""
        clock = version.clock(self.stream.id)
        segment = segment_ref(self.built, ((0, clock.next_seq),))
        seq = clock.next_seq + self.built.file.rows
        return segment, replace(clock, next_seq=seq, high=self.at, arrived_at=self.at)

    def add_to(self, change: EpochChange, now: Version) -> EpochChange:
        """An epoch after a version, with the rows as elements."""
        segment, clock = self.describe(now)
        clocks = {**change.clocks, self.stream.id: clock}
        return replace(change, segments=[*change.segments, segment], clocks=clocks)


class SystemStreams:
    """Appends to the pond's own streams; safe to use from any thread."""

    def __init__(self, store: Path, log: EpochLog, floors: FloorsInFlight, events: Events) -> None:
        self._store = store
        self._log = log
        self._floors = floors
        self._events = events

    def append(self, stream: StreamDef, rows: Rows) -> None:
        """Make rows elements of this instant, in an epoch of their own; as `prepare`."""
        with self.prepare(stream, rows) as prepared:
            self._log.commit(lambda now: prepared.add_to(EpochChange(kind="system"), now))

    def read_backwards(self, version: Version, stream: StreamDef) -> Iterator[pa.Table]:
        """Yield the rows that are kept, the latest segment first, each in the order of arrival.

        Raises:
            MillpondError: STORE-602, a segment is corrupt.
        """
        for ref in sorted(version.segments(stream.id), key=lambda ref: ref.max_ts, reverse=True):
            yield open_segment(self._store / ref.path, ref.checksum)

    @contextmanager
    def prepare(self, stream: StreamDef, rows: Rows) -> Iterator[Appended]:
        """Write rows that are to be elements of this instant; who asks commits them.

        Args:
            stream: One of `SYSTEM_STREAMS`.
            rows: At least one: the values of all columns but the first, which is the instant.

        Raises:
            MillpondError: STORE-603, they cannot be written.
        """
        # Until it is committed no reader takes its instant for final.
        token, now, _ = self._floors.hold(lambda now: {stream.id: now})
        try:
            schema = stream.schema.to_arrow()
            columns = zip(*((now, *row) for row in rows), strict=True)
            table = pa.table(
                [pa.array(c).cast(f.type) for c, f in zip(columns, schema, strict=True)],
                schema=schema,
            ).append_column("__ts", pa.array([now] * len(rows), pa.int64()))
            built = write_segment(str(self._store), stream.id, in_time_order(table), None, 0)
            try:
                yield Appended(stream, built, now)
            except BaseException:
                if self._log.is_decided:
                    built.discard()
                raise
        finally:
            self._floors.release(token)
        self._events.system_stream_grew()
