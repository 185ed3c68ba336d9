"""The columns of CSV files: each file's by its own header, or by place if it has none.

Spark reads all files of a CSV source by one list of columns, and watches directories that may still
be empty when that list has to be given. So the streaming query lists files only; each batch looks
at their headers and reads together those that have the same.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import reduce
from itertools import islice
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.errors import MillpondError

#: How many lines of a file without a header are looked at to see how many columns it has.
_LINES = 100

#: Endings of files Python does not unpack: Spark reads their first lines.
PACKED = (".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".zstd")


def has_headers(definition: StreamDef | RelationDef) -> bool:
    """Whether it is read from CSV files with headers."""
    source = definition.source
    return (
        source is not None
        and source.format == "csv"
        and source.options.get("header", "").lower() == "true"
    )


def local_path(path: str) -> Path | None:
    """The file of this machine Spark names so, or None."""
    if path.startswith("file:"):
        return Path("/" + path.removeprefix("file:").lstrip("/"))
    return None if "://" in path else Path(path)


def columns_of(
    spark: SparkSession, definition: StreamDef | RelationDef, path: str
) -> tuple[str, ...]:
    """A file's columns; a declared one has its declared name, others have one nobody uses.

    Raises:
        MillpondError: DATA-502, the header cannot be read or lacks a declared column.
    """
    assert definition.source is not None
    first = _first_rows(spark, path, definition.source.options, 1)
    if not first:
        return ()
    (header,) = first
    columns = [f"_c{i}" for i in range(len(header))]
    found = {name.strip().lower(): i for i, name in reversed(list(enumerate(header)))}
    for field in definition.schema.fields:
        place = found.get(field.name.lower())
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
    """The columns of a file without a header: the declared ones, then those nobody uses.

    Raises:
        MillpondError: DATA-502, the file cannot be read.
    """
    assert definition.source is not None
    rows = _first_rows(spark, path, definition.source.options, _LINES)
    if not rows:
        return ()
    declared = definition.schema.names
    return (*declared, *(f"_c{i}" for i in range(len(declared), max(map(len, rows)))))


def read_by_header(
    spark: SparkSession,
    definition: StreamDef | RelationDef,
    paths: Iterable[str],
    read: Callable[[tuple[str, ...], list[str]], DataFrame],
    columns_of: Callable[..., tuple[str, ...]] = columns_of,
) -> DataFrame | None:
    """Rows of all files; `read` reads those that have the same columns. None if all are empty."""
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in paths:
        groups[columns_of(spark, definition, path)].append(path)
    groups.pop((), None)
    frames = [read(columns, group) for columns, group in groups.items()]
    return reduce(DataFrame.unionByName, frames) if frames else None


def _first_rows(
    spark: SparkSession, path: str, options: dict[str, str], most: int
) -> list[list[str]]:
    """The first rows that are not blank, as they stand; none for an empty file."""
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
        # What stands behind the header is read ahead, and is not judged here.
        with opener(local, "rt", encoding=encoding, errors="replace", newline="") as file:
            found = _split_rows(file, separator, most)
        # The header names columns, so it has to be text; what is no text behind it is rejected.
        if any(c in name for name in (found[0] if found else ()) for c in "\ufffd\0"):
            raise UnicodeError(f"It is not text in {encoding}.")
        return found
    except (OSError, EOFError, UnicodeError, LookupError, csv.Error) as error:
        raise MillpondError(
            "DATA-502",
            f'the header of "{local or path}" cannot be read',
            detail=str(error),
            hint="Mend the file, take it away, or name its encoding: OPTIONS (encoding '…').",
        ) from error


def _split_rows(lines: Iterable[str], separator: str, most: int) -> list[list[str]]:
    if len(separator) == 1:
        rows: Iterable[list[str]] = csv.reader(lines, delimiter=separator)
    else:
        rows = (line.rstrip("\r\n").split(separator) for line in lines)
    return list(islice((row for row in rows if any(cell.strip() for cell in row)), most))
