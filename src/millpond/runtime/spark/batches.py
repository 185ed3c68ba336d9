"""What Spark ships to a task: closures from record batches to descriptions of what was built."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from millpond.runtime.spark.sources import BLOCK, FILE
from millpond.runtime.tasks import BatchPlan, Built, Chunk, build
from millpond.state.inbox import read_pushed

_RESULT = "built binary"


def build_frame(frame: DataFrame, plan: BatchPlan, stream_id: int) -> tuple[list[Built], list[int]]:
    """Build a stream's batch in Spark tasks; only descriptions come back."""
    order = _file_order(frame) if FILE in frame.columns else {}
    return _collect(frame, _from_rows(plan, stream_id, order))


def build_inbox(frame: DataFrame, plan: BatchPlan) -> tuple[list[Built], list[int]]:
    """Build a batch of pushes (`path`, `content`) in Spark tasks."""
    return _collect(frame, _from_pushes(plan))


def _collect(
    frame: DataFrame, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> tuple[list[Built], list[int]]:
    built: list[Built] = []
    numbers: list[int] = []
    for row in frame.mapInArrow(task, _RESULT).collect():
        kind, value = pickle.loads(row.built)
        if kind == "number":
            numbers.append(value)
        else:
            built.append(value)
    return built, numbers


def _packed(kind: str, value: Any) -> pa.RecordBatch:
    data = pickle.dumps((kind, value), protocol=5)
    return pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], names=["built"])


def _file_order(frame: DataFrame) -> dict[int, int]:
    """Spark's xxhash64 of each of the batch's files → its place in the order of their paths."""
    import xxhash

    files = sorted(frame.inputFiles())
    hashes = (xxhash.xxh64_intdigest(f.encode(), seed=42) for f in files)
    return {h - (1 << 64) if h >= 1 << 63 else h: i for i, h in enumerate(hashes)}


def _from_rows(
    plan: BatchPlan, stream_id: int, order: dict[int, int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def chunks() -> Iterator[Chunk]:
            context = TaskContext.get()
            partition = context.partitionId() if context else 0
            for batch in batches:
                table = pa.Table.from_batches([batch])
                if FILE not in table.column_names:
                    yield Chunk(stream_id, (partition,), table)
                    continue
                yield from _splits(table, stream_id, order)

        for built in build(chunks(), plan):
            yield _packed("built", built)

    return task


def _splits(table: pa.Table, stream_id: int, order: dict[int, int]) -> Iterator[Chunk]:
    """A batch's rows split by split: a task may read pieces of several files."""
    files, blocks = table[FILE].to_numpy(), table[BLOCK].to_numpy()
    rows = table.drop_columns([FILE, BLOCK])
    changes = np.flatnonzero((files[1:] != files[:-1]) | (blocks[1:] != blocks[:-1])) + 1
    edges = [0, *changes.tolist(), len(files)]
    for start, end in zip(edges, edges[1:], strict=False):
        if start < end:
            key = (order.get(int(files[start]), 0), int(blocks[start]))
            yield Chunk(stream_id, key, rows.slice(start, end - start))


def _from_pushes(
    plan: BatchPlan,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers: list[int] = []

        def chunks() -> Iterator[Chunk]:
            for batch in batches:
                for content in batch.column("content"):
                    pushed = read_pushed(content.as_buffer())
                    numbers.append(pushed.number)
                    key = (pushed.number,)
                    yield Chunk(pushed.stream_id, key, pushed.table, pushed.arrived_at)

        for built in build(chunks(), plan):
            yield _packed("built", built)
        for number in numbers:
            yield _packed("number", number)

    return task
