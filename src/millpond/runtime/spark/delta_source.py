"""Delta tables as a streaming source: it gives the files that are appended, which tasks read.

Spark keeps in its checkpoint up to which file of which version each batch goes. A batch's files are
read as those of Parquet sources are, in the order of versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from millpond.catalog.objects import SourceDef, StreamDef
from millpond.model.schema import Schema
from millpond.runtime.delta.appended_files import AppendedFiles, Place, find_beginning
from millpond.runtime.delta.options import delta_options
from millpond.runtime.delta.table_log import AppendedFile, TableLog
from millpond.runtime.spark.checkpoint import note_once
from millpond.state.outside_files import check_ordinary, check_within

NAME = "millpond_delta"
_START = "delta_start.json"
#: `place` begins with what puts files in order; `given` are the columns that the path gives.
_SCHEMA = "place string, path string, given string"


def check_table(stream: StreamDef) -> None:
    """Look at a stream's table for the first time.

    Raises:
        MillpondError: CQL-214 for its options, DATA-502 for the table.
    """
    find_beginning(_log(stream), delta_options(stream))


def appended_frame(spark: SparkSession, stream: StreamDef, folder: Path) -> DataFrame:
    """Open the table of a stream as a streaming frame of files.

    Args:
        spark: The session.
        stream: The stream.
        folder: Its checkpoint's folder, which also keeps where the stream began.
    """
    spark.dataSource.register(AppendedToDelta)
    source = stream.source
    assert source is not None
    beginning = note_once(
        folder, _START, lambda: find_beginning(_log(stream), delta_options(stream))
    )
    facts = json.dumps([source.options, source.within, beginning])
    reader = spark.readStream.format(NAME).option("name", stream.name)
    reader = reader.option("slots", str(spark.sparkContext.defaultParallelism))
    return (
        reader.option("columns", json.dumps(stream.schema.to_json())).option("facts", facts).load()
    )


def _log(stream: StreamDef) -> TableLog:
    """The log of a stream's table, if the stream may read it."""
    options = delta_options(stream)
    check_ordinary(options.path, f'the source of "{stream.name}",')
    check_within(stream, [str(options.path), str(options.path / "_delta_log")])
    # Of a column that was added, older versions of the table may know nothing.
    needed = [field.name for field in stream.schema.given if not field.added]
    return TableLog(options.path, stream.name, needed)


class AppendedToDelta(DataSource):
    """Spark's data source of the files; its options are made by `appended_frame`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        given, within, beginning = json.loads(self.options["facts"])
        columns = Schema.from_json(json.loads(self.options["columns"]))
        source = SourceDef("delta", given, within)
        stream = StreamDef(0, self.options["name"], columns, source=source)
        return FilesReader(stream, beginning, int(self.options["slots"]))


class FilesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says up to where the table goes; an offset is a place among the files."""

    def __init__(self, stream: StreamDef, beginning: dict[str, Any], slots: int) -> None:
        self._stream = stream
        self._slots = slots
        self._most = delta_options(stream).max_files
        self._files = AppendedFiles(_log(stream), beginning)
        self._upto: int | None = None

    def initialOffset(self) -> Place:
        return self._files.first

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._upto = _log(self._stream).look()

    def latestOffset(self, start: Place, limit: ReadLimit) -> Place:
        return self._files.find_end(start, self._most, self._upto)

    def partitions(self, start: Place, end: Place) -> list[InputPartition]:
        files = self._files.list_files(start, end)
        check_within(self._stream, (file.path for file in files))
        each = -(-len(files) // self._slots) or 1
        return [InputPartition(files[at : at + each]) for at in range(0, len(files), each)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        files: list[AppendedFile] = partition.value
        yield pa.RecordBatch.from_pydict(
            {
                "place": pa.array([f"{f.version:019}.{f.number:08}:{f.path}" for f in files]),
                "path": pa.array([f.path for f in files]),
                "given": pa.array([json.dumps(f.values) for f in files]),
            }
        )

    def commit(self, end: Place) -> None:
        pass

    def stop(self) -> None:
        pass
