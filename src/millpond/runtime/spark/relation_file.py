"""Relations that are read from files: a task reads the rows, and writes them as one Arrow file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from millpond.catalog.objects import RelationDef
from millpond.engine.admission.admit import Admission, admit
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.runtime.spark import sources
from millpond.runtime.spark.jvm.worker_errors import raising_own_errors
from millpond.runtime.spark.parquet import parquet_tables
from millpond.state.arrow_file import FileMeta, write_arrow


def write_relation(spark: SparkSession, relation: RelationDef, path: Path) -> FileMeta:
    """Read a relation's source with Spark, and write its rows as one Arrow file.

    Raises:
        MillpondError: DATA-502 if the source cannot be read, DATA-501 if a row of it cannot be.
    """
    try:
        frame = sources.relation_frame(spark, relation)
    except Exception as error:
        raise sources.unreadable_error(relation, error) from error
    schema = relation.schema
    tables = parquet_tables(relation) if sources.is_direct(relation) else _tables

    def load(batches):  # type: ignore[no-untyped-def]
        judge = Admission(schema, None, BEGINNING, 0)
        good = [schema.to_arrow().empty_table()]
        reason = ""
        for table in tables(batches):
            admitted = admit(table, judge)
            good.append(admitted.elements.select(list(schema.names)))
            if admitted.rejects.num_rows and not reason:
                bad = admitted.rejects.to_pylist()[0]
                reason = f"{bad['reason']}: {bad['raw']}"
        file = write_arrow(path, pa.concat_tables(good))
        yield pa.RecordBatch.from_pydict(
            {
                "rows": [file.rows],
                "bytes": [file.bytes],
                "checksum": [file.checksum],
                "reason": [reason],
            }
        )

    result = "rows bigint, bytes bigint, checksum string, reason string"
    try:
        with raising_own_errors():
            (row,) = frame.mapInArrow(load, result).collect()
    except Exception as error:
        raise sources.unreadable_error(relation, error) from error
    if row.reason:
        path.unlink(missing_ok=True)
        raise MillpondError(
            "DATA-501",
            f'a row of relation "{relation.name}" cannot be read',
            detail=row.reason[:400],
            hint="Mend the row, or declare the column with a type that fits.",
        )
    return FileMeta(path, row.rows, row.bytes, row.checksum)


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    return (pa.Table.from_batches([batch]) for batch in batches)
