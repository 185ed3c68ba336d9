"""CSV files that begin with a header: each file's columns are found by its own.

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
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.errors import MillpondError

#: Endings of files Python does not unpack: Spark reads their first line.
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
    header = _header(spark, path, definition.source.options)
    if not header:
        return ()
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


def _header(spark: SparkSession, path: str, options: dict[str, str]) -> list[str]:
    """The first line that is not blank, as it stands; nothing for an empty file."""
    separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
    encoding = options.get("encoding", options.get("charset", "utf-8"))
    local = local_path(path)
    try:
        if local is None or local.suffix in PACKED:
            rows = spark.read.text(path).filter("trim(value) <> ''").head(1)
            lines: Iterable[str] = [row.value.removeprefix("\ufeff") for row in rows]
            return _first(lines, separator)
        opener = gzip.open if local.suffix == ".gz" else open
        if encoding.lower() in ("utf-8", "utf8"):
            encoding = "utf-8-sig"
        # What stands behind the header is read ahead, and is not judged here.
        with opener(local, "rt", encoding=encoding, errors="replace", newline="") as file:
            header = _first(file, separator)
        if any(c in name for name in header for c in "\ufffd\0"):
            raise UnicodeError(f"It is not text in {encoding}.")
        return header
    except (OSError, EOFError, UnicodeError, LookupError, csv.Error) as error:
        raise MillpondError(
            "DATA-502",
            f'the header of "{local or path}" cannot be read',
            detail=str(error),
            hint="Mend the file, take it away, or name its encoding: OPTIONS (encoding '…').",
        ) from error


def _first(lines: Iterable[str], separator: str) -> list[str]:
    if len(separator) == 1:
        rows: Iterable[list[str]] = csv.reader(lines, delimiter=separator)
    else:
        rows = (line.rstrip("\r\n").split(separator) for line in lines)
    for row in rows:
        if any(cell.strip() for cell in row):
            return row
    return []
