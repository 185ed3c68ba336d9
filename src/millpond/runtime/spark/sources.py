"""Sources: a stream's USING clause as a Spark DataFrame whose rows carry their place of origin.

Text formats are read as text, so that casting and judging are admission's and mean what DuckDB
says. File sources carry the file and the offset of the split a row came from, which is what makes
arrival order a function of the files and not of how Spark packs them into tasks.
"""

from __future__ import annotations

from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.engine.ingress import CORRUPT
from millpond.errors import MillpondError

FILE_FORMATS = ("csv", "json", "parquet", "orc", "text")
_TEXT_FORMATS = ("csv", "json")

#: The columns of Spark's listing of files; what is not selected is not read.
FILES = "path string, modificationTime timestamp, length bigint, content binary"
#: Options a source may have whose files tasks read themselves.
_DIRECT_OPTIONS = frozenset(
    (
        "path",
        "maxfilespertrigger",
        "maxbytespertrigger",
        "maxfileage",
        "latestfirst",
        "pathglobfilter",
        "recursivefilelookup",
        "cleansource",
        "sourcearchivedir",
    )
)

#: Columns of a file source's rows: which file, and where the split in it starts.
FILE, BLOCK = "__file", "__block"


def check_source(definition: StreamDef | RelationDef) -> None:
    """Raise DATA-502 or CQL-214 for a source that clearly cannot be read."""
    source = definition.source
    assert source is not None
    if source.format in FILE_FORMATS:
        path = source.options.get("path")
        if not path:
            raise MillpondError(
                "CQL-214",
                f'the {source.format} source of "{definition.name}" has no path',
                hint=f"USING {source.format} OPTIONS (path '…')",
                text=definition.text,
            )
        if "://" not in path and not any(c in path for c in "*?[{") and not Path(path).exists():
            raise MillpondError(
                "DATA-502",
                f'the source of "{definition.name}" cannot be read',
                detail=f'There is no file or directory "{path}".',
                hint="Check the path; a relative one starts where the program was started.",
            )


def file_frame(
    spark: SparkSession, definition: StreamDef | RelationDef, streaming: bool
) -> DataFrame:
    """A file source's rows: the declared columns it has, as text for text formats."""
    source = definition.source
    assert source is not None
    if streaming:
        options, path = _watched(source.options)
    else:
        options = dict(source.options)
        path = options.pop("path")
    reader = spark.readStream if streaming else spark.read
    if source.format in _TEXT_FORMATS:
        names = [f.name for f in definition.schema.fields]
        if source.format == "csv":
            # A quote inside quotes is doubled, as everybody but Spark writes it.
            options.setdefault("escape", '"')
            if options.get("header", "").lower() == "true":
                names = _header(source.options, names)
                options.setdefault("enforceSchema", "false")
        fields = [StructField(n, StringType()) for n in names]
        schema = StructType([*fields, StructField(CORRUPT, StringType())])
        options.setdefault("mode", "PERMISSIVE")
        options["columnNameOfCorruptRecord"] = CORRUPT
        frame = reader.format(source.format).schema(schema).options(**options).load(path)
    else:
        schema = _parquet_schema(spark, source.format, source.options["path"], definition)
        frame = reader.format(source.format).schema(schema).options(**options).load(path)
    return frame.select(
        *[F.col(quoted(name)).alias(name.strip()) for name in frame.columns],
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.file_block_start").alias(BLOCK),
    )


def quoted(name: str) -> str:
    """A column's name in Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def is_direct(definition: StreamDef | RelationDef) -> bool:
    """Whether tasks read the source's files themselves.

    Parquet is columns, and so is everything a task does: reading it there spares turning it into
    rows and back, which costs more than matching. Spark still finds, assigns and remembers the
    files. Files that are not local, or need options of Spark's reader, go the way of all others.
    """
    source = definition.source
    return (
        source is not None
        and source.format == "parquet"
        and set(source.options) <= _DIRECT_OPTIONS
        and "://" not in source.options["path"]
        and not any(Path(source.options["path"]).glob("*=*"))
    )


def paths_frame(spark: SparkSession, stream: StreamDef) -> DataFrame:
    """The paths of a source's files, as a streaming frame."""
    assert stream.source is not None
    options, path = _watched(stream.source.options)
    reader = spark.readStream.format("binaryFile").schema(FILES)
    return reader.options(**options).load(path).select("path")


def _watched(given: dict[str, str]) -> tuple[dict[str, str], str]:
    """Options and path for Structured Streaming, which watches directories: also for one file."""
    options = dict(given)
    path = options.pop("path")
    if "://" not in path and Path(path).is_file():
        options["pathGlobFilter"] = _literal_glob(Path(path).name)
        path = str(Path(path).parent)
    return options, path


def other_frame(spark: SparkSession, stream: StreamDef) -> DataFrame:
    """A streaming source that is not files: any format Spark knows, by its options."""
    source = stream.source
    assert source is not None
    frame = spark.readStream.format(source.format).options(**source.options).load()
    names = [f.name.lower() for f in stream.schema.fields]
    known = [c.lower() for c in frame.columns]
    if not set(names) & set(known) and len(names) <= len(known):
        # None of the names is the source's own: the columns are meant in order.
        frame = frame.select(
            *[
                F.col(c).alias(f.name)
                for c, f in zip(frame.columns, stream.schema.fields, strict=False)
            ]
        )
    return frame


def unreadable(definition: StreamDef | RelationDef, error: Exception) -> MillpondError:
    """What Spark says of a source, as an error of ours."""
    if isinstance(error, MillpondError):
        return error
    if isinstance(error, Py4JJavaError):
        detail = str(error.java_exception.getMessage())
    elif isinstance(error, PySparkException):
        detail = error.getMessage() or str(error)
    else:
        detail = str(error)
    lines = [line.strip() for line in detail.split("\n") if line.strip()]
    # What a failed task says ends with the exception; what Spark itself says begins with it.
    traceback = any(line.startswith("Traceback") for line in lines)
    shown = (lines[-1] if traceback else lines[0]) if lines else type(error).__name__
    return MillpondError(
        "DATA-502",
        f'the source of "{definition.name}" cannot be read',
        detail=shown[:400],
        hint="Once the source can be read again, the stream goes on where it was.",
    )


def _literal_glob(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[{" else c for c in name)


def _header(options: dict[str, str], names: list[str]) -> list[str]:
    """The header of the first file, so that columns are found by name, in any order."""
    import csv
    import glob
    import gzip

    path = options["path"]
    if "://" in path:
        return names
    found = Path(path)
    if found.is_dir():
        files = sorted(p for p in found.iterdir() if p.is_file() and p.name[0] not in "._")
    else:
        files = sorted(Path(p) for p in glob.glob(path))
    if not files:
        return names
    opener = gzip.open if files[0].suffix == ".gz" else open
    try:
        with opener(files[0], "rt", encoding="utf-8-sig", newline="") as file:
            separator = options.get("sep", options.get("delimiter", ","))
            header = next(csv.reader(file, delimiter=separator), [])
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise MillpondError(
            "DATA-502",
            f'the header of "{files[0]}" cannot be read',
            detail=str(error),
            hint="Check the file.",
        ) from error
    # As they stand there, blanks and all: Spark holds every file's header to them.
    columns = [h if h.strip() else f"_c{i}" for i, h in enumerate(header)]
    found_names = {h.strip().lower() for h in header}
    lacking = [n for n in names if n.lower() not in found_names]
    if lacking:
        raise MillpondError(
            "DATA-502",
            f'"{files[0].name}" has no column "{lacking[0]}"',
            detail=f"Its header is {', '.join(header)}.",
            hint="Declare the columns the file has; their order does not matter.",
        )
    return columns


def _parquet_schema(
    spark: SparkSession, format: str, path: str, definition: StreamDef | RelationDef
) -> StructType:
    """The files' own types for the declared columns: casting is admission's."""
    found = spark.read.format(format).load(path).schema
    declared = {f.name.lower() for f in definition.schema.fields}
    kept = [f for f in found.fields if f.name.lower() in declared]
    if not kept:
        raise MillpondError(
            "DATA-502",
            f'the files of "{definition.name}" have none of its columns',
            detail=f"They have {', '.join(found.names)}.",
            hint="Declare columns by the names the files have.",
        )
    return StructType(kept)
