"""Snapshots: checked copies of the database, to which the later records of the journal are added.

A snapshot is a SQLite file with all changes up to one record of the journal. Its name gives the
record's number and the xxh3_64 of its bytes: `000000000042-8f3a…e1.db`. The file gets its name
after it is durable, so a file of that name with those bytes is whole.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import xxhash

from millpond.model.owner_only import create_owner_only
from millpond.state.arrow_file import sync_directory, sync_file, translate_write_errors

_NAME = re.compile(r"(\d{12})-([0-9a-f]{16})\.db")

#: The name under which a snapshot is written.
TEMPORARY = ".snapshot.tmp"


@dataclass(frozen=True, order=True)
class Snapshot:
    """A snapshot: the last record it holds, the checksum it was written with, and where it is."""

    number: int
    checksum: str
    path: Path

    def is_whole(self) -> bool:
        """Whether the file's bytes have the checksum they were written with."""
        return checksum_of(self.path) == self.checksum


def list_snapshots(directory: Path) -> list[Snapshot]:
    """List the snapshots in the journal's directory, the oldest first, without reading them."""
    if not directory.is_dir():
        return []
    found = [(m, path) for path in directory.iterdir() if (m := _NAME.fullmatch(path.name))]
    return sorted(Snapshot(int(match[1]), match[2], path) for match, path in found)


def checksum_of(path: Path) -> str:
    """Compute the xxh3_64 of a file, in hex."""
    found = xxhash.xxh3_64()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return str(found.hexdigest())


def take_snapshot(database: Path, directory: Path) -> Snapshot:
    """Copy a database, which may be written to meanwhile, as a snapshot.

    Raises:
        MillpondError: STORE-603, the snapshot cannot be written.
    """
    temporary = directory / TEMPORARY
    with translate_write_errors(temporary):
        temporary.unlink(missing_ok=True)
        try:
            number = copy_database(database, temporary)
            sync_file(temporary)
            checksum = checksum_of(temporary)
            path = directory / f"{number:012d}-{checksum}.db"
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_directory(directory)
    return Snapshot(number, checksum, path)


def copy_database(database: Path, to: Path) -> int:
    """Copy a database as of the end of some transaction; return the last record it has folded."""
    create_owner_only(to)
    try:
        with (
            closing(sqlite3.connect(database)) as source,
            closing(sqlite3.connect(to)) as target,
        ):
            target.execute("PRAGMA synchronous = OFF")
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
            number: int = target.execute("SELECT number FROM fold").fetchone()[0]
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            raise OSError(28, "No space left on device") from error
        raise
    return number
