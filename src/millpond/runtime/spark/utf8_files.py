"""CSV files that are not UTF-8: their rows become rejects, whatever Spark makes of the bytes.

Spark turns bytes it cannot decode into U+FFFD, which is also a character a file may have. So each
file is looked through before Spark reads it. In one that is not UTF-8, U+FFFD is made a byte again
that no text has, and admission rejects the row with the reason.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millpond.runtime.spark.headers import local_path
from millpond.runtime.spark.long_lines import read_pieces

_NO_TEXT = "cast(X'FF' AS STRING)"


def is_utf8(path: str, options: Mapping[str, str]) -> bool:
    """Whether every byte of a CSV file can be decoded; True if it has another encoding.

    A file that only Spark can read or unpack counts as one that is not UTF-8, since nobody can say.
    """
    encoding = options.get("encoding", options.get("charset", "utf-8"))
    if encoding.lower() not in ("utf-8", "utf8"):
        return True
    file = local_path(path)
    if file is None or file.suffix in (".snappy", ".lz4"):
        return False
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in read_pieces(file):
            decoder.decode(piece)
        decoder.decode(b"", final=True)
    except (OSError, EOFError, ValueError, zlib.error, pa.ArrowException):
        return False
    return True


def mark_replaced(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Make text that Spark replaced invalid again, in the columns that are named."""
    replaced, invalid = F.lit("\ufffd"), F.expr(_NO_TEXT)
    columns = {name: frame["`" + name.replace("`", "``") + "`"] for name in frame.columns}
    for name in names:
        columns[name] = F.replace(columns[name], replaced, invalid).alias(name)
    return frame.select(*columns.values())
