"""Local Parquet files as tasks read them: column by column, without the way through Spark's rows.

Spark's reader refuses some Parquet files that Arrow reads: pandas, for one, writes timestamps in
nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.errors import MillpondError
from millpond.runtime.chunks import PIECE_BYTES
from millpond.runtime.spark.headers import local_path

#: The number of a row group, and rows of it.
Group = tuple[int, pa.Table]
#: How large the wanted columns of a row group may be when they are unpacked, in bytes.
MOST_UNPACKED = 2 << 30
#: The bytes of a value in memory, by its type in the file; of a text, those of its offset.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}


class RowGroups:
    """The row groups of an open file.

    Attributes:
        counts: How many rows each has.
    """

    def __init__(self, uri: str, file: pq.ParquetFile) -> None:
        self._uri, self._file = uri, file
        about = file.metadata
        self.counts = tuple(about.row_group(n).num_rows for n in range(about.num_row_groups))

    def read(self, wanted: set[str], groups: Iterable[int] | None = None) -> Iterator[Group]:
        """Read some row groups, or all, with the wanted columns (named in lower case).

        A row group that is larger than `PIECE_BYTES` comes in several pieces, in order.
        """
        names = [n for n in self._file.schema_arrow.names if n.lower() in wanted]
        for group in range(len(self.counts)) if groups is None else groups:
            about = self._file.metadata.row_group(group)
            size = _measure(self._uri, about, wanted, group)
            if size <= PIECE_BYTES:
                yield group, self._file.read_row_group(group, columns=names, use_threads=False)
                continue
            step = max(1, about.num_rows * PIECE_BYTES // size)
            for batch in self._file.iter_batches(step, [group], names, use_threads=False):
                yield group, pa.Table.from_batches([batch])


def _measure(uri: str, about: pq.RowGroupMetaData, wanted: set[str], group: int) -> int:
    """The bytes that the wanted columns of a row group have unpacked, as the file says.

    Raises:
        MillpondError: DATA-502, they are too many.

    A file of kilobytes can have billions of equal values. What a file does not say of itself (long
    texts that stand many times) ends at the worker's limit of memory.
    """
    size = 0
    for place in range(about.num_columns):
        column = about.column(place)
        if column.path_in_schema.partition(".")[0].lower() in wanted:
            width = _WIDTHS.get(column.physical_type, 4)
            size += max(column.total_uncompressed_size, column.num_values * width)
    if size > MOST_UNPACKED:
        raise MillpondError(
            "DATA-502",
            f'the file "{local_path(uri)}" cannot be read',
            detail=f"Its row group {group} has {size:,} bytes unpacked; at most {MOST_UNPACKED:,}"
            " are read at once.",
            hint="Write it with fewer rows in a row group; a stream goes on where it was.",
        )
    return size


def length(uri: str) -> int:
    """Look how many bytes a file has."""
    path = local_path(uri)
    assert path is not None
    return path.stat().st_size


def parquet_tables(
    definition: RelationDef,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.Table]]:
    """Make the function with which a task reads a relation's rows from the paths of its files."""
    wanted = {f.name.lower() for f in definition.schema.given}

    def tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        for batch in batches:
            for uri in batch.column("path").to_pylist():
                with open_groups(uri) as groups:
                    yield from (rows for _, rows in groups.read(wanted))

    return tables


def check_columns(definition: StreamDef | RelationDef, uris: Sequence[str]) -> None:
    """Raise DATA-502 for a file that cannot be read, or has none of the declared columns."""
    wanted = {f.name.lower() for f in definition.schema.given}
    for uri in uris:
        with _open(uri) as file:
            names = file.schema_arrow.names
        if not any(name.lower() in wanted for name in names):
            raise no_columns_error(definition, names)


def no_columns_error(definition: StreamDef | RelationDef, found: Sequence[str]) -> MillpondError:
    """Make the error DATA-502 for a file that has none of the declared columns."""
    return MillpondError(
        "DATA-502",
        f'the files of "{definition.name}" have none of its columns',
        detail=f"They have {', '.join(found)}.",
        hint="Declare columns by the names the files have.",
    )


@contextmanager
def open_groups(uri: str) -> Iterator[RowGroups]:
    """Open a file by its URI, once for all that is read of it."""
    with _open(uri) as file:
        yield RowGroups(uri, file)


@contextmanager
def _open(uri: str) -> Iterator[pq.ParquetFile]:
    path = local_path(uri)
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise MillpondError(
            "DATA-502",
            f'the file "{path}" cannot be read',
            detail=str(error).split("\n", 1)[0],
            hint="Mend the file or take it away; a stream goes on where it was.",
        ) from error
