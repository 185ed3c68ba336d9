"""Checks every file of a store that no process has open, and changes nothing.

`check_store` makes the database anew from the journal, in a temporary directory, and compares it
with the store's database. It reads every file the database refers to and compares its checksum. It
unpickles nothing and writes nothing into the store.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from millpond.state.aggregate_file import DIRECTORY as DIRECTORY_OF_TOTALS
from millpond.state.aggregate_file import checksum_of_name
from millpond.state.aggregate_file import list_files as list_totals
from millpond.state.database.database import database_number
from millpond.state.inbox.push_file import hidden_path, visible_path
from millpond.state.journal.fold import (
    DIRECTORY,
    JournalState,
    fold_journal,
    read_fold,
    read_journal,
)
from millpond.state.journal.journal_file import list_files, read_file
from millpond.state.journal.snapshot import checksum_of, list_snapshots
from millpond.state.set_aside import list_set_aside
from millpond.state.store import FORMAT, lock_store, refuse_other_format
from millpond.state.version import REFERENCED

#: The queries that give the files of each part of a store: (part, SELECT).
FILES = (
    ("segments", "SELECT DISTINCT path, checksum FROM segment WHERE kind IN ('data', 'waiting')"),
    ("rejects", "SELECT path, checksum FROM segment WHERE kind IN ('rejects', 'shed')"),
    ("relations", "SELECT path, checksum FROM relation_delta"),
    ("matches", "SELECT path, checksum FROM matches"),
    ("runs", "SELECT path, checksum FROM arrangement"),
    ("pairs", "SELECT path, checksum FROM pairs"),
    (
        "summaries",
        "SELECT body ->> '$.file.path', body ->> '$.file.checksum' FROM definition"
        " WHERE kind = 'summary' AND body ->> '$.file.path' IS NOT NULL",
    ),
)


@dataclass
class Finding:
    """What a check found in one part of a store.

    Attributes:
        name: 'FORMAT', 'journal', 'database', 'segments', …
        checked: How many files, or records of the journal, were checked.
        says: The line to print if nothing is damaged.
        damage: A line for each damaged file or record.
    """

    name: str
    checked: int = 0
    says: str = ""
    damage: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What a check found."""

    store: Path
    parts: list[Finding]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged."""
        return not any(part.damage for part in self.parts)


def check_store(store: Path) -> Report:
    """Check everything in a store.

    Raises:
        MillpondError: STORE-601, another process has the store open; STORE-604, the path is not a
            directory, or the store has another format.
    """
    refuse_other_format(store)
    with lock_store(store), tempfile.TemporaryDirectory() as scratch:
        return Report(store, list(_check_parts(store, Path(scratch))))


def _check_parts(store: Path, scratch: Path) -> Iterator[Finding]:
    yield _check_format(store)
    copied = copy_aside(store, scratch)
    number = database_number(copied)
    state = read_journal(store, number)
    yield _check_journal(store, state)
    folded = scratch / "folded.db"
    if state.damage:
        yield Finding("database", damage=["It cannot be compared with the journal."])
        yield from check_files(store, copied if number is not None else None)
    else:
        fold_journal(state, folded)
        yield _compare_databases(store, copied, folded, state.number)
        yield from check_files(store, folded)
    yield _check_checkpoints(store)
    yield _list_set_aside(store)


def copy_aside(store: Path, scratch: Path) -> Path:
    """Copy the database and its write-ahead log: opening the originals would change them."""
    for name in ("pond.db", "pond.db-wal"):
        if (store / name).exists():
            shutil.copyfile(store / name, scratch / name)
    return scratch / "pond.db"


def _check_format(store: Path) -> Finding:
    file = store / "FORMAT"
    found = file.read_text(errors="replace") if file.exists() else None
    if found == FORMAT:
        return Finding("FORMAT", 1, found.strip())
    why = "It is missing." if found is None else f"It says {found.strip()!r}."
    return Finding("FORMAT", 1, damage=[f"{why} This Millpond reads {FORMAT.strip()!r}."])


def _check_journal(store: Path, state: JournalState) -> Finding:
    part = Finding("journal")
    for file, why in (*state.damage, *state.notes):
        part.damage.append(f"{file.relative_to(store)}: {why}")
    read = {file.path for file in state.files}
    part.checked = sum(len(file.records) for file in state.files)
    for first, path in list_files(store / DIRECTORY):
        if path not in read and path != (state.torn and state.torn.path) and not state.damage:
            older = read_file(path, first)  # its records are in a snapshot already
            part.checked += len(older.records)
            if not older.is_whole:
                part.damage.append(
                    f"{path.relative_to(store)}: Record {older.last + 1} is damaged."
                )
    snapshots = list_snapshots(store / DIRECTORY)
    for snapshot in snapshots[:-1]:
        if snapshot != state.snapshot and not snapshot.is_whole():
            line = f"{snapshot.path.relative_to(store)}: It is a damaged snapshot."
            if not any(line.split(":")[0] in known for known in part.damage):
                part.damage.append(line)
    torn = ""
    if state.torn:
        extra, name = state.torn.length - state.torn.end, state.torn.path.relative_to(store)
        if state.torn.is_unfinished:
            torn = f"; an unfinished record of {extra:,} bytes at its end, never acknowledged"
        else:
            part.damage.append(
                f"{name}: {extra:,} bytes at its end are no record; Millpond has not written them."
            )
    count = "1 snapshot" if len(snapshots) == 1 else f"{len(snapshots)} snapshots"
    part.says = f"store {state.incarnation}, up to record {state.number:,}, {count}{torn}"
    return part


def _compare_databases(store: Path, copied: Path, folded: Path, last: int) -> Finding:
    part = Finding("database", 1)
    file = store / "pond.db"
    if not file.exists() or not file.stat().st_size:
        part.damage.append("pond.db is missing; the journal can make it again.")
        return part
    try:
        with closing(sqlite3.connect(copied)) as own, closing(sqlite3.connect(folded)) as made:
            found = read_fold(own)
            if found is None:
                part.damage.append("pond.db is damaged; opening the store makes it again.")
            elif found[1] < last:
                part.says = f"{last - found[1]} records behind the journal: opening folds them"
            else:
                part.damage += [
                    f"pond.db: table {table} is not what the journal says; opening makes it again."
                    for (table,) in made.execute(
                        "SELECT name FROM sqlite_schema WHERE type='table'"
                    )
                    if _rows(own, table) != _rows(made, table)
                ]
                part.says = "as the journal says"
    except sqlite3.Error as error:
        part.damage.append(f"pond.db is damaged ({error}); opening the store makes it again.")
    return part


def _rows(database: sqlite3.Connection, table: str) -> list[str]:
    """The rows of a table; none of one that opening the store adds."""
    if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchall():
        return []
    return sorted(map(repr, database.execute(f"SELECT * FROM {table}")))


def check_files(store: Path, database: Path | None) -> Iterator[Finding]:
    if database is None:
        yield Finding("files", damage=["Without a database nothing says which files there are."])
        return
    with closing(sqlite3.connect(database)) as known:
        for name, select in FILES:
            part = Finding(name)
            referenced = dict(known.execute(select))
            for path, checksum in sorted(referenced.items()):
                part.checked += 1
                if why := _why_damaged(store / path, checksum):
                    part.damage.append(f"{path}: {why}")
            found = {f"{name}/{file.name}" for file in (store / name).glob("*") if file.is_file()}
            if name in REFERENCED and (others := len(found - referenced.keys())):
                part.says = f"{others} more that nothing refers to"
            yield part
        yield _check_totals(store)
        part = Finding("inbox")
        rows = known.execute("SELECT number, checksum FROM inbox WHERE done = 0 ORDER BY number")
        for number, checksum in rows:
            part.checked += 1
            file = visible_path(store / "inbox", number)
            if not file.exists():
                file = hidden_path(store / "inbox", number)
            if why := _why_damaged(file, checksum):
                part.damage.append(f"inbox/{visible_path(store, number).name}: {why}")
        yield part


def _check_totals(store: Path) -> Finding:
    """Check the files of totals, which nothing refers to: their names say their checksums."""
    part = Finding("aggregates")
    for file in list_totals(store):
        checksum = checksum_of_name(file.name)
        if checksum is not None:
            part.checked += 1
            if why := _why_damaged(file, checksum):
                part.damage.append(f"{DIRECTORY_OF_TOTALS}/{file.name}: {why}")
    return part


def _why_damaged(file: Path, checksum: str) -> str | None:
    try:
        found = checksum_of(file)
    except OSError as error:
        return "It is missing." if isinstance(error, FileNotFoundError) else f"{error.strerror}."
    return None if found == checksum else "Its bytes are not those that were written."


def _check_checkpoints(store: Path) -> Finding:
    """Check Spark's logs of offsets and commits: a line with the version, then lines of JSON."""
    part = Finding("checkpoints")
    for file in sorted((store / "checkpoints").rglob("*")):
        if file.is_file() and file.name.isdigit() and file.parent.name in ("offsets", "commits"):
            part.checked += 1
            try:
                version, *lines = file.read_text().splitlines()
                is_whole = version.startswith("v") and bool(lines)
                for line in lines:
                    if line.startswith("{"):
                        json.loads(line)
            except (OSError, ValueError):
                is_whole = False
            if not is_whole:
                part.damage.append(f"{file.relative_to(store)}: Spark cannot read it.")
    return part


def _list_set_aside(store: Path) -> Finding:
    folders = list_set_aside(store)
    size = sum(folder.bytes for folder in folders)
    says = f"{size:,} bytes; --clean removes what is not needed" if folders else ""
    return Finding("set aside", sum(folder.files for folder in folders), says)
