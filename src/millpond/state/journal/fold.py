"""Makes the database from the newest whole snapshot and the journal's records after it.

Opening a store never trusts the database it finds: it makes a new database file, which replaces the
old one. So no damage to the old file and no rewound write-ahead log can change an answer. Opening
reads only one thing from the old file: how many records it had folded. The file LAST says as much
(`last_record.py`). If the journal ends before either, it has lost its end, and not in a crash,
because a record is durable before the database and LAST see it.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from millpond.model.owner_only import create_owner_only
from millpond.state.database_tables import add_tables, create_tables, fold_row
from millpond.state.journal.journal_file import FILE_HEAD_BYTES, JournalFile, list_files, read_file
from millpond.state.journal.last_record import NAME as LAST
from millpond.state.journal.last_record import read_last_record
from millpond.state.journal.record import decode_body
from millpond.state.journal.snapshot import Snapshot, list_snapshots

DIRECTORY = "journal"

log = logging.getLogger("millpond.store")


@dataclass
class JournalState:
    """What the journal's directory holds, and what is wrong with it.

    Attributes:
        directory: The store's directory.
        incarnation: The store's incarnation; None if no file names one.
        snapshot: The newest whole snapshot.
        files: The files the fold needs, in order, each read and checked.
        number: The number of the last record that can be folded.
        torn: The last file, if it ends in a half-written record of a writer that died.
        damage: The damage that keeps acknowledged changes from being folded: (file, why).
        notes: The damage that loses nothing.
    """

    directory: Path
    incarnation: str | None = None
    snapshot: Snapshot | None = None
    files: list[JournalFile] = field(default_factory=list)
    number: int = 0
    torn: JournalFile | None = None
    damage: list[tuple[Path, str]] = field(default_factory=list)
    notes: list[tuple[Path, str]] = field(default_factory=list)

    def records(self) -> Iterator[tuple[int, memoryview]]:
        """Yield the records to fold after the snapshot."""
        after = self.snapshot.number if self.snapshot else 0
        for file in self.files:
            yield from (r for r in file.records if after < r[0] <= self.number)


def read_journal(store: Path, database_number: int | None, upto: int | None = None) -> JournalState:
    """Read and check the files the fold needs; change nothing.

    Args:
        store: The store's directory.
        database_number: How many records the database has folded; None if it cannot be read.
        upto: The last record to fold; None for the journal's last.
    """
    directory = store / DIRECTORY
    state = JournalState(store)
    last = read_last_record(store) if upto is None else None  # before the journal, which may grow
    limit = sys.maxsize if upto is None else upto
    for snapshot in reversed([s for s in list_snapshots(directory) if s.number <= limit]):
        if snapshot.is_whole() and (incarnation := _incarnation_in(snapshot)) is not None:
            state.snapshot, state.incarnation = snapshot, incarnation
            break
        state.notes.append((snapshot.path, "It is a damaged snapshot; an older one serves."))
    after = state.snapshot.number if state.snapshot else 0
    state.number = after
    listed = [f for f in list_files(directory) if f[0] <= max(limit, 1)]
    ends = [following - 1 for following, _ in listed[1:]] + [None]
    needed = [f for f, end in zip(listed, ends, strict=False) if end is None or end > after]
    for first, path in needed:
        is_last = path == needed[-1][1]
        file = read_file(path, first, state.incarnation)
        if first > state.number + 1:
            missing = f"Records {state.number + 1} to {first - 1} are missing."
            state.damage.append((directory, missing))
            break
        if file.incarnation is None or file.incarnation != (state.incarnation or file.incarnation):
            if is_last and not file.behind and file.length <= FILE_HEAD_BYTES:
                state.torn = file  # the writer died while it began the file
            else:
                state.damage.append((path, "It is not a file of this store's journal."))
            break
        state.incarnation = file.incarnation
        state.files.append(file)
        state.number = min(max(state.number, file.last), limit)
        if state.number == limit:
            break
        if not file.is_whole:
            if is_last and not file.behind:
                state.torn = file
                break
            lost = f"Record {file.last + 1} is damaged; {file.behind} whole ones lie behind it."
            state.damage.append((path, lost))
            break
    if not state.damage:
        # A backup may end with a snapshot.
        _check_against(state, database_number, last, bool(listed) or upto is not None)
    return state


def _check_against(
    state: JournalState,
    database_number: int | None,
    last: tuple[str, int] | None,
    has_files: bool,
) -> None:
    """Note damage if the journal ends before the database or LAST: it has lost its end."""
    directory = state.directory / DIRECTORY
    where = state.torn.path if state.torn else directory
    if database_number is not None and database_number > state.number:
        state.damage.append(
            (where, f"The database has {database_number} records, the journal {state.number}.")
        )
    elif not has_files or state.incarnation is None:
        state.damage.append((directory, "The journal is missing."))
    elif last is not None and last[0] != state.incarnation:
        state.damage.append(
            (directory, f"It is the journal of {state.incarnation}, the store is {last[0]}.")
        )
    elif last is not None and last[1] > state.number:
        state.damage.append(
            (
                where,
                f"{LAST} says that there were {last[1]} records, the journal has {state.number}.",
            )
        )


def _incarnation_in(snapshot: Snapshot) -> str | None:
    try:
        with closing(sqlite3.connect(f"file:{snapshot.path}?immutable=1", uri=True)) as database:
            found = read_fold(database)
    except sqlite3.Error:
        return None
    return found[0] if found is not None and found[1] == snapshot.number else None


def read_fold(database: sqlite3.Connection) -> tuple[str, int] | None:
    """Read the incarnation of a database and the number of the last record it has folded.

    Returns:
        None if the database has no such row, or the row is damaged.
    """
    row = database.execute("SELECT incarnation, number, proof FROM fold").fetchone()
    return row[:2] if row is not None and row == fold_row(row[0], row[1]) else None


def fold_journal(state: JournalState, to: Path) -> None:
    """Make a new database file from what `read_journal` found.

    Raises:
        sqlite3.Error: the file cannot be written.
        OSError: the file cannot be written.
    """
    to.unlink(missing_ok=True)
    create_owner_only(to)
    if state.snapshot is not None:
        shutil.copyfile(state.snapshot.path, to)
    with closing(sqlite3.connect(to, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("BEGIN")
        if state.snapshot is None:
            assert state.incarnation is not None
            create_tables(database, state.incarnation)
        add_tables(database)
        for _, body in state.records():
            apply_record(database, body)
        assert state.incarnation is not None
        database.execute("DELETE FROM fold")
        database.execute(
            "INSERT INTO fold VALUES (?, ?, ?)", fold_row(state.incarnation, state.number)
        )
        database.execute("COMMIT")


def apply_record(database: sqlite3.Connection, body: bytes | memoryview) -> None:
    """Execute the statements of one record."""
    for sql, rows in decode_body(body):
        database.executemany(sql, rows)


def cut_torn_end(state: JournalState) -> None:
    """Remove the half-written, never acknowledged record that a dead writer left at the end."""
    if state.torn is None:
        return
    log.warning(
        "%s ended in %d bytes of a change that was never acknowledged; they were cut off",
        state.torn.path,
        state.torn.length - state.torn.end,
    )
    if state.torn.incarnation is None:
        state.torn.path.unlink()
        return
    with state.torn.path.open("r+b") as file:
        file.truncate(state.torn.end)
        os.fsync(file.fileno())
