"""A record of the shared log: a journal record, and who wrote it, as one object.

    millpond record 1 <term> <driver>\\n
    a record of the journal (`journal/record.py`), whose checksum covers term and driver, too

The driver's name is drawn anew by every process, so two drivers never make equal bytes, and one
that got no answer finds out by reading whether it was its own record that took the number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from millpond.state.journal.record import HEAD_BYTES, Statement, encode_record, read_record
from millpond.state.shared.place import SharedPlace

PREFIX = "log/"
_KEY = re.compile(r"log/\d{12}")
_HEAD = re.compile(rb"millpond record 1 (\d{1,18}) ([0-9a-f]{16})\n")


@dataclass(frozen=True)
class SharedRecord:
    """A record that was read.

    Attributes:
        number: Its place in the log.
        term: How many drivers had led, with the one that wrote it.
        driver: The name of the process that wrote it.
        body: The statements, encoded (`record.decode_body`).
    """

    number: int
    term: int
    driver: str
    body: memoryview


def key_of(number: int) -> str:
    """Return the key of a record."""
    return f"{PREFIX}{number:012d}"


def list_records(place: SharedPlace, from_number: int = 0) -> list[str]:
    """List the keys of the records from a number on, ascending; what is no record is passed over.

    Raises:
        PlaceError: the storage gave no answer.
    """
    after = key_of(from_number - 1) if from_number else ""
    return [key for key in place.list_keys(PREFIX, after) if _KEY.fullmatch(key)]


def number_of(key: str) -> int:
    """Return the number of the record with that key.

    >>> number_of(key_of(7))
    7
    """
    return int(key.removeprefix(PREFIX))


def encode_shared(
    incarnation: str, number: int, term: int, driver: str, statements: Iterable[Statement]
) -> bytes:
    """Encode a record as the bytes of its object."""
    head = f"millpond record 1 {term} {driver}\n".encode()
    return head + encode_record(_name(incarnation, term, driver), number, statements)


def decode_shared(incarnation: str, number: int, data: bytes) -> SharedRecord | None:
    """Decode a record and check it; None if the bytes are not those of this record."""
    head = _HEAD.match(data)
    if head is None:
        return None
    term, driver = int(head[1]), head[2].decode()
    found = read_record(memoryview(data), head.end(), _name(incarnation, term, driver))
    if found is None or found[0] != number:
        return None
    if head.end() + HEAD_BYTES + len(found[1]) != len(data):
        return None
    return SharedRecord(number, term, driver, found[1])


def _name(incarnation: str, term: int, driver: str) -> str:
    return f"{incarnation} {term} {driver}"
