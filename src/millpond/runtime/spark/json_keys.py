"""The keys of JSON files: finds columns by the spelling of the keys in each file's first rows.

Spark's JSON reader finds a key only in its exact case, while all other sources find columns in any
case. So each batch looks at the files' first rows, and reads files with equal spellings together.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from itertools import islice

from pyspark.sql import SparkSession

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.runtime.spark.headers import PACKED, local_path

#: How many rows, and how many characters, are looked at.
_ROWS, _CHARACTERS = 100, 1_000_000


def keys_of(spark: SparkSession, definition: StreamDef | RelationDef, path: str) -> tuple[str, ...]:
    """Spell the declared columns as the keys of a file's first rows do; absent keys as declared.

    A file that cannot be read here is left to Spark, which reports what is wrong with it.
    """
    assert definition.source is not None
    options = definition.source.options
    declared = [field.name for field in definition.schema.given]
    spelled: dict[str, str] = {}
    for row in _first_rows(_beginning(spark, path, options), _is_whole(options)):
        for key in row:
            spelled.setdefault(key.lower(), key)
            if key in declared:
                spelled[key.lower()] = key
    return tuple(spelled.get(name.lower(), name) for name in declared)


def _is_whole(options: dict[str, str]) -> bool:
    """Whether a file is one JSON text, and not one JSON text a line."""
    return options.get("multiline", "").lower() == "true"


def _beginning(spark: SparkSession, path: str, options: dict[str, str]) -> str:
    local = local_path(path)
    encoding = options.get("encoding", options.get("charset", "utf-8"))
    try:
        if local is None or local.suffix in PACKED:
            return "\n".join(row.value for row in spark.read.text(path).head(_ROWS))
        opener = gzip.open if local.suffix == ".gz" else open
        with opener(local, "rt", encoding=encoding, errors="replace") as file:
            return str(file.read(_CHARACTERS))
    except (OSError, EOFError, LookupError, ValueError):
        return ""


def _first_rows(text: str, is_whole: bool) -> Iterator[dict[str, object]]:
    """Yield the first objects of a text: one a line, or (if whole) one object or an array's."""
    text = text.removeprefix("\ufeff")
    found: Iterable[object] = _read_whole(text) if is_whole else map(_value, text.split("\n"))
    return (row for row in islice(found, _ROWS) if isinstance(row, dict))


def _value(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _read_whole(text: str) -> Iterator[object]:
    decoder, place = json.JSONDecoder(), 0
    while True:
        while text[place : place + 1] in (*" \t\r\n[,",):
            place += 1
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return
        yield value
