"""Repairs a store: makes a new store of the undamaged files, and leaves the old one as it is.

The new database is made from the journal, up to its end or its first damaged record. If the store's
own database has folded more records and SQLite finds it whole, that database is taken instead.
Matches, runs, pairs and totals are not copied, since they are computed again. The new database
still refers to lost files, so an answer that needs a lost file fails and is not silently smaller.

If changes were lost, or only the unchecked database has them, the new store gets a new incarnation.
It then refuses cursors of the old incarnation, whose changes may differ from its own.
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
from millpond.model.owner_only import make_directory, tighten, write_owner_only
from millpond.state.arrow_file import translate_write_errors
from millpond.state.check_and_repair.check import FILES, Finding, check_files, copy_aside
from millpond.state.database.database import database_number
from millpond.state.database_tables import fold_row
from millpond.state.inbox.push_file import hidden_path, visible_path
from millpond.state.journal.fold import DIRECTORY, fold_journal, read_journal
from millpond.state.journal.journal import begin_file
from millpond.state.journal.snapshot import take_snapshot
from millpond.state.store import FORMAT, lock_store, refuse_other_format

#: The directories of files that are computed again, and therefore not copied.
CACHES = ("matches", "runs", "pairs", "summaries", "aggregates")


@dataclass
class Repair:
    """What a repair did.

    Attributes:
        to: The new store.
        incarnation: The new store's incarnation.
        number: The last record of the journal that is in the new store.
        source: Where the database came from.
        damage: A line for each thing that was damaged but not needed.
        lost: A line for each thing that could not be saved.
    """

    to: Path
    incarnation: str = ""
    number: int = 0
    source: str = ""
    damage: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def repair_store(store: Path, to: Path) -> Repair:
    """Make a new store of the undamaged files of a damaged store.

    Raises:
        MillpondError: STORE-601, another process has the store open; STORE-604, the new directory
            is not empty or lies in the old one, or the store has another format; STORE-602,
            neither a database nor a journal is left; STORE-603, the new store cannot be written.
    """
    if to.exists() and any(to.iterdir()):
        raise MillpondError(
            "STORE-604", f'the directory "{to}" is not empty', hint="Name a new directory."
        )
    if to.absolute().is_relative_to(store.absolute()):
        raise MillpondError(
            "STORE-604", f'"{to}" lies in the store', hint="Name a directory beside the store."
        )
    refuse_other_format(store)
    done = Repair(to)
    with lock_store(store), translate_write_errors(to), tempfile.TemporaryDirectory() as scratch:
        make_directory(to / DIRECTORY)
        database = Path(scratch) / "repaired.db"
        _make_database(store, Path(scratch), database, done)
        forget_caches(database)
        take_snapshot(database, to / DIRECTORY)
        descriptor, _ = begin_file(to / DIRECTORY, done.incarnation, done.number + 1)
        os.close(descriptor)
        _copy_files(store, database, done)
        shutil.copyfile(database, to / "pond.db")
        write_owner_only(to / "FORMAT", FORMAT.encode())
        tighten(to)
        os.sync()
    return done


def _make_database(store: Path, scratch: Path, to: Path, done: Repair) -> None:
    copied = copy_aside(store, scratch)
    number = database_number(copied)
    state = read_journal(store, number)
    done.number, done.incarnation = state.number, state.incarnation or secrets.token_hex(3)
    if state.damage and number is not None and number > state.number and _is_sound(copied):
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


def forget_caches(path: Path) -> None:
    """Forget matches, runs, pairs and stored summaries: the elements say the same again."""
    with closing(sqlite3.connect(path)) as database, database:
        for table in ("matches", "arrangement", "pairs"):
            database.execute(f"DELETE FROM {table}")
        database.execute(
            "UPDATE definition SET body = json_set(body, '$.file', NULL) WHERE kind = 'summary'"
        )
        cores = database.execute("SELECT id, body FROM join_core").fetchall()
        for id, text in cores:
            body = {**json.loads(text), "upto": 0, "covered": [], "epoch": 0, "since": []}
            text = json.dumps(body, separators=(",", ":"))
            database.execute("UPDATE join_core SET body = ? WHERE id = ?", (text, id))


def _copy_files(store: Path, database: Path, done: Repair) -> None:
    with closing(sqlite3.connect(database)) as known:
        for name, select in FILES:
            make_directory(done.to / name)
            if name not in CACHES:
                for path, _ in known.execute(select):
                    _copy(store / path, done.to / path)
        make_directory(done.to / "inbox")
        for (number,) in known.execute("SELECT number FROM inbox WHERE done = 0"):
            for place in (visible_path, hidden_path):
                _copy(place(store / "inbox", number), visible_path(done.to / "inbox", number))
    if (store / "checkpoints").is_dir():
        # Spark's scratch files are of the process that died; sockets cannot be copied either.
        left_out = shutil.ignore_patterns(".scratch-*")
        shutil.copytree(store / "checkpoints", done.to / "checkpoints", ignore=left_out)
    for part in check_files(done.to, database):
        done.lost += _lost_of(part)


def _lost_of(part: Finding) -> list[str]:
    return [] if part.name in CACHES else list(part.damage)


def _copy(file: Path, to: Path) -> None:
    if file.exists() and not to.exists():
        shutil.copyfile(file, to)
