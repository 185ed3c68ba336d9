"""Repairing a store: a new one is made of what is whole, and the old one stays as it is.

The new database is that of the journal, up to its end or to what is damaged; if the store's own
database has folded more and SQLite finds it whole, it is taken instead. Matches, runs and pairs are
left behind, since they are computed again. Files that are lost stay referred to, so that an answer
that needs one says so and is not silently smaller.

When changes were lost, or when only an unchecked database says them, the new store gets a new
incarnation: cursors into what may have gone another way are refused there.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from millpond.errors import MillpondError
from millpond.state.arrow_file import translate_write_errors
from millpond.state.care.check import FILES, Part, check_files, copy_aside
from millpond.state.database import database_number
from millpond.state.database_tables import fold_row
from millpond.state.journal.fold import DIRECTORY, fold_journal, read_journal
from millpond.state.journal.journal import begin_file
from millpond.state.journal.snapshot import take_snapshot
from millpond.state.push_file import hidden_path, visible_path
from millpond.state.store import FORMAT, lock_store

#: What is computed again, and therefore not taken along.
_CACHES = ("matches", "runs", "pairs")


@dataclass
class Repair:
    """What a repair did.

    Attributes:
        to: The new store.
        incarnation: What it is called now.
        number: The last record of the journal that is in it.
        source: Where the database came from.
        damage: What was damaged and could be done without, a line each.
        lost: What could not be saved, a line each.
    """

    to: Path
    incarnation: str = ""
    number: int = 0
    source: str = ""
    damage: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def repair_store(store: Path, to: Path) -> Repair:
    """Make a new store of what is whole in a damaged one.

    Raises:
        MillpondError: STORE-601, somebody has it open; STORE-604, the new directory is not empty or
            lies in the old one; STORE-602, neither a database nor a journal is left; STORE-603, it
            cannot be written.
    """
    if to.exists() and any(to.iterdir()):
        raise MillpondError(
            "STORE-604", f'the directory "{to}" is not empty', hint="Name a new directory."
        )
    if to.absolute().is_relative_to(store.absolute()):
        raise MillpondError(
            "STORE-604", f'"{to}" lies in the store', hint="Name a directory beside the store."
        )
    done = Repair(to)
    with lock_store(store), translate_write_errors(to), tempfile.TemporaryDirectory() as scratch:
        to.mkdir(parents=True, exist_ok=True)
        (to / DIRECTORY).mkdir()
        database = Path(scratch) / "repaired.db"
        _make_database(store, Path(scratch), database, done)
        _forget_caches(database)
        take_snapshot(database, to / DIRECTORY)
        descriptor, _ = begin_file(to / DIRECTORY, done.incarnation, done.number + 1)
        os.close(descriptor)
        _copy_files(store, database, done)
        shutil.copyfile(database, to / "pond.db")
        (to / "FORMAT").write_text(FORMAT)
        os.sync()
    return done


def _make_database(store: Path, scratch: Path, to: Path, done: Repair) -> None:
    copied = copy_aside(store, scratch)
    number = database_number(copied)
    state = read_journal(store, number)
    done.number, done.incarnation = state.number, state.incarnation or secrets.token_hex(3)
    if state.damage and number is not None and number >= state.number and _is_sound(copied):
        with closing(sqlite3.connect(copied)) as source, closing(sqlite3.connect(to)) as target:
            source.backup(target)
        done.number, done.source = number, "the database, which nothing checks"
    elif state.incarnation is not None:
        fold_journal(state, to)
        done.source = "the journal"
    else:
        raise MillpondError(
            "STORE-602",
            f'nothing of the store "{store}" can be repaired',
            detail="Neither its journal nor its database can be read.",
            hint="Restore it from a copy.",
        )
    if state.damage:
        done.incarnation = secrets.token_hex(3)
        done.damage = [f"{file.relative_to(store)}: {why}" for file, why in state.damage]
        if done.number <= state.number:
            done.lost.append(f"all changes behind record {done.number:,} of the journal")
    with closing(sqlite3.connect(to)) as database, database:
        database.execute("DELETE FROM fold")
        row = fold_row(done.incarnation, done.number)
        database.execute("INSERT INTO fold VALUES (?, ?, ?)", row)


def _is_sound(database: Path) -> bool:
    try:
        with closing(sqlite3.connect(database)) as opened:
            return bool(opened.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
    except sqlite3.Error:
        return False


def _forget_caches(path: Path) -> None:
    """Matches, runs and pairs are computed again from the elements."""
    with closing(sqlite3.connect(path)) as database, database:
        for table in ("matches", "arrangement", "pairs"):
            database.execute(f"DELETE FROM {table}")
        cores = database.execute("SELECT id, body FROM join_core").fetchall()
        for id, text in cores:
            body = {**json.loads(text), "upto": 0, "covered": [], "epoch": 0, "since": []}
            text = json.dumps(body, separators=(",", ":"))
            database.execute("UPDATE join_core SET body = ? WHERE id = ?", (text, id))


def _copy_files(store: Path, database: Path, done: Repair) -> None:
    with closing(sqlite3.connect(database)) as known:
        for name, select in FILES:
            (done.to / name).mkdir(exist_ok=True)
            if name not in _CACHES:
                for path, _ in known.execute(select):
                    _copy(store / path, done.to / path)
        (done.to / "inbox").mkdir()
        for (number,) in known.execute("SELECT number FROM inbox WHERE done = 0"):
            for place in (visible_path, hidden_path):
                _copy(place(store / "inbox", number), visible_path(done.to / "inbox", number))
    if (store / "checkpoints").is_dir():
        shutil.copytree(store / "checkpoints", done.to / "checkpoints")
    for part in check_files(done.to, database):
        done.lost += _lost_of(part)


def _lost_of(part: Part) -> list[str]:
    return [] if part.name in _CACHES else list(part.damage)


def _copy(file: Path, to: Path) -> None:
    if file.exists() and not to.exists():
        shutil.copyfile(file, to)
