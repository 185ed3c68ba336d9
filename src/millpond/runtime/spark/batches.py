"""The closures Spark ships to tasks: from record batches to descriptions of built segments."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from millpond.engine.scalars.user_functions import Usage, functions
from millpond.runtime.batch_tasks import BatchPlan, BuiltSegment, StreamPlan, build
from millpond.runtime.chunks import Chunk
from millpond.runtime.kafka.chunks import chunk_of, partition_name
from millpond.runtime.kafka.decode import make_decoder
from millpond.runtime.kafka.read_range import OffsetRange, read_range
from millpond.runtime.kafka.settings import KafkaOptions
from millpond.runtime.spark.jvm.worker_errors import raising_own_errors
from millpond.runtime.spark.parquet import length, open_groups
from millpond.runtime.spark.sources import BLOCK, FILE, LENGTH
from millpond.state.file_share import fetch
from millpond.state.inbox.push_file import number_of, open_push

_RESULT = "built binary"
#: A file with at least this many rows is read by several tasks.
LARGE_ROWS = 1_000_000


class SourceFile(NamedTuple):
    """A file that tasks read.

    Attributes:
        place: What its rows' order of arrival goes by: its path, or what a table says of it.
        uri: Where it is.
        given: As JSON: the columns whose values stand in its path, and these values as texts.
    """

    place: str
    uri: str
    given: str = "{}"

    def with_given(self, rows: pa.Table, wanted: set[str]) -> pa.Table:
        """The rows with the wanted columns that the file itself does not have."""
        own = {name.lower() for name in rows.column_names}
        for name, value in json.loads(self.given).items():
            if name.lower() in wanted - own:
                values = pa.array([value] * rows.num_rows, pa.string())
                rows = rows.append_column(name, values)
        return rows


#: A file and how many rows its row groups have.
Large = tuple[SourceFile, tuple[int, ...]]


def build_frame(frame: DataFrame, plan: BatchPlan, stream_id: int) -> list[BuiltSegment]:
    """Build a stream's batch in Spark tasks; only descriptions come back."""
    return _collect(frame, _from_rows(plan, stream_id))[0]


def build_files(frame: DataFrame, plan: BatchPlan, stream_id: int) -> list[BuiltSegment]:
    """Build a batch of Parquet files that the tasks read themselves.

    The frame has their `path`; of a table's files also `place` and `given` (`SourceFile`).

    One task reads one file, unless the file is large. Then the task only reports how large, and a
    second job deals the file's row groups out to all tasks.
    """
    built, large = _build_all_but_large(frame, plan, stream_id)
    places = [(item.kind, run.key, run.offset) for item in built for run in item.runs]
    if len(set(places)) < len(places) or len(set(large)) < len(large):
        # Spark lists a file with a bracket in its name once for every file of the batch.
        built, large = _build_all_but_large(frame.distinct(), plan, stream_id)
    if large:
        session = frame.sparkSession
        shares = deal_row_groups(large, session.sparkContext.defaultParallelism)
        rows = [(json.dumps(share),) for share in shares]
        dealt_out = session.createDataFrame(rows, "share string")
        built += _collect(dealt_out, _from_shares(plan, stream_id, len(shares)))[0]
    return built


def _build_all_but_large(
    frame: DataFrame, plan: BatchPlan, stream_id: int
) -> tuple[list[BuiltSegment], list[Large]]:
    """Build all files of a batch but the large ones; return the large files too."""
    built, left = _collect(frame, _from_files(plan, stream_id))
    return built, left


def deal_row_groups(large: Sequence[Large], parts: int) -> list[list[tuple[SourceFile, int]]]:
    """Deal the row groups of large files into shares of about equal rows, in the files' order.

    >>> a, b = SourceFile("a", "file:/a"), SourceFile("b", "file:/b")
    >>> shares = deal_row_groups([(a, (4, 4, 4)), (b, (4,))], 2)
    >>> [[(file.place, group) for file, group in share] for share in shares]
    [[('a', 0), ('a', 1)], [('a', 2), ('b', 0)]]
    """
    groups = [(file, n, rows) for file, sizes in sorted(large) for n, rows in enumerate(sizes)]
    goal = sum(rows for _, _, rows in groups) / parts
    shares: list[list[tuple[SourceFile, int]]] = [[] for _ in range(parts)]
    done = 0
    for file, number, rows in groups:
        shares[min(int(done / goal), parts - 1)].append((file, number))
        done += rows
    return [share for share in shares if share]


def build_ranges(
    frame: DataFrame, plan: BatchPlan, stream_id: int, options: KafkaOptions
) -> tuple[list[BuiltSegment], dict[str, bool]]:
    """Build a batch of ranges of Kafka's partitions, which the tasks read themselves.

    Returns:
        The segments, and of all partitions of the batch by name, whether it has records of them.
    """
    built, said = _collect(frame, _from_ranges(plan, stream_id, options))
    came: dict[str, bool] = {}
    for name, has_records in said:
        came[name] = came.get(name, False) or has_records
    return built, came


def build_inbox(
    frame: DataFrame, plan: BatchPlan, waiting: frozenset[int]
) -> tuple[list[BuiltSegment], list[int]]:
    """Build a batch of pushes (`path`) in Spark tasks; pass over pushes that are not waiting."""
    return _collect(frame, _from_pushes(plan, waiting))


def _collect(
    frame: DataFrame, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> tuple[list[BuiltSegment], list[Any]]:
    """Collect the segments the tasks built, and their other results."""
    built: list[BuiltSegment] = []
    said: list[Any] = []
    with raising_own_errors():
        rows = frame.mapInArrow(task, _RESULT).collect()
    for row in rows:
        kind, value = pickle.loads(row.built)
        if kind == "left":
            said.append(value)
        elif kind == "functions":
            functions.report(value)
        else:
            built.append(value)
    return built, said


def _build(chunks: Iterator[Chunk], plan: BatchPlan) -> Iterator[pa.RecordBatch]:
    """Build a task's segments, and yield also what its calls of user-defined functions cost."""
    functions.look_in(Path(plan.store) / "functions", fetch)
    for built in build(chunks, plan):
        yield _pack("built", built)
    yield _pack("functions", functions.take_usage())


class InWorker:
    """A task as workers run it: with the pond's functions; gives its result and their cost."""

    def __init__(self, task: Callable[[Any], Any], store: Path) -> None:
        self._task = task
        self._folder = store / "functions"

    def __call__(self, job: Any) -> tuple[Any, dict[str, Usage]]:
        functions.look_in(self._folder, fetch)
        return self._task(job), functions.take_usage()


def _pack(kind: str, value: Any) -> pa.RecordBatch:
    data = pickle.dumps((kind, value), protocol=5)
    return pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], names=["built"])


def _from_rows(
    plan: BatchPlan, stream_id: int
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
                yield from _splits(table, plan.streams[stream_id])

        yield from _build(chunks(), plan)

    return task


def _from_files(
    plan: BatchPlan, stream_id: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    wanted = {f.name.lower() for f in plan.streams[stream_id].schema.given}
    limit = LARGE_ROWS

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def chunks() -> Iterator[Chunk]:
            seen: set[str] = set()
            for batch in batches:
                for row in batch.to_pylist():
                    file = SourceFile(
                        row.get("place", row["path"]), row["path"], row.get("given", "{}")
                    )
                    if file.place in seen:
                        continue
                    seen.add(file.place)
                    with open_groups(file.uri) as groups:
                        if len(groups.counts) > 1 and sum(groups.counts) > limit:
                            large.append((file, groups.counts))
                            continue
                        most = plan.streams[stream_id].most_of(length(file.uri))
                        for group, rows in groups.read(wanted):
                            rows = file.with_given(rows, wanted)
                            yield Chunk(stream_id, (file.place, group), rows, most=most)

        large: list[Large] = []
        yield from _build(chunks(), plan)
        for file in large:
            yield _pack("left", file)

    return task


def _from_shares(
    plan: BatchPlan, stream_id: int, parts: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    wanted = {f.name.lower() for f in plan.streams[stream_id].schema.given}

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def chunks() -> Iterator[Chunk]:
            for batch in batches:
                for share in batch.column("share").to_pylist():
                    for about, groups in itertools.groupby(json.loads(share), lambda item: item[0]):
                        file = SourceFile(*about)
                        numbers = [number for _, number in groups]
                        most = plan.streams[stream_id].most_of(length(file.uri), parts)
                        with open_groups(file.uri) as open_file:
                            for group, rows in open_file.read(wanted, numbers):
                                rows = file.with_given(rows, wanted)
                                yield Chunk(stream_id, (file.place, group), rows, most=most)

        yield from _build(chunks(), plan)

    return task


def _from_ranges(
    plan: BatchPlan, stream_id: int, options: KafkaOptions
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ranges = [OffsetRange(**row) for batch in batches for row in batch.to_pylist()]

        def chunks() -> Iterator[Chunk]:
            if stream_id not in plan.streams:
                return  # the stream was dropped while its records were on their way
            decode = make_decoder(options, plan.streams[stream_id].schema)
            for range in ranges:
                for records in read_range(options, range):
                    key = range.topic, range.partition, range.first
                    yield chunk_of(records, stream_id, key, decode)

        yield from _build(chunks(), plan)
        for range in ranges:
            name = partition_name(range.topic, range.partition)
            yield _pack("left", (name, range.stop > max(range.first, 0)))

    return task


def _splits(table: pa.Table, plan: StreamPlan) -> Iterator[Chunk]:
    """Separate a batch's rows by split: a task may read pieces of several files.

    The key of a split is its file's path and its offset in the file.
    """
    rows = table.drop_columns([FILE, BLOCK, LENGTH])
    files = pc.run_end_encode(table[FILE].combine_chunks())
    blocks = pc.run_end_encode(table[BLOCK].combine_chunks())
    edges = sorted({0, *files.run_ends.to_pylist(), *blocks.run_ends.to_pylist()})
    for start, end in itertools.pairwise(edges):
        key = (table[FILE][start].as_py(), table[BLOCK][start].as_py())
        most = plan.most_of(table[LENGTH][start].as_py())
        yield Chunk(plan.stream_id, key, rows.slice(start, end - start), most=most)


def _from_pushes(
    plan: BatchPlan, waiting: frozenset[int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    inbox = Path(plan.store) / "inbox"

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers: list[int] = []

        def chunks() -> Iterator[Chunk]:
            for batch in batches:
                for uri in batch.column("path").to_pylist():
                    name = uri.rpartition("/")[2]
                    number = number_of(name)
                    if number not in waiting:
                        continue
                    pushed = open_push(inbox, name)
                    numbers.append(number)
                    yield Chunk(pushed.stream_id, (number,), pushed.table, pushed.arrived_at)

        yield from _build(chunks(), plan)
        for number in numbers:
            yield _pack("left", number)

    return task
