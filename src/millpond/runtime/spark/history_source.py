"""History, then live: one streaming source that gives files listed once, then ranges of Kafka.

An offset is a place among the files, and behind the last of them the place where the live part is.
So the checkpoint, restarts, backups and the numbers of batches are those of any other source. The
files and the live part's beginning are both written down before the first batch: what comes to the
topic while the history is read, is read after it.

INV-HISTORY-1: no batch has both, and between them is one batch of nothing, the turn.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from millpond.runtime.spark.checkpoint import note_once
from millpond.runtime.spark.kafka_source import (
    RangesReader,
    describe_topics,
    note_start,
    range_columns,
    ranges_of,
    topics_of,
)

if TYPE_CHECKING:
    from millpond.catalog.objects import StreamDef

NAME = "millpond_history"
_FILES = "history_files.json"
_SCHEMA = (
    "path string, given string, topic string, partition int, first bigint, stop bigint, read bigint"
)
#: How many files a batch has at most unless maxFilesPerTrigger says so.
_MOST_FILES = 1_000
#: How long a stream that waits for its query to be ended waits in one call.
_IDLE_SECONDS = 1.0
#: What Spark and Hive call a partition whose value is NULL.
_NULL = "__HIVE_DEFAULT_PARTITION__"


def history_frame(spark: SparkSession, stream: StreamDef, folder: Path) -> DataFrame:
    """Open a stream's history, and what follows it, as a streaming frame.

    Args:
        spark: The session.
        stream: The stream.
        folder: Its checkpoint's folder, which also keeps the list of the files.
    """
    # The process of the reader does not need it, and would load half of Millpond with it.
    from millpond.runtime.spark.sources import list_paths

    spark.dataSource.register(HistoryThenLive)
    assert stream.history is not None
    live = None if stream.source is None else describe_topics(stream, note_start(stream, folder))
    note_once(folder, _FILES, lambda: list_paths(spark, stream.as_history()))
    reader = spark.readStream.format(NAME).option("files", str(folder / _FILES))
    reader = reader.option("history", json.dumps(stream.history.source.options))
    reader = reader.option("slots", str(spark.sparkContext.defaultParallelism))
    return (reader if live is None else reader.option("facts", live)).load()


def find_partitions(folder: Path, batch_id: int) -> list[tuple[str, int]] | None:
    """Look whether a batch is behind the history's files, by its offset in the checkpoint.

    Returns:
        The topics' partitions as of the batch's end, None if the batch is of files.
    """
    lines = (folder / "offsets" / str(batch_id)).read_text().splitlines()
    live: dict[str, Any] | None = json.loads(lines[2]).get("live")
    if live is None:
        return None
    places = topics_of(live).items()
    return [(topic, int(number)) for topic, offsets in places for number in offsets]


def read_given(path: str) -> dict[str, str | None]:
    """Read the columns whose values stand in the path of a file of a partitioned dataset.

    >>> read_given("file:/data/day=2026-03-01/city=New%20York/part-0.parquet")
    {'day': '2026-03-01', 'city': 'New York'}
    """
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    given = {name: unquote(value) for name, equals, value in pairs if name and equals}
    return {name: None if value == _NULL else value for name, value in given.items()}


class HistoryThenLive(DataSource):
    """Spark's data source of both; its options are made by `history_frame`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        history = json.loads(self.options["history"])
        slots = int(self.options["slots"])
        facts = self.options.get("facts")
        live = None if facts is None else ranges_of(facts, slots)
        most = int(history.get("maxfilespertrigger", _MOST_FILES))
        return HistoryReader(Path(self.options["files"]), most, slots, live)


class HistoryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says how far the files, and then the topics, go."""

    def __init__(self, files: Path, most: int, slots: int, live: RangesReader | None) -> None:
        self._list = files
        self._most = most
        self._slots = slots
        self._live = live
        self._paths: list[str] | None = None

    @property
    def _files(self) -> list[str]:
        if self._paths is None:
            self._paths = json.loads(self._list.read_text())
        return self._paths

    def initialOffset(self) -> dict[str, Any]:
        return {"files": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        if self._live is not None:
            self._live.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if "live" not in start:
            done = start["files"]
            if done < len(self._files):
                return {"files": min(done + self._most, len(self._files))}
            return {"live": {} if self._live is None else self._live.initialOffset()}
        if self._live is None:
            time.sleep(_IDLE_SECONDS)
            return start
        return {"live": self._live.latestOffset(start["live"], limit)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if "files" in end:
            paths = self._files[start["files"] : end["files"]]
            each = -(-len(paths) // self._slots) or 1
            return [InputPartition(paths[at : at + each]) for at in range(0, len(paths), each)]
        if self._live is None or "files" in start:
            return [InputPartition([])]
        return list(self._live.partitions(start["live"], end["live"]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        share: list[Any] = partition.value
        paths = [item for item in share if isinstance(item, str)]
        ranges = range_columns([item for item in share if not isinstance(item, str)])
        count = len(paths) or len(ranges["topic"])
        nothing = [None] * (0 if paths else count)
        files = {
            "path": pa.array(paths or nothing, pa.string()),
            "given": pa.array([json.dumps(read_given(p)) for p in paths] or nothing, pa.string()),
        }
        if paths:
            ranges = {name: pa.nulls(count, values.type) for name, values in ranges.items()}
        yield pa.RecordBatch.from_pydict(files | ranges)

    def commit(self, end: dict[str, Any]) -> None:
        pass

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
