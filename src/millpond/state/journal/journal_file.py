"""A file of the journal: a head that names the store's incarnation, then records.

Reading tells three cases apart. The file ends cleanly. The file is *torn*, as by a writer that died
in mid-write: it ends in bytes that are no whole record, with no whole record after them. The file
is *damaged*: a whole record lies after bytes that are no record, or the numbers have a gap.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import xxhash

from millpond.state.journal.record import HEAD_BYTES, MARKER, read_record

#: magic, incarnation, number of the first record, checksum of the three.
_HEAD = struct.Struct("<16s8sQQ")
FILE_HEAD_BYTES = _HEAD.size
_MAGIC = b"millpond journal"
_NAME = re.compile(r"(\d{12})\.log")


def file_name(first: int) -> str:
    """Return the name of the file whose first record has that number."""
    return f"{first:012d}.log"


def list_files(directory: Path) -> list[tuple[int, Path]]:
    """List the journal's files with the numbers of their first records, ascending."""
    if not directory.is_dir():
        return []
    found = [(m, path) for path in directory.iterdir() if (m := _NAME.fullmatch(path.name))]
    return sorted((int(match[1]), path) for match, path in found)


def encode_head(incarnation: str, first: int) -> bytes:
    """Return the first bytes of a file."""
    name = incarnation.encode()
    return _HEAD.pack(_MAGIC, name, first, _checksum(name, first))


def _checksum(name: bytes, first: int) -> int:
    return int(xxhash.xxh3_64_intdigest(name.ljust(8, b"\0") + first.to_bytes(8, "little")))


@dataclass(frozen=True)
class JournalFile:
    """The contents of a file, as reading found them.

    Attributes:
        path: The file's path.
        first: The number of its first record, by its name.
        incarnation: The incarnation in its head; None if the head is not whole.
        records: The whole records up to the end or up to bytes that are no record: (number, body).
        end: Where the last of `records` ends in the file.
        length: The file's length.
        behind: How many whole records lie after bytes that are no record.
        is_unfinished: Whether those bytes may be what a writer that died has left: the beginning of
            a record or of the file, or zeros, which are what a disk has of bytes never written.
    """

    path: Path
    first: int
    incarnation: str | None
    records: list[tuple[int, memoryview]]
    end: int
    length: int
    behind: int
    is_unfinished: bool = False

    @property
    def last(self) -> int:
        """The number of the last whole record; one less than `first` if there is no record."""
        return self.first + len(self.records) - 1

    @property
    def is_whole(self) -> bool:
        """Whether every byte belongs to the head or to a whole record."""
        return self.incarnation is not None and self.end == self.length


def read_file(path: Path, first: int, incarnation: str | None = None) -> JournalFile:
    """Read a file and check every record in it.

    Args:
        path: The file.
        first: The number of its first record, by its name.
        incarnation: The incarnation by which to look for records if the file's head is damaged.
    """
    data = memoryview(path.read_bytes())
    found = None
    if len(data) >= FILE_HEAD_BYTES:
        magic, name, begin, checksum = _HEAD.unpack_from(data)
        if (magic, begin) == (_MAGIC, first) and checksum == _checksum(name, begin):
            found = name.rstrip(b"\0").decode("ascii", "replace")
    if found is None:
        behind = sum(1 for _ in _find_records(data, 0, incarnation)) if incarnation else 0
        begun = len(data) <= FILE_HEAD_BYTES
        return JournalFile(path, first, None, [], 0, len(data), behind, begun)
    records: list[tuple[int, memoryview]] = []
    offset = FILE_HEAD_BYTES
    while (record := read_record(data, offset, found)) is not None:
        if record[0] != first + len(records):
            break
        records.append(record)
        offset += HEAD_BYTES + len(record[1])
    behind = sum(1 for _ in _find_records(data, offset, found)) if offset < len(data) else 0
    return JournalFile(
        path, first, found, records, offset, len(data), behind, _is_unfinished(data[offset:])
    )


def _is_unfinished(tail: memoryview) -> bool:
    start = bytes(tail[: len(MARKER)])
    return not tail.tobytes().strip(b"\0") or MARKER.startswith(start)


def _find_records(data: memoryview, offset: int, incarnation: str) -> Iterator[int]:
    """Yield the numbers of whole records anywhere from an offset on."""
    raw = data.obj
    assert isinstance(raw, bytes)
    while (offset := raw.find(MARKER, offset)) >= 0:
        record = read_record(data, offset, incarnation)
        if record is None:
            offset += 1
        else:
            yield record[0]
            offset += HEAD_BYTES + len(record[1])
