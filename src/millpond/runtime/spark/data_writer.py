"""Rows of any Spark session as elements of a pushed stream, each batch exactly once.

    task ─ parts ─► server (kept, counting nothing)    driver ─ "batch 17 is these parts" ─► push

Tasks send their rows as parts under new names. When all tasks have succeeded, the driver says which
parts are the batch. So rows of tasks that failed, or ran twice, count nothing. The writer of the
batches is Spark's streaming query, whose checkpoint keeps its id and the batches' numbers; the
server keeps the number of the last batch with the batch. So a batch that Spark runs again after a
crash of either side counts once, whatever rows its tasks have then.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.runtime import patient_calls
from millpond.runtime.patient_calls import DEFAULT_URL, read_patience

#: How many rows, and bytes as Arrow counts them, a part has at most; a larger row is a part alone.
_PART_ROWS, _PART_BYTES = 200_000, 16 << 20
#: The property of a task that has the id of its streaming query.
_QUERY_ID = "sql.streaming.queryId"

_T = TypeVar("_T")


@dataclass(frozen=True)
class WriteRequest:
    """A write request, from the options of a DataFrame.

    Attributes:
        url, token: The server, and its token if it has one.
        stream: The stream that is written to.
        patience: For how many seconds a call is repeated that the server cannot take now.
        writer: The name under which a frame is written; None for one of its own.
        batch: The number of the frame among those of that name, from 0; None if it is the only one.
    """

    url: str
    token: str | None
    stream: str
    patience: float
    writer: str | None = None
    batch: int | None = None

    @classmethod
    def of(
        cls, options: Mapping[str, str], schema: StructType, overwrite: bool, streams: bool
    ) -> WriteRequest:
        """Read the options, and check them and the columns against the server.

        Args:
            options: The options.
            schema: The columns that are written.
            overwrite: Whether what the stream has is to be replaced, which cannot be.
            streams: Whether a streaming query writes.

        Raises:
            MillpondError: SERVE-703, an option or a column cannot be; CQL-201, there is no such
                stream; POND-407, it takes no rows.
        """
        stream = options.get("stream") or options.get("path")
        if not stream:
            raise MillpondError(
                "SERVE-703",
                "it is not said which stream the rows are for",
                hint='Give option("stream", …), or the name to start() or save().',
            )
        if overwrite:
            raise MillpondError(
                "SERVE-703",
                "a stream cannot be overwritten",
                detail="Elements of a stream are only added.",
                hint='Use outputMode("append"), or foreachBatch, which may write any rows.'
                if streams
                else 'Use mode("append").',
            )
        patience = read_patience(options)
        writer, batch = _read_batch(options, streams)
        url, token = options.get("url", DEFAULT_URL), options.get("token")
        asked = cls(url, token, stream, patience, writer, batch)
        asked._check_columns(schema)
        return asked

    def _check_columns(self, schema: StructType) -> None:
        found = self.call(lambda pond: _find_stream(pond, self.stream))
        known = {field.name.lower() for field in found.schema.fields}
        odd = [name for name in schema.fieldNames() if name.lower() not in known]
        if odd:
            raise MillpondError(
                "SERVE-703",
                f'the stream "{self.stream}" has no column "{odd[0]}"',
                detail="Its columns are " + ", ".join(f.name for f in found.schema.fields) + ".",
                hint="Select the stream's columns, and name them as it does.",
            )

    def call(self, ask: Callable[[Any], _T]) -> _T:
        """Make a call that may be made twice, again while the server cannot take it."""
        return patient_calls.call(self.url, self.token, self.patience, ask)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> StagedByTask:
        """Send a task's rows as parts."""
        parts: list[str] = []
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None

        def send(held: list[pa.RecordBatch]) -> None:
            table, part = pa.Table.from_batches(held), uuid.uuid4().hex
            self.call(lambda pond: pond.stage(self.stream, part, table))
            parts.append(part)

        held: list[pa.RecordBatch] = []
        for batch in cut(batches):
            if held and not _fit_together([*held, batch]):
                send(held)
                held = []
            held.append(batch)
        if held:
            send(held)
        return StagedByTask(tuple(parts), query)

    def push(self, writer: str, batch: int | None, tasks: Sequence[Any]) -> None:
        """Make what tasks sent a batch."""
        parts = [part for task in tasks if task is not None for part in task.parts]
        self.call(lambda pond: pond.ingest_batch(self.stream, writer, batch, parts))

    def give_up(self, tasks: Sequence[Any]) -> None:
        """Remove what tasks sent, if the server is there; else it removes it after a day."""
        parts = [part for task in tasks if task is not None for part in task.parts]
        with suppress(MillpondError):
            patient_calls.call(
                self.url, self.token, 0.0, lambda pond: pond.unstage(self.stream, parts)
            )


@dataclass(frozen=True)
class StagedByTask(WriterCommitMessage):
    """What a task sent: its parts, in order, and the id of the streaming query it works for."""

    parts: tuple[str, ...]
    query: str | None


class FrameWriter(DataSourceArrowWriter):
    """Writes a DataFrame: all of its rows, or none."""

    def __init__(self, request: WriteRequest) -> None:
        self._request = request
        #: Made once a write, so that a repeated call of the driver counts once.
        self._writer = request.writer or f"spark {uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._request.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._request.push(self._writer, self._request.batch, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._request.give_up(messages)


class BatchesWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query, each exactly once."""

    def __init__(self, request: WriteRequest) -> None:
        self._request = request

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._request.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        [query] = {message.query for message in messages if isinstance(message, StagedByTask)}
        self._request.push(f"spark {query}", batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._request.give_up(messages)


def _read_batch(options: Mapping[str, str], streams: bool) -> tuple[str | None, int | None]:
    """Read the options `writer` and `batch`, by which a frame that is written again counts once.

    Raises:
        MillpondError: SERVE-703, they cannot be.
    """
    writer, batch = options.get("writer"), options.get("batch")
    fault = None
    if streams and (writer, batch) != (None, None):
        fault = "Spark gives a streaming query its name and its batches their numbers."
    elif batch is not None and not writer:
        fault = "A batch's number counts among those of a writer."
    elif batch is not None and not (batch.isascii() and batch.isdigit()):
        fault = f'"{batch}" is no number of a batch.'
    if fault is not None:
        raise MillpondError(
            "SERVE-703",
            'the options "writer" and "batch" cannot be as given',
            detail=fault,
            hint="In a function of foreachBatch, give the job's name and the batch's number.",
        )
    return writer, None if batch is None else int(batch)


def cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut record batches into ones that fit into a part."""
    for batch in batches:
        pieces = max(-(-batch.num_rows // _PART_ROWS), -(-batch.nbytes // _PART_BYTES), 1)
        size = max(-(-batch.num_rows // pieces), 1)
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)


def _fit_together(batches: Sequence[pa.RecordBatch]) -> bool:
    rows, size = sum(b.num_rows for b in batches), sum(b.nbytes for b in batches)
    return rows <= _PART_ROWS and size <= _PART_BYTES


def _find_stream(pond: Any, name: str) -> StreamDef:
    """Find a stream that takes rows of this client. Raises as the server does."""
    pond.unstage(name, ["nothing"])  # removes nothing, and may be done by who may push
    found: StreamDef = next(s for s in pond.streams() if s.name.lower() == name.lower())
    return found
