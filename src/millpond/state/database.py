"""The store's one SQLite connection; a committed transaction survives any crash.

SQLite allows one writer. The epoch log and the inbox share this connection and its lock, so that
they wait for each other here, in turn, and not in SQLite's sleeping busy handler.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millpond.errors import MillpondError
from millpond.state.database_tables import DDL, SCHEMA_VERSION


class Database:
    """`pond.db`, open for writing by this process alone (the store's lock sees to that)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Held for the length of a transaction, and around reads that must not fall into one.
        self.lock = threading.RLock()
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            version = self._prepare()
        except sqlite3.Error as error:
            raise _explain_error(error, path) from error
        if version != SCHEMA_VERSION:
            self._connection.close()
            raise MillpondError(
                "STORE-604",
                f'the store "{path.parent}" is of another version of Millpond',
                detail=f"Its tables are of version {version}; this Millpond has {SCHEMA_VERSION}.",
                hint="Open it with the Millpond that wrote it, or begin a new store.",
            )

    def _prepare(self) -> int:
        connection = self._connection
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -16000")
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if version == 0 and tables == 0:
            connection.executescript(
                f"BEGIN IMMEDIATE; {DDL} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            )
            return SCHEMA_VERSION
        return version

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One durable transaction: committed when the block ends, rolled back if it raises.

        Raises:
            MillpondError: STORE-603, it cannot be written; STORE-602, the database is corrupt.
        """
        with self.lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._connection
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise _explain_error(error, self.path) from error

    def read(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of a SELECT."""
        with self.lock:
            try:
                return self._connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise _explain_error(error, self.path) from error

    def each(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a SELECT one by one, for many; the caller holds the lock meanwhile."""
        try:
            yield from self._connection.execute(sql)
        except sqlite3.Error as error:
            raise _explain_error(error, self.path) from error

    def close(self) -> None:
        """Close the connection; closing again does nothing."""
        with self.lock:
            self._connection.close()


def _explain_error(error: sqlite3.Error, path: Path) -> Exception:
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return MillpondError("POND-410", f'the store "{path.parent}" is closed')
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return MillpondError(
            "STORE-602",
            f'the store\'s database "{path}" is corrupt',
            detail=f"SQLite says: {error}.",
            hint="Restore the store from a copy, or begin a new one.",
        )
    if name.startswith(
        ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")
    ):
        return MillpondError(
            "STORE-603",
            f'the store\'s database "{path}" cannot be written',
            detail=f"SQLite says: {error}.",
            hint="Free disk space or make the directory writable; nothing was changed.",
        )
    return error
