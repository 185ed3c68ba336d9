"""Sources: a stream's USING clause as a Spark DataFrame whose rows carry their place of origin.

Text formats are read as text, so that admission casts and judges the values, by DuckDB's rules.
Rows of file sources carry the file and the offset of their split. This makes the arrival order a
function of the files and not of how Spark packs them into tasks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from millpond.catalog.first_look import GOES_ON
from millpond.catalog.objects import RelationDef, StreamDef
from millpond.engine.admission.given_rows import CORRUPT
from millpond.errors import MillpondError
from millpond.model.schema import struct_type
from millpond.planner.resolve.names import did_you_mean
from millpond.runtime.delta.options import delta_options
from millpond.runtime.secrets_file import fill_in_secrets, hide_secrets
from millpond.runtime.spark.delta_source import check_table
from millpond.runtime.spark.headers import columns_by_place, has_headers, local_path, read_by_header
from millpond.runtime.spark.json_keys import keys_of
from millpond.runtime.spark.jvm.reasons import find_reason
from millpond.runtime.spark.kafka_source import check_topics
from millpond.runtime.spark.long_lines import MOST_LINE, check_lines
from millpond.runtime.spark.parquet import check_columns, no_columns_error
from millpond.runtime.spark.utf8_files import is_utf8, mark_replaced
from millpond.state.outside_files import check_ordinary, check_within

FILE_FORMATS = ("csv", "json", "parquet", "orc", "text")
_TEXT_FORMATS = ("csv", "json")

#: The columns of Spark's listing of files; Spark reads only selected columns.
FILES = "path string, modificationTime timestamp, length bigint, content binary"
#: Spark passes over files that were written so long before the newest it has seen: a week, if it is
#: told nothing. A file that is moved or unpacked keeps its time.
_ANY_AGE = "36500d"
#: The options of a source for which tasks can still read the files themselves.
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

#: Spark's message for a format it does not know.
_UNKNOWN_FORMAT = ("DATA_SOURCE_NOT_FOUND", "Failed to find the data source", "Failed to find data")

#: Columns of a file source's rows: which file, where the split in it starts, how long the file is.
FILE, BLOCK, LENGTH = "__file", "__block", "__length"


def check_source(definition: StreamDef | RelationDef) -> None:
    """Raise DATA-502 or CQL-214 for a source that clearly cannot be read."""
    source = definition.source
    assert source is not None
    if source.format != "kafka":
        fill_in_secrets(source.options)  # raises what is missing
    if source.format in FILE_FORMATS and not source.options.get("path"):
        raise MillpondError(
            "CQL-214",
            f'the {source.format} source of "{definition.name}" has no path',
            hint=f"USING {source.format} OPTIONS (path '…')",
            text=definition.text,
        )
    if away := find_absence(definition):
        raise away


def find_absence(definition: StreamDef | RelationDef) -> MillpondError | None:
    """Return DATA-502 if a source's files are local and there are none of that name."""
    source = definition.source
    if source is None or source.format not in FILE_FORMATS:
        return None
    path = source.options["path"]
    local = local_path(path)
    if local is not None:
        check_ordinary(local, f'the source of "{definition.name}",')
    if local is None or any(c in path for c in "*?[{") or local.exists():
        return None
    return MillpondError(
        "DATA-502",
        f'the source of "{definition.name}" cannot be read',
        detail=f'There is no file or directory "{path}".',
        hint="Check the path; a relative one starts where the program was started.",
    )


def look_first(spark: SparkSession, definition: StreamDef | RelationDef) -> None:
    """Look at a source for the first time, as far as it has files yet.

    Raises:
        Exception: an error of Spark or of Millpond.
    """
    assert definition.source is not None
    if definition.source.format in FILE_FORMATS:
        paths = list_paths(spark, definition)[:1]
        if is_direct(definition):
            check_columns(definition, paths)
        elif (rows := files_frame(spark, definition, paths)) is not None:
            # Spark checks some options only when it reads.
            rows.head(1)
    elif definition.source.format == "kafka":
        if isinstance(definition, RelationDef):
            raise MillpondError(
                "CQL-214",
                f'relation "{definition.name}" cannot be read from Kafka',
                hint="A topic has no end: CREATE STREAM reads it.",
            )
        check_topics(definition)
    elif definition.source.format == "delta":
        delta_options(definition)  # refuses a relation
        assert isinstance(definition, StreamDef)
        check_table(definition)
    elif isinstance(definition, StreamDef) and definition.source.format != "dataframe":
        other_frame(spark, definition)


def paths_frame(
    spark: SparkSession, definition: StreamDef | RelationDef, streaming: bool
) -> DataFrame:
    """List the paths of a source's files; a streaming query does no more than that.

    What Spark's own streaming sources read depends on more than the files: a directory that is
    still empty has no schema, all files have one header, and a file with a bracket in its name is
    read once for every file of its batch.
    """
    assert definition.source is not None
    options = {"maxfileage": _ANY_AGE} | fill_in_secrets(definition.source.options)
    path = options.pop("path")
    local = local_path(path)
    if local is not None and local.exists():
        if local.is_file() and streaming:
            # Structured Streaming watches directories: watch for this one file.
            options["pathGlobFilter"] = literal_glob(local.name)
            local = local.parent
        path = literal_glob(str(local.absolute()))
    elif local is not None and not local.is_absolute():
        # The directory a pattern is relative to may look like one too.
        path = f"{literal_glob(str(Path.cwd()))}/{path}"
    reader = (spark.readStream if streaming else spark.read).format("binaryFile").schema(FILES)
    return reader.options(**options).load(path).select("path")


def list_paths(spark: SparkSession, definition: StreamDef | RelationDef) -> list[str]:
    """List the paths of a source's files, in order, without a task: Spark's index has them."""
    index = paths_frame(spark, definition, streaming=False)._jdf.inputFiles()
    if not len(index):
        return []
    assert spark._jvm is not None
    # One call: to ask for each path by itself takes a minute for a million.
    uris = spark._jvm.scala.Predef.genericWrapArray(index).mkString("\n").split("\n")
    return sorted({_spell_as_listed(uri) for uri in uris})


def _spell_as_listed(uri: str) -> str:
    """Write an encoded URI as Spark's listings of files have it.

    >>> _spell_as_listed("file:///data/a%20b.csv"), _spell_as_listed("s3a://bucket/a%25b.csv")
    ('file:/data/a b.csv', 's3a://bucket/a%b.csv')
    """
    path = unquote(uri)
    return f"file:{path[7:]}" if path.startswith("file:///") else path


def files_frame(
    spark: SparkSession, definition: StreamDef | RelationDef, paths: Iterable[str]
) -> DataFrame | None:
    """Read files' declared columns, as text for text formats; None without files.

    Raises:
        MillpondError: DATA-502, a file does not have the declared columns.
    """
    source = definition.source
    assert source is not None
    paths = sorted(set(paths))
    if not paths:
        return None
    check_within(definition, paths)
    declared = [f.name for f in definition.schema.given]
    filled = fill_in_secrets(source.options)
    options = {k: v for k, v in filled.items() if k not in ("path", "pathglobfilter")}
    if source.format in (*_TEXT_FORMATS, "text"):
        for path in paths:
            check_lines(path, options)
    if source.format not in _TEXT_FORMATS:
        reader = spark.read.format(source.format).options(**options)
        names = [literal_glob(path) for path in paths]
        own = _own_schema(reader.load(names), definition)
        if {c.name.lower() for c in definition.schema.added} - {n.lower() for n in own.names}:
            # Spark looks into one file, which may be older than the column.
            own = _own_schema(reader.option("mergeSchema", "true").load(names), definition)
        return _with_origin(reader.schema(own).load(names))

    def read(columns: Sequence[str], group: Sequence[str]) -> DataFrame:
        schema, given = _as_text(columns, options)
        reader = spark.read.format(source.format).schema(schema).options(**given)

        def load(some: Sequence[str]) -> DataFrame:
            return _with_origin(reader.load([literal_glob(path) for path in some]), declared)

        bad = {p for p in group if source.format == "csv" and not is_utf8(p, options)}
        good = [path for path in group if path not in bad]
        if not bad:
            return load(good)
        marked = mark_replaced(load(sorted(bad)), declared)
        return marked.unionByName(load(good)) if good else marked

    if source.format == "json":
        return read_by_header(spark, definition, paths, read, keys_of)
    if source.format == "csv" and not has_headers(definition):
        return read_by_header(spark, definition, paths, read, columns_by_place)
    if not has_headers(definition):
        return read(declared, paths)
    return read_by_header(spark, definition, paths, read)


def relation_frame(spark: SparkSession, relation: RelationDef) -> DataFrame:
    """Read a relation's rows, or list the files a task reads itself, in one partition."""
    listed = paths_frame(spark, relation, streaming=False)
    if is_direct(relation):
        return listed.coalesce(1).sortWithinPartitions("path")
    paths = listed.collect()
    frame = files_frame(spark, relation, [row.path for row in paths])
    if frame is None:
        schema, _ = _as_text([f.name for f in relation.schema.given], {})
        return spark.createDataFrame([], schema).coalesce(1)
    return frame.drop(FILE, BLOCK, LENGTH).coalesce(1)


def _as_text(names: Sequence[str], given: dict[str, str]) -> tuple[StructType, dict[str, str]]:
    """Make the schema and options for text formats: values as text, bad rows as their text."""
    fields = [StructField(n, StringType()) for n in (*names, CORRUPT)]
    # A quote inside quotes is doubled; Spark's own default differs.
    options = {"escape": '"', "mode": "PERMISSIVE", **given, "columnNameOfCorruptRecord": CORRUPT}
    if given.get("encoding", given.get("charset", "")).lower().startswith(("utf-16", "utf-32")):
        # Spark looks for line ends in bytes, unless it reads a file as a whole.
        options.setdefault("multiline", "true")
    if options.get("multiline", "").lower() == "true":
        options.setdefault("maxcharspercolumn", str(MOST_LINE))
    return StructType(fields), options


def _with_origin(frame: DataFrame, declared: Sequence[str] | None = None) -> DataFrame:
    columns = frame.columns if declared is None else [*declared, CORRUPT]
    known, null = {name.lower() for name in frame.columns}, F.lit(None).cast("string")
    return frame.select(
        *[F.col(quote(c)) if c.lower() in known else null.alias(c) for c in columns],
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.file_block_start").alias(BLOCK),
        F.col("_metadata.file_size").alias(LENGTH),
    )


def quote(name: str) -> str:
    """Quote a column's name for Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def is_direct(definition: StreamDef | RelationDef, *, with_folders: bool = False) -> bool:
    """Whether tasks read the source's files themselves.

    Args:
        definition: The stream or relation.
        with_folders: Whether the tasks are told the columns that stand in the files' paths.

    Parquet files hold columns, and tasks work on columns. A task that reads the file itself need
    not turn columns into rows and back, which costs more than matching. Spark still finds, assigns
    and remembers the files. Spark reads files that are not local or need options of its reader.
    """
    source = definition.source
    if source is None or source.format != "parquet" or not set(source.options) <= _DIRECT_OPTIONS:
        return False
    if source.within is not None:
        return False  # the driver checks the paths against the directory before anything is read
    local = local_path(source.options["path"])
    return local is not None and (with_folders or not any(local.glob("*=*")))


def other_frame(spark: SparkSession, stream: StreamDef) -> DataFrame:
    """Open a streaming source that is not files: any format Spark knows, by its options.

    Raises:
        MillpondError: DATA-502, a declared column is none of the source's.
    """
    source = stream.source
    assert source is not None
    options = fill_in_secrets(source.options)
    frame = spark.readStream.format(source.format).options(**options).load()
    known = {c.lower() for c in frame.columns}
    for field in stream.schema.given:
        if field.name.lower() not in known:
            raise MillpondError(
                "DATA-502",
                f'the {source.format} source of "{stream.name}" has no column "{field.name}"',
                detail=f"It has {', '.join(frame.columns)}.",
                hint="Declare columns by the names the source has.",
            )
    return frame


def sql_type(type_: DataType) -> str:
    """Return the SQL name of a Spark type, which may be none that a column can have."""
    if isinstance(type_, ArrayType):
        return f"{sql_type(type_.elementType)}[]"
    if isinstance(type_, StructType) and type_.fields:
        return struct_type((f.name, sql_type(f.dataType)) for f in type_.fields)
    name = type_.simpleString()
    return "timestamp" if name == "timestamp_ntz" else name


def fingerprint(frame: DataFrame) -> str:
    """Hash a bounded frame's rows regardless of their order; this reads the frame once."""
    row = F.xxhash64(*[F.col(quote(name)) for name in frame.columns])
    names = ",".join(f"{f.name} {f.dataType.simpleString()}" for f in frame.schema.fields)
    found = frame.agg(
        F.count("*"), F.sum(row.cast("decimal(38,0)")), F.bit_xor(row), F.lit(names)
    ).head()
    assert found is not None
    return hashlib.blake2b(repr(tuple(found)).encode(), digest_size=12).hexdigest()


def unreadable_error(
    definition: StreamDef | RelationDef, error: Exception, hint: str = GOES_ON
) -> MillpondError:
    """Turn Spark's error about a source into a Millpond error."""
    if isinstance(error, MillpondError):
        return error
    if any(words in str(error) for words in _UNKNOWN_FORMAT):
        known = ", ".join((*FILE_FORMATS, "rate"))
        hint = (
            f"Formats that are always there are {known}; for others give Spark their package, "
            "for example by spark.jars.packages."
        )
        given = definition.source.format if definition.source is not None else ""
        if given not in ("kafka", "delta"):
            hint = did_you_mean(given, (*FILE_FORMATS, "rate", "kafka", "delta")) or hint
    return MillpondError(
        "DATA-502",
        f'the source of "{definition.name}" cannot be read',
        detail=hide_secrets(find_reason(error))[:600],
        hint=hint,
    )


def literal_glob(name: str) -> str:
    """Escape a path or name into a pattern that matches nothing else."""
    return "".join(f"\\{c}" if c in "*?[]{}\\" else c for c in name)


def _own_schema(found: DataFrame, definition: StreamDef | RelationDef) -> StructType:
    """Select the declared columns with the files' own types; admission casts them."""
    declared = {f.name.lower() for f in definition.schema.given}
    kept = [f for f in found.schema.fields if f.name.lower() in declared]
    if not kept:
        raise no_columns_error(definition, found.columns)
    return StructType(kept)
