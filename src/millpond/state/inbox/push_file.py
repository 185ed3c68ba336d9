"""The files of the inbox: their names and their metadata.

A push's file is hidden (`.<number>.tmp`, which Spark does not list) until it is acknowledged, and
visible (`<number>.arrow`) from then on. Its stream, its number and the time of its arrival are in
the metadata of its schema, so that a task needs only the file.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millpond.state.arrow_file import (
    FileMeta,
    corrupt_file_error,
    translate_write_errors,
    write_bytes,
)
from millpond.state.file_share import fetch
from millpond.state.journal.snapshot import checksum_of

_STREAM_KEY = b"millpond.stream_id"
_NUMBER_KEY = b"millpond.number"
_ARRIVED_KEY = b"millpond.arrived_at"
_HIDDEN = re.compile(r"\.(\d{12,})\.tmp")
_VISIBLE = re.compile(r"(\d{12,})\.arrow")
_SHARED = re.compile(r"(\d{12,})-(\w+)\.arrow")


@dataclass(frozen=True)
class PushedRows:
    """The rows of a push, and the metadata of its file."""

    number: int
    stream_id: int
    arrived_at: int
    table: pa.Table


def hidden_path(directory: Path, number: int) -> Path:
    """Return the path of a push before it is acknowledged."""
    return directory / f".{number:012d}.tmp"


def visible_path(directory: Path, number: int) -> Path:
    """Return the path of a push once it is acknowledged."""
    return directory / f"{number:012d}.arrow"


def shared_name(number: int, checksum: str) -> str:
    """Return what a push's file is called in shared storage: two drivers may use one number."""
    return f"{number:012d}-{checksum}.arrow"


def torn_path(directory: Path, number: int) -> Path:
    """Return the path to which a push's file is moved if it is found torn."""
    return directory / f".{number:012d}.torn"


def number_of(name: str) -> int:
    """Return the number of the push whose file has that name, here or in shared storage.

    >>> number_of(visible_path(Path("inbox"), 7).name), number_of(shared_name(7, "a0"))
    (7, 7)
    """
    match = _VISIBLE.fullmatch(name) or _SHARED.fullmatch(name)
    assert match, name
    return int(match[1])


def numbers_in(directory: Path) -> tuple[set[int], set[int]]:
    """List the numbers of the hidden and of the visible pushes in a directory."""
    hidden, visible = set(), set()
    for file in directory.iterdir():
        if match := _HIDDEN.fullmatch(file.name):
            hidden.add(int(match[1]))
        elif match := _VISIBLE.fullmatch(file.name):
            visible.add(int(match[1]))
    return hidden, visible


def write_hidden(directory: Path, pushed: PushedRows) -> FileMeta:
    """Write a push's hidden file and sync it; the commit of its group syncs the directory.

    Raises:
        MillpondError: STORE-603, the file cannot be written.
    """
    metadata = {
        **(pushed.table.schema.metadata or {}),
        _STREAM_KEY: str(pushed.stream_id).encode(),
        _NUMBER_KEY: str(pushed.number).encode(),
        _ARRIVED_KEY: str(pushed.arrived_at).encode(),
    }
    path = hidden_path(directory, pushed.number)
    with translate_write_errors(path):
        return write_bytes(path, pushed.table.replace_schema_metadata(metadata), sync=True)


def open_push(directory: Path, name: str) -> PushedRows:
    """Read a push by its file's name, here or in shared storage.

    Raises:
        MillpondError: STORE-602, the file is not there, or not what was acknowledged; STORE-603,
            the shared storage gives no answer.
    """
    own = visible_path(directory, number_of(name))
    if not (shared := _SHARED.fullmatch(name)):
        try:
            return read_push(own)
        except FileNotFoundError as error:
            raise corrupt_file_error(own, "There is no such file.") from error
        except (pa.ArrowException, KeyError, TypeError) as error:
            raise corrupt_file_error(own, f"It cannot be read: {error}.") from error
    file = directory / f".{uuid.uuid4().hex}.fetched"
    if not fetch(file, name):
        raise corrupt_file_error(own, "There is no such object.", name)
    try:
        if checksum_of(file) != shared[2]:
            raise corrupt_file_error(own, "Its bytes are not those that were acknowledged.", name)
        return read_push(file)
    finally:
        file.unlink()  # it stays mapped


def read_push(path: Path) -> PushedRows:
    """Read the rows of an inbox file, which stays mapped as long as the rows are used.

    Raises:
        FileNotFoundError: the file is not there.
        pyarrow.ArrowInvalid: the file is not an Arrow file.
    """
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    metadata = table.schema.metadata
    return PushedRows(
        number=int(metadata[_NUMBER_KEY]),
        stream_id=int(metadata[_STREAM_KEY]),
        arrived_at=int(metadata[_ARRIVED_KEY]),
        table=table,
    )
