"""A journal record: the SQL statements of one transaction, with a number and a checksum.

    marker   4 bytes   finds the next record after damage
    length   uint32    of the body
    number   uint64    one more than the record before
    checksum uint64    xxh3_64 of incarnation, number and body
    body               orjson: [[sql, [[parameter, …], …]], …]

The incarnation is part of the checksum, so a record of another store (or of this store before a
repair) never passes for a record of this store.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import xxhash

MARKER = b"\x89MPJ"
_HEAD = struct.Struct("<4sIQQ")
HEAD_BYTES = _HEAD.size

#: One statement and the parameters of each of its executions.
Statement = tuple[str, Sequence[Sequence[Any]]]


@dataclass(frozen=True)
class EncodedStatements:
    """Statements with the body of the record that they will be, encoded ahead."""

    statements: Sequence[Statement]
    body: bytes

    def __iter__(self) -> Iterator[Statement]:
        return iter(self.statements)

    @staticmethod
    def of(statements: Sequence[Statement]) -> EncodedStatements:
        """Encode statements that are executed later."""
        return EncodedStatements(statements, encode_body(statements))


def encode_record(incarnation: str, number: int, statements: Iterable[Statement]) -> bytes:
    """Encode a record as bytes."""
    if isinstance(statements, EncodedStatements):
        return frame_body(incarnation, number, statements.body)
    return frame_body(incarnation, number, encode_body(statements))


def encode_body(statements: Iterable[Statement]) -> bytes:
    """Encode the statements of a record."""
    return orjson.dumps([[sql, rows] for sql, rows in statements], default=_encode_bytes)


def frame_body(incarnation: str, number: int, body: bytes | memoryview) -> bytes:
    """Encode a record whose body is encoded already."""
    checksum = _checksum(incarnation, number, body)
    return _HEAD.pack(MARKER, len(body), number, checksum) + bytes(body)


def read_record(data: memoryview, offset: int, incarnation: str) -> tuple[int, memoryview] | None:
    """Read the number and the body of the record at an offset; None if no whole record is there."""
    if offset + HEAD_BYTES > len(data):
        return None
    marker, length, number, checksum = _HEAD.unpack_from(data, offset)
    start = offset + HEAD_BYTES
    if marker != MARKER or start + length > len(data):
        return None
    body = data[start : start + length]
    return (number, body) if _checksum(incarnation, number, body) == checksum else None


def decode_body(body: bytes | memoryview) -> list[Statement]:
    """Decode the statements of a record."""
    return [(sql, [_decode_row(row) for row in rows]) for sql, rows in orjson.loads(body)]


def _checksum(incarnation: str, number: int, body: bytes | memoryview) -> int:
    found = xxhash.xxh3_64(f"{incarnation} {number} ".encode())
    found.update(body)
    return int(found.intdigest())


def _encode_bytes(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"b": base64.b64encode(value).decode()}
    raise TypeError(type(value).__name__)


def _decode_row(row: list[Any]) -> list[Any]:
    return [base64.b64decode(v["b"]) if isinstance(v, dict) else v for v in row]
