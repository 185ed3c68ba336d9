"""Decodes Avro values by fastavro, with a schema of a file or of a schema registry.

A value of a registry begins with a zero byte and four bytes with the number of its schema (the
Confluent wire format); a value of a file's schema is the bare encoding.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa

from millpond.engine.admission.given_rows import CORRUPT, REFUSED
from millpond.engine.admission.text_values import put_column
from millpond.errors import MillpondError
from millpond.model.schema import Schema
from millpond.runtime.kafka.client import source_error
from millpond.runtime.kafka.packages import import_fastavro
from millpond.runtime.kafka.settings import KafkaOptions

_SECONDS = 10.0
#: How many bytes of a value that cannot be decoded are kept, as hexadecimal digits.
_SHOWN = 1_000


class AvroDecoder:
    """Decodes the values of one stream."""

    def __init__(self, options: KafkaOptions, payload: Schema) -> None:
        self._options = options
        self._payload = payload
        self._fastavro = import_fastavro()
        self._schemas: dict[int, Any] = {}
        self._own = None if options.registry else read_schema(options)

    def decode(self, values: Sequence[bytes | None]) -> pa.Table:
        """Decode values into the columns; a record without a value gives NULLs."""
        rows: list[dict[str, Any]] = []
        refused: list[str | None] = [None] * len(values)
        corrupt: list[str | None] = [None] * len(values)
        for place, value in enumerate(values):
            try:
                row = {} if value is None else self._decode_one(value)
                rows.append({str(name).lower(): member for name, member in row.items()})
            except MillpondError:
                raise
            except Exception as error:  # fastavro raises whatever damaged bytes lead to
                rows.append({})
                reason = str(error) or type(error).__name__
                refused[place] = f"the record is not Avro of its schema: {reason[:200]}"
                corrupt[place] = (value or b"")[:_SHOWN].hex()
        columns: dict[str, pa.Array] = {}
        for f in self._payload.fields:
            put_column(columns, f.name, [row.get(f.name.lower()) for row in rows], corrupt)
        if any(text is not None for text in corrupt):
            columns[CORRUPT] = pa.array(corrupt, pa.string())
        if any(reason is not None for reason in refused):
            columns[REFUSED] = pa.array(refused, pa.string())
        return pa.table(columns or {CORRUPT: pa.nulls(len(values), pa.string())})

    def _decode_one(self, value: bytes) -> dict[str, Any]:
        schema, body = self._own, io.BytesIO(value)
        if schema is None:
            if len(value) < 5 or value[0] != 0:
                raise ValueError("it does not begin with the number of a schema")
            number = struct.unpack(">I", value[1:5])[0]
            if number not in self._schemas:
                self._schemas[number] = fetch_schema(self._options, number)
            schema = self._schemas[number]
            body.seek(5)
        row = self._fastavro.schemaless_reader(body, schema)
        if body.tell() != len(value):
            raise ValueError("bytes are left over")
        if not isinstance(row, dict):
            raise ValueError("it is no record")
        return row


def check_avro(options: KafkaOptions, payload: Sequence[str]) -> None:
    """Refuse declared columns that the schema does not have, as far as it is known.

    Raises:
        MillpondError: CQL-214 for a column; DATA-502, the schema cannot be read.
    """
    if (options.schema is None) == (options.registry is None):
        raise MillpondError(
            "CQL-214",
            f'the Kafka source of "{options.stream}" needs one schema for Avro',
            hint="Give schema 'file.avsc', or registry 'http://host:8081'.",
        )
    if options.registry is not None:
        schemas = [_latest_schema(options, topic) for topic in options.topics]
    else:
        schemas = [read_schema(options)]
    for schema in schemas:
        if schema is None:
            continue  # the subject has no schema yet
        members = [f["name"] for f in schema.get("fields", ())] if isinstance(schema, dict) else []
        known = {name.lower() for name in members}
        if unknown := [name for name in payload if name.lower() not in known]:
            raise MillpondError(
                "CQL-214",
                f'the column "{unknown[0]}" of "{options.stream}" is none of the Avro schema',
                detail=f"It has {', '.join(members) or 'no fields'}.",
                hint="Declare columns by the names the schema has.",
            )


def read_schema(options: KafkaOptions) -> Any:
    """Read the schema's file."""
    try:
        schema = json.loads(Path(options.schema or "").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise source_error(options, f"The Avro schema cannot be read: {error}") from None
    return _parse(options, schema, {})


def fetch_schema(options: KafkaOptions, number: int) -> Any:
    """Fetch a schema from the registry by its number.

    Raises:
        ValueError: the registry has none of this number.
        MillpondError: DATA-502, it does not answer, or the schema cannot be used.
    """
    schema = _fetch(options, f"schemas/ids/{number}", {})
    if schema is None:
        raise ValueError(f"the registry has no schema {number}")
    return schema


def _latest_schema(options: KafkaOptions, topic: str) -> Any | None:
    return _fetch(options, f"subjects/{topic}-value/versions/latest", {})


def _fetch(options: KafkaOptions, path: str, named: dict[str, Any]) -> Any | None:
    """Fetch a schema, after those that it refers to, whose types `named` takes; None for none."""
    answer = _get(options, path)
    if answer.status_code == 404:
        return None
    schema, references = _schema_in(options, answer)
    for subject, version in references:
        if _fetch(options, f"subjects/{quote(subject, '')}/versions/{version}", named) is None:
            missing = f'The registry has no version {version} of "{subject}", which a schema names.'
            raise source_error(options, missing)
    return _parse(options, schema, named)


def _parse(options: KafkaOptions, schema: Any, named: dict[str, Any]) -> Any:
    try:
        return import_fastavro().parse_schema(schema, named_schemas=named)
    except MillpondError:
        raise
    except Exception as error:  # fastavro's errors have no base of their own
        raise source_error(options, f"The Avro schema is wrong: {error}") from None


def _get(options: KafkaOptions, path: str) -> httpx.Response:
    url = f"{(options.registry or '').rstrip('/')}/{path}"
    try:
        return httpx.get(url, timeout=_SECONDS, auth=options.registry_login())
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise source_error(options, f"The schema registry does not answer: {error}") from None


def _schema_in(options: KafkaOptions, answer: httpx.Response) -> tuple[Any, list[tuple[str, int]]]:
    """The schema of an answer, and the subjects and versions that it refers to."""
    try:
        answer.raise_for_status()
        given = answer.json()
        if given.get("schemaType", "AVRO") != "AVRO":
            raise ValueError(f"its type is {given['schemaType']}")
        references = [(str(r["subject"]), int(r["version"])) for r in given.get("references") or ()]
        return json.loads(given["schema"]), references
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise source_error(options, f"The registry's schema cannot be read: {error}") from None
