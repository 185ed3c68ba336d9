"""Answers and changes of a served pond as DataFrames of any Spark session.

    spark.read.format("millpond").option("query", "late").load()
    spark.readStream.format("millpond").option("changes", "late").load()

and rows of any Spark session as elements of its pushed streams (`data_writer.py`):

    frame.writeStream.format("millpond").option("checkpointLocation", …).start("readings")

Changes are read by their cursors, which Spark's checkpoint keeps. A streaming query that is started
again continues after its last cursor, so every change comes once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from millpond.errors import MillpondError
from millpond.runtime import patient_calls
from millpond.runtime.patient_calls import DEFAULT_URL, read_patience
from millpond.runtime.spark.data_writer import BatchesWriter, FrameWriter, WriteRequest

if TYPE_CHECKING:
    from millpond.service.results import Answer, Changes

#: The place before the oldest change that is kept.
OLDEST = "oldest"
#: How many changes one Spark task reads.
_CHANGES_A_TASK = 100_000


@dataclass(frozen=True)
class _ReadRequest:
    """A read request, from the options of a DataFrame.

    Attributes:
        url, token: The server, and its token if it has one.
        query: A standing query whose answer is read, `at` an instant or now.
        cql: The text of a query to ask once, instead of a standing query.
        changes: A standing query or derived stream whose changes are read.
        after: The cursor after which changes begin; None for the first change, 'oldest' for the
            oldest kept.
        inexact: What is done with rows that are not exact: 'refuse', or 'say' it in three more
            columns of every row, `__exact`, `__loss` and `__bounds` (texts, or NULL).
        patience: For how many seconds changes are asked for again while the server cannot be
            reached. Answers are asked for once: who asks is waiting for them.
    """

    url: str
    token: str | None
    query: str | None
    cql: str | None
    at: str | None
    changes: str | None
    after: str | None
    inexact: str = "refuse"
    patience: float = 0.0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _ReadRequest:
        asked = cls(
            options.get("url", DEFAULT_URL),
            options.get("token"),
            options.get("query") or options.get("path"),
            options.get("cql"),
            options.get("at"),
            options.get("changes"),
            options.get("after"),
            options.get("inexact", "refuse").lower(),
            read_patience(options),
        )
        if asked.inexact not in ("refuse", "say"):
            raise MillpondError(
                "SERVE-703",
                f'the option "inexact" cannot be "{asked.inexact}"',
                hint="It is 'refuse', or 'say', which adds columns: __exact, __loss, __bounds.",
            )
        if sum(x is not None for x in (asked.query, asked.cql, asked.changes)) != 1:
            raise MillpondError(
                "SERVE-703",
                "it is not said what of the pond is read",
                detail="A DataFrame is a query's answer, the answer to a question, or changes.",
                hint="Give one of the options query, cql and changes.",
            )
        return asked

    def answer(self) -> pa.Table:
        def ask(pond: Any) -> Answer:
            if self.query is not None:
                found: Answer = pond.query(self.query).invoke(self.at)
            else:
                found = pond.ask(self.cql)
            return found

        answer = patient_calls.call(self.url, self.token, 0.0, ask)
        return self._promise(answer, answer.table)

    def page(self, after: str | int | None, limit: int) -> Changes:
        def ask(pond: Any) -> Changes:
            try:
                followed = pond.query(self.changes)
            except MillpondError as error:
                if error.code not in ("CQL-201", "CQL-216"):
                    raise
                followed = pond.derived(self.changes)
            found: Changes = followed.fetch(after, limit)
            return found

        changes = patient_calls.call(self.url, self.token, self.patience, ask)
        table = changes.table
        place = table.schema.get_field_index("timestamp")
        stamps = table["timestamp"].cast(pa.timestamp("us"))
        table = table.set_column(place, "timestamp", stamps)
        return replace(changes, table=self._promise(changes, table))

    def columns(self) -> StructType:
        """The columns a frame has: those of the answer, or of the newest definition's changes.

        A job that was started again reads on where it was. What lies before that need not be kept
        any more, and may have had other columns.
        """
        if self.changes is None:
            return from_arrow_schema(self.answer().schema)
        newest = self.page(OLDEST, 0)
        last = self.page(newest.cursor_at(newest.newest), 0)
        return from_arrow_schema(last.table.schema)

    def changes_after(
        self, after: str | None, columns: StructType, most: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield `most` changes after a cursor, or all so far; a page ends where a definition does.

        Raises:
            MillpondError: POND-412, changes have other columns than the frame.
        """
        left, page = most, None
        while (page is None or page.position < page.newest) and left != 0:
            limit = _CHANGES_A_TASK if left is None else min(left, _CHANGES_A_TASK)
            begin = after if page is None else page.cursor
            page = self.page(begin, limit)
            if from_arrow_schema(page.table.schema) != columns:
                raise self._other_columns(page, begin)
            yield from page.table.to_batches()
            left = None if left is None else left - page.table.num_rows

    def _other_columns(self, page: Changes, begin: str | None) -> MillpondError:
        """The error for changes that a frame cannot have; it says where others begin."""
        while page.redefined is None and page.position < page.newest:
            begin = page.cursor
            page = self.page(begin, _CHANGES_A_TASK)
        return MillpondError(
            "POND-412",
            f'the changes of "{self.changes}" get other columns after cursor {begin}',
            detail="The query was given another definition. Before that its rows left, and behind "
            "it all rows come in the new columns.",
            hint=f'Begin behind it: with a checkpoint of its own, and option("after", "{begin}").',
        )

    def _promise(self, given: Answer | Changes, table: pa.Table) -> pa.Table:
        """Refuse rows that are not exact, or say of every row whether it is.

        A DataFrame has no place for what is true of all its rows, and nobody is to take an
        approximation for an exact answer.

        Raises:
            MillpondError: POND-416, the rows are not exact and the option `inexact` was not given.
        """
        if self.inexact == "refuse":
            if not given.exact:
                raise MillpondError(
                    "POND-416",
                    "the rows are not exact",
                    detail="; ".join(map(str, given.loss)),
                    hint='With option("inexact", "say") every row says it, in __exact and __loss.',
                )
            return table
        loss = None if given.exact else "; ".join(map(str, given.loss))
        count = table.num_rows
        table = table.append_column("__exact", pa.array([given.exact] * count, pa.bool_()))
        table = table.append_column("__loss", pa.array([loss] * count, pa.string()))
        bounds = [None] * count if given.bounds is None else given.bounds.list_rows()
        each = [None if one is None else json.dumps(one) for one in bounds]
        return table.append_column("__bounds", pa.array(each, pa.string()))


class MillpondSource(DataSource):
    """Spark's data source `millpond`; `_ReadRequest` says what its options are."""

    @classmethod
    def name(cls) -> str:
        return "millpond"

    def schema(self) -> StructType:
        return _ReadRequest.of(self.options).columns()

    def reader(self, schema: StructType) -> DataSourceReader:
        return _AnswerReader(_ReadRequest.of(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        asked = _ReadRequest.of(self.options)
        if asked.changes is None:
            raise MillpondError(
                "SERVE-703",
                "an answer is no stream",
                detail="What Spark reads as a stream are a query's changes.",
                hint='Use option("changes", …), or spark.read.',
            )
        return _ChangesReader(asked, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return FrameWriter(WriteRequest.of(self.options, schema, overwrite, streams=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return BatchesWriter(WriteRequest.of(self.options, schema, overwrite, streams=True))


class _AnswerReader(DataSourceReader):
    """Reads an answer, or all changes so far, in one task."""

    def __init__(self, asked: _ReadRequest, columns: StructType) -> None:
        self._asked, self._columns = asked, columns

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        asked = self._asked
        if asked.changes is None:
            yield from asked.answer().to_batches()
        else:
            yield from asked.changes_after(asked.after, self._columns)


class _CursorRange(InputPartition):
    """A number of changes after a cursor."""

    def __init__(self, after: str, count: int) -> None:
        super().__init__((after, count))


class _ChangesReader(DataSourceStreamReader):
    """Reads changes as they come; an offset is a cursor."""

    def __init__(self, asked: _ReadRequest, columns: StructType) -> None:
        self._asked, self._columns = asked, columns

    def initialOffset(self) -> dict[str, str]:
        return {"cursor": self._asked.page(self._asked.after, 0).cursor}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, str]:
        page = self._asked.page(OLDEST, 0)
        return {"cursor": page.cursor_at(page.newest)}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        (prefix, _, first), (own, _, last) = (
            str(offset["cursor"]).rpartition(".") for offset in (start, end)
        )
        if prefix != own:
            # The changes at the checkpoint are gone; the server's error says where to go on.
            self._asked.page(start["cursor"], 0)
        return [
            _CursorRange(f"{prefix}.{after}", min(_CHANGES_A_TASK, int(last) - after))
            for after in range(int(first), int(last), _CHANGES_A_TASK)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        after, count = partition.value
        yield from self._asked.changes_after(after, self._columns, count)
