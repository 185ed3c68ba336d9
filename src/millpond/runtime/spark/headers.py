"""The columns of CSV files: by the file's own header, or by position if it has none.

Spark reads all files of a CSV source with one list of columns, which must be given while a watched
directory may still be empty. So the streaming query only lists files. Each batch reads the files'
headers, and then reads files with equal headers together.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import IO

from pyspark.sql import DataFrame, SparkSession

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.errors import MillpondError

#: How many lines of a file without a header are read to count its columns.
_LINES = 10
#: How many characters are looked at for these lines. A packed file of a megabyte may have a first
#: line of gigabytes, and it is read in the server's process.
LONGEST_START = 1 << 24
#: Spark's own limit of columns, if the source's options have no other one.
_MOST_COLUMNS = 20_480

#: A cell may be as long as a line: Python's reader stops at 128 KB unless it is told otherwise.
csv.field_size_limit(1 << 30)

#: Endings of files Python does not unpack: Spark reads their first lines.
PACKED = (".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".zstd")


def has_headers(definition: StreamDef | RelationDef) -> bool:
    """Whether a stream or relation is read from CSV files with headers."""
    source = definition.source
    return (
        source is not None
        and source.format == "csv"
        and source.options.get("header", "").lower() == "true"
    )


def local_path(path: str) -> Path | None:
    """Turn Spark's path of a file into a local path; None if the file is not on this machine."""
    if path.startswith("file:"):
        return Path("/" + path.removeprefix("file:").lstrip("/"))
    return None if "://" in path else Path(path)


def columns_of(
    spark: SparkSession, definition: StreamDef | RelationDef, path: str
) -> tuple[str, ...]:
    """Read a file's columns; a declared column gets its declared name, others get unused names.

    Raises:
        MillpondError: DATA-502, the header cannot be read or lacks a column the stream always had.
    """
    assert definition.source is not None
    first = _first_rows(spark, path, definition.source.options, 1)
    if not first:
        return ()
    (header,) = first
    _check_width(definition, path, len(header))
    columns = [f"_c{i}" for i in range(len(header))]
    found = {name.strip().lower(): i for i, name in reversed(list(enumerate(header)))}
    for field in definition.schema.given:
        place = found.get(field.name.lower())
        if place is None and field.added:
            continue
        if place is None:
            raise MillpondError(
                "DATA-502",
                f'"{path.rpartition("/")[2]}" has no column "{field.name}"',
                detail=f"Its header is {', '.join(header)[:400]}.",
                hint="Declare the columns the file has; their order does not matter.",
            )
        columns[place] = field.name
    return tuple(columns)


def columns_by_place(
    spark: SparkSession, definition: StreamDef | RelationDef, path: str
) -> tuple[str, ...]:
    """List the columns of a file without a header: the declared ones, then unused names.

    A file whose rows end before the columns that were added is as old as that, and lacks them.

    Raises:
        MillpondError: DATA-502, the file cannot be read.
    """
    assert definition.source is not None
    rows = _first_rows(spark, path, definition.source.options, _LINES)
    if not rows:
        return ()
    _check_width(definition, path, max(map(len, rows)))
    width = max(map(len, rows))
    given = definition.schema.given
    declared = [f.name for place, f in enumerate(given) if not f.added or place < width]
    return (*declared, *(f"_c{i}" for i in range(len(declared), width)))


def _check_width(definition: StreamDef | RelationDef, path: str, columns: int) -> None:
    """Raise DATA-502 if a file has more columns than Spark will read; it would plan them first."""
    assert definition.source is not None
    most = int(definition.source.options.get("maxcolumns", _MOST_COLUMNS))
    if columns > most:
        raise MillpondError(
            "DATA-502",
            f'"{path.rpartition("/")[2]}" has {columns:,} columns',
            detail=f"A CSV file may have {most:,}.",
            hint="Take the file away, or set the option maxColumns of the source.",
        )


def read_by_header(
    spark: SparkSession,
    definition: StreamDef | RelationDef,
    paths: Iterable[str],
    read: Callable[[tuple[str, ...], list[str]], DataFrame],
    columns_of: Callable[..., tuple[str, ...]] = columns_of,
) -> DataFrame | None:
    """Read the rows of all files; None if all are empty.

    `read` is called once for each group of files with equal columns.
    """
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in paths:
        groups[columns_of(spark, definition, path)].append(path)
    groups.pop((), None)
    frames = [read(columns, group) for columns, group in groups.items()]
    return reduce(DataFrame.unionByName, frames) if frames else None


def _first_rows(
    spark: SparkSession, path: str, options: dict[str, str], most: int
) -> list[list[str]]:
    """Read a file's first rows that are not blank, unconverted; no rows for an empty file."""
    separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
    encoding = options.get("encoding", options.get("charset", "utf-8"))
    local = local_path(path)
    try:
        if local is None or local.suffix in PACKED:
            rows = spark.read.text(path).filter("trim(value) <> ''").head(most)
            lines: Iterable[str] = [row.value.removeprefix("\ufeff") for row in rows]
            return _split_rows(lines, separator, most)
        opener = gzip.open if local.suffix == ".gz" else open
        if encoding.lower() in ("utf-8", "utf8"):
            encoding = "utf-8-sig"
        # Lines after the header are read too, but not judged here.
        with opener(local, "rt", encoding=encoding, errors="replace", newline="") as file:
            found = _split_rows(_read_start(file), separator, most)
        # The header names columns, so it has to be text; later lines that are no text are rejected.
        if any(c in name for name in (found[0] if found else ()) for c in "\ufffd\0"):
            raise UnicodeError(f"It is not text in {encoding}.")
        return found
    except (OSError, EOFError, zlib.error, UnicodeError, LookupError, csv.Error) as error:
        raise MillpondError(
            "DATA-502",
            f'the first lines of "{local or path}" cannot be read',
            detail=str(error),
            hint="Mend the file, take it away, or name its encoding: OPTIONS (encoding '…').",
        ) from error


def _split_rows(lines: Iterable[str], separator: str, most: int) -> list[list[str]]:
    if len(separator) == 1:
        rows: Iterable[list[str]] = csv.reader(lines, delimiter=separator)
    else:
        rows = (line.rstrip("\r\n").split(separator) for line in lines)
    found: list[list[str]] = []
    try:
        found.extend(islice((row for row in rows if any(cell.strip() for cell in row)), most))
    except EOFError:
        if not found:
            raise
    return found


def _read_start(file: IO[str]) -> Iterator[str]:
    """Yield the lines of a file's start. Raises EOFError where the start ends before the file."""
    left = LONGEST_START
    while line := file.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise EOFError(f"The first line has more than {LONGEST_START:,} characters.")
        yield line
