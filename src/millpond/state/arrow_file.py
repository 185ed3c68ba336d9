"""Arrow files: written once, durable before anything refers to them, then memory-mapped.

A writer writes the file under a temporary name, syncs it, gives it its name and syncs the
directory. The epoch log, which refers to the file, keeps its checksum; a process verifies the
checksum when it first opens the file. Tables are opened without copying: they live in the page
cache, which all processes of the machine share.
"""

from __future__ import annotations

import errno
import io
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import xxhash

from millpond.errors import MillpondError
from millpond.model.owner_only import make_directory, open_owner_only
from millpond.state.disk_floor import check_room
from millpond.state.fail_points import reach
from millpond.state.file_share import fetch, publish, share_of

#: How many tables stay open; each costs address space and a few kilobytes.
_OPEN_TABLES = 1024

#: How many files of one `write_together` are synced at a time.
_SYNCERS = 16

#: What the operating system says when a directory was removed, or its file system taken away.
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.ENOTCONN}
_UNWRITABLE = _GONE | {
    errno.ENAMETOOLONG,
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG,
}  # fmt: skip


#: Makes record batches, and hands each one over as it is made.
MakePieces = Callable[[Callable[[pa.RecordBatch], None]], object]


@dataclass(frozen=True)
class FileMeta:
    """A file that was written: its path, its length, and the xxh3_64 of its bytes in hex."""

    path: Path
    rows: int
    bytes: int
    checksum: str


class _ChecksummedFile(io.RawIOBase):
    """A file descriptor that hashes what is written to it, so that it is read only once."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._hash = xxhash.xxh3_64()
        self.length = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._hash.update(view)
        self.length += len(view)
        rest = view
        while len(rest):
            rest = rest[os.write(self._descriptor, rest) :]
        return len(view)

    def hexdigest(self) -> str:
        return str(self._hash.hexdigest())


def write_arrow(
    path: str | Path, table: pa.Table, sync: bool = True, whole: bool = True
) -> FileMeta:
    """Write a table as an Arrow IPC file.

    Args:
        path: The file's path, which must be new, in a directory that exists.
        table: Any table.
        sync: Whether the file must survive a loss of power. Caches need not.
        whole: Whether to write the table as one record batch. Otherwise each chunk becomes one
            record batch and nothing is copied.

    Raises:
        MillpondError: STORE-603, the disk is full or the directory cannot be written.
    """
    return _put(Path(path), lambda temporary: write_bytes(temporary, table, sync, whole), sync)


def write_pieces(path: str | Path, schema: pa.Schema, make: MakePieces) -> FileMeta:
    """Write an Arrow IPC file while its record batches are made; none of them is held.

    It is not synced, so it need not survive a loss of power.

    Args:
        path: The file's path, which must be new, in a directory that exists.
        schema: The schema of the record batches.
        make: Makes the record batches; it hands each one over as it is made.

    Raises:
        MillpondError: STORE-603, the disk is full or the directory cannot be written.
    """

    def write(temporary: Path) -> FileMeta:
        rows = 0
        with _open_writer(temporary, schema, sync=False) as (writer, file):

            def keep(piece: pa.RecordBatch) -> None:
                nonlocal rows
                check_room(temporary, piece.nbytes)
                writer.write_batch(piece)
                rows += piece.num_rows

            make(keep)
        return FileMeta(temporary, rows, file.length, file.hexdigest())

    return _put(Path(path), write, sync=False)


def _put(path: Path, write: Callable[[Path], FileMeta], sync: bool) -> FileMeta:
    """Write a file under another name, and give it its own."""
    temporary = path.with_name(f".{path.name}.tmp")
    with translate_write_errors(path):
        reach("file.before_write")
        meta = write(temporary)
        reach("file.before_rename")
        try:
            os.rename(temporary, path)
            if sync:
                sync_directory(path.parent)
            publish(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            raise
        reach("file.after_rename")
    return FileMeta(path, meta.rows, meta.bytes, meta.checksum)


def write_together(files: Sequence[tuple[Path, pa.Table]]) -> list[FileMeta]:
    """Write several files as `write_arrow` does: all are durable on return, or none is there.

    Writing a small file mostly waits for the disk, and a disk serves several concurrent writers in
    the time of one.

    Args:
        files: Paths in one directory, which are new, and tables.

    Raises:
        MillpondError: STORE-603, the disk is full or the directory cannot be written.
    """
    if len(files) < 2:
        return [write_arrow(path, table) for path, table in files]
    names = [(path.with_name(f".{path.name}.tmp"), path) for path, _ in files]
    try:
        with translate_write_errors(files[0][0]):
            reach("file.before_write")
            written = [
                write_bytes(temporary, table, sync=False)
                for (temporary, _), (_, table) in zip(names, files, strict=True)
            ]
            with ThreadPoolExecutor(_SYNCERS) as pool:
                list(pool.map(sync_file, [temporary for temporary, _ in names]))
                reach("file.before_rename")
                for temporary, path in names:
                    os.rename(temporary, path)
                sync_directory(files[0][0].parent)
                list(pool.map(publish, [path for _, path in names]))
            reach("file.after_rename")
    except BaseException:
        for pair in names:
            for left in pair:
                left.unlink(missing_ok=True)
        raise
    return [
        FileMeta(path, meta.rows, meta.bytes, meta.checksum)
        for (_, path), meta in zip(names, written, strict=True)
    ]


def sync_file(path: Path) -> None:
    """Make the bytes of a file durable; of a directory, the names in it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, table: pa.Table, sync: bool, whole: bool = True) -> FileMeta:
    """Write a table under a name that no reader looks for yet; remove the file on failure."""
    if whole and any(column.num_chunks > 1 for column in table.columns):
        table = table.combine_chunks()
    with _open_writer(path, table.schema, sync, table.nbytes) as (writer, file):
        writer.write_table(table)
    return FileMeta(path, table.num_rows, file.length, file.hexdigest())


@contextmanager
def _open_writer(
    path: Path, schema: pa.Schema, sync: bool, room: int = 0
) -> Iterator[tuple[pa.RecordBatchFileWriter, _ChecksummedFile]]:
    """Open a new file for record batches, of so many bytes at least; remove it on failure."""
    if share_of(path) is not None:
        make_directory(path.parent)  # the first file on another machine than the driver's
    check_room(path, room)
    descriptor = open_owner_only(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        file = _ChecksummedFile(descriptor)
        with pa.ipc.new_file(pa.PythonFile(file, "w"), schema) as writer:
            yield writer, file
        reach("file.before_sync")
        if sync:
            os.fsync(descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    sync_file(directory)


@contextmanager
def translate_write_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's error for a failed write into STORE-603."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise MillpondError(
            "STORE-603",
            f'the file "{path}" cannot be written',
            detail=f"The operating system says: {os.strerror(error.errno)}.",
            hint="The directory was removed or moved. Stop this process, and put it back."
            if error.errno in _GONE
            else "Free disk space, or make the directory writable; then it resumes where it was.",
        ) from error


class _OpenTables:
    """The tables this process has open, least recently used first, and the files it verified."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: OrderedDict[str, pa.Table] = OrderedDict()
        self._checksums: dict[str, str] = {}

    def get(self, path: str, checksum: str | None) -> pa.Table | None:
        with self._lock:
            table = self._tables.get(path)
            if table is None or (checksum is not None and self._checksums.get(path) != checksum):
                return None
            self._tables.move_to_end(path)
            return table

    def is_verified(self, path: str, checksum: str) -> bool:
        return self._checksums.get(path) == checksum

    def put(self, path: str, table: pa.Table, checksum: str | None) -> None:
        with self._lock:
            self._tables[path] = table
            self._tables.move_to_end(path)
            if checksum is not None:
                self._checksums[path] = checksum
            while len(self._tables) > _OPEN_TABLES:
                self._tables.popitem(last=False)

    def drop(self, path: str) -> None:
        with self._lock:
            self._tables.pop(path, None)
            self._checksums.pop(path, None)


_open_tables = _OpenTables()


def open_arrow(path: str | Path, checksum: str | None = None) -> pa.Table:
    """Open the table of a file, memory-mapped; no byte is copied.

    Args:
        path: A file `write_arrow` made. A path stands for the same bytes for ever, so a table that
            is already open is found by its path.
        checksum: The checksum `write_arrow` returned; compared when this process first opens the
            file.

    Raises:
        MillpondError: STORE-602, the file is missing, torn or corrupt.
    """
    key = str(path)
    table = _open_tables.get(key, checksum)
    if table is not None:
        return table
    try:
        table = _map_table(key, checksum)
    except MillpondError:
        if not fetch(Path(key)):
            raise
        table = _map_table(key, checksum)
    _open_tables.put(key, table, checksum)
    return table


def _map_table(path: str, checksum: str | None) -> pa.Table:
    try:
        # Closing gives back the descriptor; the mapping lives as long as the table's buffers.
        with pa.memory_map(path) as source:
            if checksum is not None and not _open_tables.is_verified(path, checksum):
                found = xxhash.xxh3_64(memoryview(source.read_buffer())).hexdigest()
                if found != checksum:
                    raise corrupt_file_error(path, "Its bytes are not those that were written.")
                source.seek(0)
            return pa.ipc.open_file(source).read_all()
    except FileNotFoundError as error:
        raise corrupt_file_error(path, "There is no such file.") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise corrupt_file_error(path, f"It cannot be read: {error}.") from error


def forget(path: str | Path) -> None:
    """Close a file that is about to be removed; tables in use stay readable."""
    _open_tables.drop(str(path))


def corrupt_file_error(path: str | Path, detail: str, name: str | None = None) -> MillpondError:
    """Return the error STORE-602 for a file.

    Args:
        path: Where this machine has it, or would have it.
        detail: What is wrong with it.
        name: What it is called in shared storage; None for its own name.
    """
    share = share_of(path)
    what, copy = "file", "store"
    if share is not None:
        what, copy = "object", "storage, or a version of it"
        detail = f"{detail} In the shared store it is {share.locate(Path(path), name)}."
    return MillpondError(
        "STORE-602",
        f'the file "{path}" of the store is corrupt or missing',
        detail=detail,
        hint=f"Restore the {what} from a copy of the {copy}. Everything that does not need it goes"
        " on.",
    )
