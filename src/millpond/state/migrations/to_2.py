"""Format 2: the database is the fold of a journal; plans of joins are JSON.

The journal begins with a snapshot of format 1's database. Format 1 kept plans of joins as pickled
objects of modules that have moved since. Only this module reads them, with an unpickler that knows
those five classes and nothing more.
"""

from __future__ import annotations

import io
import os
import pickle
import secrets
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from millpond.engine.joins.keys import Axis
from millpond.engine.joins.plan import JoinPlan, Link, Operand, Value
from millpond.errors import MillpondError
from millpond.model.owner_only import create_owner_only, make_directory
from millpond.state.database_tables import fold_row
from millpond.state.fail_points import reach
from millpond.state.journal.fold import DIRECTORY
from millpond.state.journal.journal import begin_file
from millpond.state.journal.snapshot import take_snapshot
from millpond.state.migrations.write_format import write_format

_CLASSES: dict[tuple[str, str], Any] = {
    ("millpond.engine.join_plan", "JoinPlan"): JoinPlan,
    ("millpond.engine.join_plan", "Link"): Link,
    ("millpond.engine.join_plan", "Operand"): Operand,
    ("millpond.engine.join_plan", "Value"): Value,
    ("millpond.engine.join_keys", "Axis"): Axis,
}


def migrate(store: Path) -> None:
    """Turn a store of format 1 into a store of format 2.

    Raises:
        MillpondError: STORE-602, the database is missing or damaged; nothing was changed.
        OSError: a file cannot be written.
    """
    database = store / "pond.db"
    if not database.exists() or not database.stat().st_size:
        raise MillpondError(
            "STORE-602",
            f'the store\'s database "{database}" is missing',
            detail="The store has files of data, and nothing else says what they are.",
            hint="Restore the database from a copy of the store.",
        )
    made = store / ".pond.db.tmp"
    made.unlink(missing_ok=True)
    shutil.rmtree(store / DIRECTORY, ignore_errors=True)
    try:
        incarnation = _convert(database, made)
    except (sqlite3.Error, pickle.UnpicklingError, EOFError, TypeError, ValueError) as error:
        made.unlink(missing_ok=True)
        raise MillpondError(
            "STORE-602",
            f'the store\'s database "{database}" is corrupt',
            detail=f"Reading it said: {error}.",
            hint="Restore the database from a copy of the store.",
        ) from error
    make_directory(store / DIRECTORY)
    take_snapshot(made, store / DIRECTORY)
    descriptor, _ = begin_file(store / DIRECTORY, incarnation, 1)
    os.close(descriptor)
    reach("migration.before_commit")
    write_format(store, "millpond store 2\n")
    reach("migration.after_commit")
    for suffix in ("-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    os.replace(made, database)


def _convert(database: Path, to: Path) -> str:
    """Copy the database and convert the copy; return the new store's incarnation."""
    incarnation = secrets.token_hex(3)
    create_owner_only(to)
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(to)) as target:
        found = source.execute("PRAGMA integrity_check").fetchall()
        if found != [("ok",)]:
            raise sqlite3.DatabaseError(found[0][0])
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")
        with target:
            target.execute(
                "CREATE TABLE fold (incarnation TEXT NOT NULL, number INTEGER NOT NULL,"
                " proof TEXT NOT NULL)"
            )
            target.execute("INSERT INTO fold VALUES (?, ?, ?)", fold_row(incarnation, 0))
            for id, plan in target.execute("SELECT id, plan FROM join_core").fetchall():
                packed = JoinPlan(*_PlanUnpickler(io.BytesIO(plan)).load()).pack()
                target.execute("UPDATE join_core SET plan = ? WHERE id = ?", (packed, id))
            target.execute("PRAGMA user_version = 2")
    return incarnation


class _PlanUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = _CLASSES.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a join")
        return found
