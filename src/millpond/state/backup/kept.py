"""The directory of backups of one store.

    BACKUP        what the directory is, and of which store: its incarnation
    LOCK          held by the process that makes a backup
    journal/      snapshots and records, in files as a store's journal has them, never appended to
    segments/ rejects/ relations/ inbox/    the store's files, which never change
    checkpoints/  for each backup a tar file of what Structured Streaming remembers
    kept/         for each backup a JSON file, written last: only then there is that backup

A backup is named by the number of the last record it has. What lies behind the last one is what a
backup left that was killed; the next backup removes or uses it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import xxhash

from millpond.errors import MillpondError
from millpond.model.owner_only import (
    create_owner_only,
    make_directory,
    open_owner_only,
    write_owner_only,
)
from millpond.state.arrow_file import sync_directory, sync_file
from millpond.state.journal.fold import DIRECTORY as JOURNAL
from millpond.state.journal.journal_file import list_files
from millpond.state.journal.snapshot import list_snapshots

_FORMAT = "millpond backup 1"
KEPT, CHECKPOINTS = "kept", "checkpoints"

#: The directories of files that cannot be computed again.
FILES = ("segments", "rejects", "relations", "inbox")


@dataclass(frozen=True, order=True)
class Kept:
    """One backup.

    Attributes:
        record: The number of the last record of the journal that it has.
        epoch: The last epoch that it has.
        committed_at: When that epoch was committed, in microseconds since 1970.
        taken_at: When the backup was begun.
        files: How many files of elements, rejects, relations and pushes it needs.
        bytes: Their length.
        new_bytes: The length of those that were added for it.
    """

    record: int
    epoch: int
    committed_at: int
    taken_at: int
    files: int
    bytes: int
    new_bytes: int


def list_kept(backup: Path) -> list[Kept]:
    """List the backups in a directory, the oldest first."""
    found = []
    for file in (backup / KEPT).glob("*.json"):
        found.append(Kept(**json.loads(file.read_text())))
    return sorted(found)


def write_kept(backup: Path, kept: Kept) -> None:
    """Write down that a backup is whole; everything it needs is durable."""
    file = backup / KEPT / f"{kept.record:012d}.json"
    temporary = file.with_suffix(".tmp")
    write_owner_only(temporary, json.dumps(asdict(kept)).encode())
    sync_file(temporary)
    os.replace(temporary, file)
    sync_directory(file.parent)


def checkpoints_file(backup: Path, record: int) -> Path:
    """Return the path of the checkpoints of one backup."""
    return backup / CHECKPOINTS / f"{record:012d}.tar"


def read_incarnation(backup: Path) -> str:
    """Read which store a directory has the backups of.

    Raises:
        MillpondError: STORE-604, it is no directory of backups.
    """
    with suppress(OSError, ValueError):
        format, incarnation, *_ = (backup / "BACKUP").read_text().splitlines()
        if format == _FORMAT:
            return incarnation
    raise MillpondError(
        "STORE-604",
        f'"{backup}" is not a directory of backups',
        detail=f"It has no file BACKUP that says {_FORMAT!r}.",
        hint="Name the directory that `millpond backup` wrote to.",
    )


@contextmanager
def writing(backup: Path, incarnation: str) -> Iterator[None]:
    """Lock a directory of backups, and remove what a killed backup left; make it if it is not.

    Raises:
        MillpondError: STORE-604, it is something else, or of another store; STORE-601, another
            process makes a backup there.
    """
    if backup.exists() and (not backup.is_dir() or _is_strange(backup)):
        raise MillpondError(
            "STORE-604",
            f'the directory "{backup}" is not empty, and has no backups',
            hint="Name a new or empty directory, or one that has backups of this store.",
        )
    make_directory(backup)
    lock = open_owner_only(backup / "LOCK", os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise MillpondError(
                "STORE-601",
                f'another backup is being written to "{backup}"',
                hint="Wait until it is done.",
            ) from error
        if not (backup / "BACKUP").exists():
            temporary = backup / ".BACKUP.tmp"
            write_owner_only(temporary, f"{_FORMAT}\n{incarnation}\n".encode())
            sync_file(temporary)
            temporary.rename(backup / "BACKUP")
        elif read_incarnation(backup) != incarnation:
            raise MillpondError(
                "STORE-604",
                f'the backups in "{backup}" are of another store',
                detail=f"They are of store {read_incarnation(backup)}, and this is store "
                f"{incarnation}: a store that was restored or repaired is another one.",
                hint="Name a new directory.",
            )
        for name in (JOURNAL, KEPT, CHECKPOINTS, *FILES):
            make_directory(backup / name)
        _remove_unfinished(backup)
        yield
    finally:
        os.close(lock)


def _is_strange(backup: Path) -> bool:
    if (backup / "BACKUP").exists():
        return False
    return any(entry.name not in ("LOCK", ".BACKUP.tmp") for entry in backup.iterdir())


def _remove_unfinished(backup: Path) -> None:
    """Remove the journal behind the last backup, and files that were not finished.

    Files of elements stay: those that the next backup needs are there already.
    """
    last = max((kept.record for kept in list_kept(backup)), default=0)
    for first, path in list_files(backup / JOURNAL):
        if first > last:
            path.unlink()
    for snapshot in list_snapshots(backup / JOURNAL):
        if snapshot.number > last:
            snapshot.path.unlink()
    for name in (JOURNAL, KEPT, CHECKPOINTS, *FILES):
        for path in (backup / name).glob(".*.part"):
            path.unlink()


def put_file(source: Path, to: Path, link: bool) -> tuple[int, str | None]:
    """Put a file that never changes at another place, by a link or as a copy that is durable.

    Returns:
        How many bytes it has, and their checksum if they were read.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if link:
        try:
            os.link(source, to)
            return to.stat().st_size, None
        except FileNotFoundError:
            raise
        except OSError:
            pass  # another file system, or one without links
    temporary = to.with_name(f".{to.name}.part")
    found, length = xxhash.xxh3_64(), 0
    with open(source, "rb") as read:
        create_owner_only(temporary)
        with open(temporary, "wb") as write:
            while block := read.read(1 << 20):
                write.write(block)
                found.update(block)
                length += len(block)
            write.flush()
            os.fsync(write.fileno())
    os.rename(temporary, to)
    return length, str(found.hexdigest())
