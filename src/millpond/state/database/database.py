"""The store's one SQLite connection; a committed transaction survives any crash.

Every transaction is first written to the journal as a record, which makes it durable. Then SQLite
commits it, which makes it readable. SQLite waits for no disk, because opening a store makes the
database anew from the journal (`journal/fold.py`).

SQLite allows one writer. The epoch log and the inbox share this connection and its lock, so that
they wait for each other at the lock, in turn, and not in SQLite's sleeping busy handler.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from millpond.errors import MillpondError
from millpond.model.owner_only import create_owner_only, make_directory
from millpond.state.arrow_file import sync_directory, translate_write_errors
from millpond.state.database_tables import fold_row
from millpond.state.fail_points import reach
from millpond.state.journal.fold import (
    DIRECTORY,
    cut_torn_end,
    fold_journal,
    read_fold,
    read_journal,
)
from millpond.state.journal.journal import Journal
from millpond.state.journal.journal_file import list_files
from millpond.state.journal.last_record import NAME as LAST
from millpond.state.journal.last_record import read_last_record
from millpond.state.journal.record import EncodedStatements, Statement
from millpond.state.journal.snapshot import TEMPORARY, list_snapshots, take_snapshot
from millpond.state.shared.shared_journal import SharedJournal
from millpond.state.shared.shared_store import SharedStore

#: A snapshot is due when the journal has grown by so much, and by this share of the last snapshot.
_SNAPSHOT_BYTES, _SNAPSHOT_SHARE = 16 << 20, 0.5

#: SQLite gives back the memory of its cache behind a transaction of more rows than this.
_MANY_ROWS = 50_000

#: A statement that inserts a row and does no more, with its values; so many rows are inserted by
#: one statement.
_VALUES, _TOGETHER = re.compile(r"INSERT .* VALUES (\([?, ]+\))"), 50

#: How many snapshots are kept: should the newest be damaged, the one before it serves.
_SNAPSHOTS = 2

REPAIR_HINT = (
    "`millpond check STORE` lists what is damaged; `millpond repair STORE --to NEW` makes a new "
    "store of what is whole."
)


class NotedStatements:
    """Notes the statements of a transaction that begins later."""

    def __init__(self) -> None:
        self._statements: list[Statement] = []

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Note a statement that changes rows."""
        self._statements.append((sql, [parameters]))

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Note a statement, to be executed once for each row of parameters."""
        if given := list(rows):
            self._statements.append((sql, given))

    def encode(self) -> EncodedStatements:
        """Encode what was noted as the journal has it."""
        return EncodedStatements.of(self._statements)


class Transaction(NotedStatements):
    """One transaction: executes each statement at once and notes it for the journal's record."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection
        self._whole: EncodedStatements | None = None

    @property
    def is_large(self) -> bool:
        """Whether so many rows were written that SQLite's cache is full of them."""
        if self._whole is None:
            return False
        return sum(len(rows) for _, rows in self._whole.statements) > _MANY_ROWS

    @property
    def statements(self) -> Iterable[Statement]:
        """What the journal's record has."""
        return self._statements if self._whole is None else self._whole

    def execute_whole(self, encoded: EncodedStatements) -> None:
        """Execute all statements of the transaction, whose record is encoded already."""
        assert not self._statements
        self._whole = encoded
        for sql, rows in encoded.statements:
            self._execute_rows(sql, rows)

    def _execute_rows(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once for each row; insert some rows at a time, where it only inserts.

        At each statement SQLite lets other threads of Python run. So a hundred thousand statements
        take seconds while others compute, and whoever needs the database waits for all of them.
        """
        values = _VALUES.fullmatch(sql)
        whole = 0 if values is None else len(rows) - len(rows) % _TOGETHER
        if values is not None and whole:
            self._connection.executemany(
                sql + f", {values[1]}" * (_TOGETHER - 1),
                (
                    [value for row in rows[at : at + _TOGETHER] for value in row]
                    for at in range(0, whole, _TOGETHER)
                ),
            )
        self._connection.executemany(sql, rows[whole:])

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Execute a statement that changes rows."""
        self._connection.execute(sql, parameters)
        super().execute(sql, parameters)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement once for each row of parameters."""
        given = list(rows)
        self._connection.executemany(sql, given)
        super().executemany(sql, given)


class Database:
    """`pond.db`, open for writing by this process alone (the store's lock sees to that)."""

    def __init__(self, path: Path, shared: SharedStore | None = None) -> None:
        """Make the database from the journal beside it, or from a shared log, and open it.

        Args:
            path: The database's file.
            shared: The shared store that this process is to lead; None for one of its own.

        Raises:
            MillpondError: STORE-602, the journal is damaged, or the journal or the database is
                missing; nothing was changed. STORE-603, the database cannot be written.
        """
        self.path = path
        #: Held for the length of a transaction, and by reads that must not see half of one.
        self.lock = threading.RLock()
        #: Damage that was found and loses nothing.
        self.problems: list[MillpondError] = []
        self._directory = path.parent / DIRECTORY
        self._journal: Journal | SharedJournal
        try:
            with translate_write_errors(path):
                if shared is None:
                    self._journal, self._since_snapshot = self._open_journal()
                else:
                    make_directory(self._directory)
                    self._journal, self._since_snapshot = shared.lead(path)
                create_owner_only(path)  # SQLite's other files take its permissions
                self._connection = sqlite3.connect(
                    path, isolation_level=None, check_same_thread=False
                )
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = OFF")
                self._connection.execute("PRAGMA cache_size = -16000")
        except sqlite3.Error as error:
            raise _explain_error(error, path) from error
        self._journal.note_committed()
        self._broken = False
        self._changed: MillpondError | None = None
        snapshots = list_snapshots(self._directory)
        self._snapshot_bytes = snapshots[-1].path.stat().st_size if snapshots else 0

    def _open_journal(self) -> tuple[Journal, int]:
        """Make the database from the journal; return the journal and the bytes that were folded."""
        store = self.path.parent
        make_directory(self._directory)
        (self._directory / TEMPORARY).unlink(missing_ok=True)
        if is_new(store):
            for _, file in list_files(self._directory):
                file.unlink()
            (store / LAST).unlink(missing_ok=True)
            incarnation = secrets.token_hex(3)
            Journal(self._directory, incarnation, 0).close()
        elif not self.path.exists() or not self.path.stat().st_size:
            raise MillpondError(
                "STORE-602",
                f'the store\'s database "{self.path}" is missing',
                detail="The store has files of data, so it is not a new one; nothing was touched.",
                hint="`millpond repair STORE --to NEW` makes the database again from the journal.",
            )
        number = database_number(self.path)
        state = read_journal(store, number)
        if state.damage:
            file, why = state.damage[0]
            raise MillpondError(
                "STORE-602",
                f'the store\'s journal "{file}" is damaged or missing',
                detail=f"{why} Opening the store would lose acknowledged changes.",
                hint=REPAIR_HINT,
            )
        if number is None and self.path.exists() and not _is_older(self.path):
            note = "It was damaged, and was made again from the journal; nothing is lost."
            self.problems.append(_damage(self.path, note))
        self.problems += [_damage(file, why) for file, why in state.notes]
        cut_torn_end(state)
        made = self.path.with_name(".pond.db.tmp")
        fold_journal(state, made)
        for suffix in ("-wal", "-shm", "-journal"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        os.replace(made, self.path)
        sync_directory(store)
        assert state.incarnation is not None
        journal = Journal(self._directory, state.incarnation, state.number)
        return journal, sum(file.length for file in state.files)

    @property
    def incarnation(self) -> str:
        """The name of this store until a repair loses something of it."""
        return self._journal.incarnation

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Run the block as one durable transaction: commit at its end, roll back if it raises.

        Raises:
            MillpondError: STORE-603, the journal or the database cannot be written; STORE-602, the
                database is corrupt.
        """
        with self.lock:
            try:
                self.check_usable()
                self._check_journal()
                mark = self._journal.mark()
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    transaction = Transaction(self._connection)
                    yield transaction
                    self._connection.execute(
                        "UPDATE fold SET incarnation = ?, number = ?, proof = ?",
                        fold_row(self.incarnation, self._journal.number + 1),
                    )
                    self._journal.append(transaction.statements)
                    self._connection.execute("COMMIT")
                    self._journal.note_committed()
                    if transaction.is_large:
                        self._connection.execute("PRAGMA shrink_memory")
                except BaseException:
                    self._undo(mark)
                    raise
            except sqlite3.Error as error:
                raise _explain_error(error, self.path) from error

    def check_usable(self) -> None:
        """Check that changes can still be made.

        Raises:
            MillpondError: STORE-602, somebody else changed the journal; STORE-603, a change could
                be neither written nor taken back.
        """
        if self._changed is not None:
            raise self._changed
        if self._broken:
            raise MillpondError(
                "STORE-603",
                f'the store "{self.path.parent}" must be opened again',
                detail="A change could be neither written nor taken back.",
                hint="Free disk space or make the directory writable, and open the store again.",
            )

    @property
    def is_decided(self) -> bool:
        """Whether a change that failed will not be there when the store is opened again.

        Who removes the files of a change that failed asks this first: a record that could not be
        taken back may be read again, with the files that it names.
        """
        return not self._broken

    def _check_journal(self) -> None:
        """Check before a write that nobody has removed, cut or replaced the journal's file."""
        try:
            self._journal.check_file()
        except MillpondError as error:
            self._changed = error
            raise

    def _undo(self, mark: tuple[int, int]) -> None:
        """Take a failed transaction back, from SQLite and from the journal.

        An interrupt may come after the transaction was committed: then the transaction stays.
        """
        self._broken = True
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        found = read_fold(self._connection)
        if found is None or found[1] <= mark[0]:
            with suppress(OSError):
                self._journal.take_back(mark)
                self._broken = False
        else:
            self._broken = False

    def read(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a SELECT."""
        with self.lock:
            try:
                return self._connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise _explain_error(error, self.path) from error

    def each(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a large SELECT one by one; the caller holds the lock meanwhile."""
        try:
            yield from self._connection.execute(sql)
        except sqlite3.Error as error:
            raise _explain_error(error, self.path) from error

    def snapshot_if_due(self) -> bool:
        """Take a snapshot if the journal has grown enough, and drop the records it contains.

        Transactions go on meanwhile. Call it from one thread only.

        Returns:
            Whether a snapshot was taken.

        Raises:
            MillpondError: STORE-603, the snapshot cannot be written.
        """
        grown = self._since_snapshot + self._journal.appended
        if grown < max(_SNAPSHOT_BYTES, self._snapshot_bytes * _SNAPSHOT_SHARE):
            return False
        reach("journal.before_snapshot")
        before = self._journal.appended
        taken = take_snapshot(self.path, self._directory)
        self._journal.keep_snapshot(taken)
        reach("journal.after_snapshot")
        self._snapshot_bytes, self._since_snapshot = taken.path.stat().st_size, -before
        kept = list_snapshots(self._directory)
        for snapshot in kept[:-_SNAPSHOTS]:
            snapshot.path.unlink(missing_ok=True)
        if len(kept) >= _SNAPSHOTS:
            with self.lock:
                self._journal.drop_upto(kept[-_SNAPSHOTS].number)
        return True

    def close(self) -> None:
        """Close the connection; closing again does nothing."""
        with self.lock:
            self._connection.close()
            self._journal.close()


def is_new(store: Path) -> bool:
    """Whether a store has no changes yet: its creation may have been interrupted."""
    last = read_last_record(store)
    if list_snapshots(store / DIRECTORY) or (last is not None and last[1]):
        return False
    database = store / "pond.db"
    if database.exists() and database.stat().st_size:
        return False
    if any(file.stat().st_size > 64 for _, file in list_files(store / DIRECTORY)):
        return False
    kinds = ("segments", "rejects", "relations", "inbox")
    return not any(any((store / kind).glob("*")) for kind in kinds)


def database_number(path: Path) -> int | None:
    """Read from a database how many records it has folded; None if that cannot be read."""
    if not path.exists() or not path.stat().st_size:
        return None
    try:
        with closing(_open_to_read(path)) as database:
            found = read_fold(database)
    except sqlite3.Error:
        return None
    return None if found is None else found[1]


def _open_to_read(path: Path) -> sqlite3.Connection:
    """Open a database that nobody writes, and leave it and its write-ahead log as they are."""
    log = path.with_name(path.name + "-wal")
    how = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
    return sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)


def _is_older(path: Path) -> bool:
    """Whether a database is of format 1, which had no journal."""
    try:
        with closing(_open_to_read(path)) as database:
            version: int = database.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error:
        return False
    return version == 1


def _damage(path: Path, detail: str) -> MillpondError:
    return MillpondError("STORE-602", f'the file "{path}" of the store was damaged', detail=detail)


def _explain_error(error: sqlite3.Error, path: Path) -> Exception:
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return MillpondError("POND-410", f'the store "{path.parent}" is closed')
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return MillpondError(
            "STORE-602",
            f'the store\'s database "{path}" is corrupt',
            detail=f"SQLite says: {error}.",
            hint="Open the store again: the database is then made anew from the journal.",
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
