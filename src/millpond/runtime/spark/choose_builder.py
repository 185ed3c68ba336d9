"""How the batches of a source become segments: by what reads them, Spark or the tasks.

And how much waits in a source of which a batch is planned, for streams that shed. It is of what the
checkpoint has of the batch, so a batch that comes again has the same answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame

from millpond.catalog.objects import StreamDef
from millpond.runtime.batch_tasks import BatchPlan, BuiltSegment
from millpond.runtime.kafka.options import kafka_options
from millpond.runtime.protocol import NO_PARTITIONS, Waiting
from millpond.runtime.spark import sources
from millpond.runtime.spark.batches import build_files, build_frame, build_ranges
from millpond.runtime.spark.headers import local_path
from millpond.runtime.spark.kafka_source import WAITING

#: Of a topic may wait so many of its largest batches.
_BATCHES = 4
_Built = tuple[list[BuiltSegment], Mapping[str, bool]]


def choose_builder(stream: StreamDef) -> Callable[[DataFrame, BatchPlan, int], _Built]:
    """Choose the function that builds a batch from a frame of rows, of files' paths or of ranges.

    It gives the segments, and the names of the partitions of a source that has some.
    """
    if stream.history is not None:
        return _build_history_or_live(stream)
    assert stream.source is not None
    if stream.source.format == "kafka":
        options = kafka_options(stream)
        return lambda frame, plan, id: build_ranges(frame, plan, id, options)
    if stream.source.format == "delta" or sources.is_direct(stream):
        return lambda frame, plan, id: (build_files(frame, plan, id), NO_PARTITIONS)
    if stream.source.format not in sources.FILE_FORMATS:
        return lambda frame, plan, id: (build_frame(frame, plan, id), NO_PARTITIONS)
    return _read_files(stream)


def _read_files(stream: StreamDef) -> Callable[[DataFrame, BatchPlan, int], _Built]:
    """Have Spark read a batch's files; the frame has their paths."""

    def read_and_build(frame: DataFrame, plan: BatchPlan, stream_id: int) -> _Built:
        paths = [row.path for row in frame.collect()]
        # The stream may have got a column since its source was opened.
        plans = plan.streams
        columns = plans[stream_id].schema if stream_id in plans else stream.schema
        rows = sources.files_frame(frame.sparkSession, replace(stream, schema=columns), paths)
        return ([] if rows is None else build_frame(rows, plan, stream_id)), NO_PARTITIONS

    return read_and_build


def _build_history_or_live(stream: StreamDef) -> Callable[[DataFrame, BatchPlan, int], _Built]:
    """Choose how a batch of a stream's history is built, and one of what follows it."""
    history = stream.as_history()
    by_tasks = sources.is_direct(history, with_folders=True)
    live = None if stream.source is None else choose_builder(replace(stream, history=None))
    read_files = _read_files(history)

    def build(frame: DataFrame, plan: BatchPlan, stream_id: int) -> _Built:
        if stream_id not in plan.streams:
            return [], NO_PARTITIONS
        if not plan.streams[stream_id].reads_history:
            assert live is not None
            return live(frame.drop("path", "given"), plan, stream_id)
        if by_tasks:
            return build_files(frame.select("path", "given"), plan, stream_id), NO_PARTITIONS
        return read_files(frame.select("path"), plan, stream_id)

    return build


def find_waiting(
    stream: StreamDef, frame: DataFrame, folder: Path, batch_id: int
) -> Waiting | None:
    """Find what waits in the source of a stream.

    Of topics that is what the brokers had when the batch's end was fixed. Of files it is the
    batch's own: Spark does not say what it found beyond `maxFilesPerTrigger`.

    Args:
        stream: The stream.
        frame: The batch: of ranges of topics, or of the paths of files.
        folder: The checkpoint's folder.
        batch_id: The number of the batch.

    Returns:
        None if nobody knows.
    """
    if stream.source is not None and stream.source.format == "kafka":
        most = _BATCHES * kafka_options(stream).max_records
        lines = (folder / "offsets" / str(batch_id)).read_text().splitlines()
        offsets = json.loads(lines[2])
        found = offsets.get("live", offsets).get(WAITING)
        return None if found is None else Waiting(found["all"], found["left"], most, "records")
    if "path" not in frame.columns:
        return None
    found = [local_path(row.path) for row in frame.select("path").distinct().collect()]
    return Waiting(sum(path.stat().st_size for path in found if path is not None and path.exists()))
