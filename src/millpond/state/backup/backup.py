"""Makes a backup of a store, which another process may have open, or this one.

A backup is the journal up to a record, and the files to which the database refers that the journal
makes up to there. Nothing in a store is changed in place, so a copy needs no cooperation of the
process that has the store open: journal, snapshots and files are read beside it. That process may
merge segments and remove the old ones while they are copied. Then the backup goes on to a later
record, whose files it mostly has already, until all files of one record are there.

INV-BACKUP-1: a backup is listed in `kept/` only after everything it needs is durable, so a backup
    that is killed at any point leaves the backups there were, and can be begun again.
INV-BACKUP-2: a backup has only records that are in the store's database: such a record is never
    taken back.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import quote

from millpond.errors import MillpondError
from millpond.model.owner_only import create_owner_only
from millpond.model.time import now
from millpond.state.arrow_file import sync_directory, translate_write_errors
from millpond.state.backup.kept import (
    CHECKPOINTS,
    FILES,
    Kept,
    checkpoints_file,
    list_kept,
    put_file,
    write_kept,
    writing,
)
from millpond.state.backup.progress import BackupProgress
from millpond.state.check_and_repair.check import FILES as REFERRED
from millpond.state.check_and_repair.check import copy_aside
from millpond.state.database.database import database_number
from millpond.state.database_tables import add_tables, create_tables
from millpond.state.fail_points import reach
from millpond.state.inbox.push_file import hidden_path, visible_path
from millpond.state.journal.fold import DIRECTORY as JOURNAL
from millpond.state.journal.fold import apply_record, fold_journal, read_fold, read_journal
from millpond.state.journal.journal import begin_file
from millpond.state.journal.journal_file import file_name, list_files, read_file
from millpond.state.journal.record import frame_body
from millpond.state.journal.snapshot import Snapshot, list_snapshots
from millpond.state.store import lock_store, refuse_other_format

#: How often a backup goes on to a later record because files of the last one are gone.
_PASSES = 50

#: In how many passes the checkpoints have to be those of the record, if they can be.
_TRIES = 5

#: Tables of which a backup has the files.
_KEPT_PARTS = [(name, select) for name, select in REFERRED if name in FILES]


class _Gone(Exception):
    """The store has gone on: what was about to be read is not there any more."""


def backup_store(
    store: Path,
    target: Path,
    link: bool = True,
    clock: Callable[[], int] = now,
    progress: BackupProgress | None = None,
) -> Kept:
    """Add a backup of a store to a directory of backups; the store may be open.

    Args:
        store: The store's directory.
        target: The directory of backups; made if it is not there.
        link: Whether files become hard links where the file system can do that, and not copies.
        clock: Microseconds since 1970.
        progress: Told how far the backup is, and asked whether to go on.

    Raises:
        BackupCancelledError: It was cancelled; the backups there were stay.
        MillpondError: STORE-601, another backup is being written there; STORE-602, the store or a
            file of it is damaged; STORE-603, the backup cannot be written; STORE-604, the store has
            another format, or the target is no directory of backups of this store.
    """
    refuse_other_format(store)
    if target.absolute().is_relative_to(store.absolute()):
        raise MillpondError(
            "STORE-604", f'"{target}" lies in the store', hint="Name a directory beside the store."
        )
    with ExitStack() as opened, translate_write_errors(target):
        scratch = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        find_last = _find_last_record(store, scratch, opened)
        incarnation, _ = find_last()
        opened.enter_context(writing(target, incarnation))
        progress = progress or BackupProgress()
        made = _Backup(store, target, scratch, incarnation, link, clock(), progress)
        return made.take(find_last)


def _find_last_record(
    store: Path, scratch: Path, opened: ExitStack
) -> Callable[[], tuple[str, int]]:
    """Return what tells the incarnation and the last record that will never be taken back."""
    try:
        opened.enter_context(lock_store(store))
    except MillpondError as error:
        if error.code != "STORE-601":
            raise
        return lambda: _read_live(store)
    state = read_journal(store, database_number(copy_aside(store, scratch)))
    for name in ("pond.db", "pond.db-wal"):
        (scratch / name).unlink(missing_ok=True)
    if state.damage or state.incarnation is None:
        why = (
            f"{state.damage[0][0]}: {state.damage[0][1]}" if state.damage else "It has no journal."
        )
        raise MillpondError(
            "STORE-602",
            f'the store "{store}" is damaged',
            detail=why,
            hint="`millpond repair STORE --to NEW` makes a new store of what is whole.",
        )
    found = (state.incarnation, state.number)
    return lambda: found


def _read_live(store: Path) -> tuple[str, int]:
    """Read how far the database is that another connection writes."""
    with closing(
        sqlite3.connect(f"file:{quote(str(store.absolute()))}/pond.db?mode=ro", uri=True)
    ) as database:
        found = read_fold(database)
    if found is None:
        raise MillpondError("STORE-602", f'the database of the store "{store}" is damaged')
    return found


class _Backup:
    """One backup on its way: a database that is folded further with each pass."""

    def __init__(
        self,
        store: Path,
        target: Path,
        scratch: Path,
        incarnation: str,
        link: bool,
        taken_at: int,
        progress: BackupProgress,
    ) -> None:
        self._progress = progress
        self._store, self._target, self._link = store, target, link
        self._incarnation, self._taken_at = incarnation, taken_at
        self._before = list_kept(target)
        self._database = scratch / "backup.db"
        self._records: list[tuple[int, memoryview]] = []
        self._number = self._before[-1].record if self._before else 0
        if self._before:
            known = read_journal(target, None, self._number)
            if known.number < self._number or known.damage:
                raise MillpondError(
                    "STORE-602",
                    f'the journal of the backups in "{target}" is damaged',
                    hint="Begin with a new directory; keep this one for what is whole in it.",
                )
            fold_journal(known, self._database)
        self._new_bytes = 0
        self._packed = scratch / "checkpoints.tar"
        self._tries = 0
        self._missing: set[str] = set()

    def take(self, find_last: Callable[[], tuple[str, int]]) -> Kept:
        """Copy until all files of one record are there; then list the backup."""
        for _ in range(_PASSES):
            self._progress.check()
            with suppress(_Gone):
                last = find_last()[1]
                packed = self._pack_checkpoints()
                self._advance(last)
                self._check_packed(packed)
                reach("backup.before_files")
                files, length = self._copy_files()
                return self._finish(files, length)
        raise MillpondError(
            "STORE-603",
            f'"{self._target}" cannot keep up with the store',
            detail=f"In {_PASSES} attempts files were merged away before they were copied. What "
            "was copied stays for the next attempt.",
            hint="Name a directory on the store's own file system, where files become links.",
        )

    def _advance(self, last: int) -> None:
        """Fold the journal up to a record."""
        if last <= self._number:
            if not last:
                raise MillpondError(
                    "STORE-604",
                    f'the store "{self._store}" has nothing to back up yet',
                    hint="Make a backup once there is a stream or a relation.",
                )
            return
        records = self._read_records(self._number, last)
        if records is None:
            self._begin_with_snapshot(last)
            records = self._read_records(self._number, last)
            if records is None:
                raise _Gone
        with closing(sqlite3.connect(self._database)) as database, database:
            for _, body in records:
                apply_record(database, body)
        self._records += records
        self._number = last

    def _read_records(self, after: int, last: int) -> list[tuple[int, memoryview]] | None:
        """Read the records behind one from the store; None if the store's journal begins later."""
        listed = list_files(self._store / JOURNAL)
        found: list[tuple[int, memoryview]] = []
        for place, (first, path) in enumerate(listed):
            if place + 1 < len(listed) and listed[place + 1][0] <= after + 1:
                continue
            if first > last:
                break
            try:
                file = read_file(path, first, self._incarnation)
            except FileNotFoundError:
                raise _Gone from None
            found += [record for record in file.records if after < record[0] <= last]
        numbers = [number for number, _ in found]
        if numbers != list(range(after + 1, last + 1)):
            return None
        if after == 0 and not self._database.exists():
            self._create_database()
        return found

    def _create_database(self) -> None:
        """Make the database as it is before the first record."""
        create_owner_only(self._database)
        with closing(sqlite3.connect(self._database)) as database, database:
            create_tables(database, self._incarnation)
            add_tables(database)

    def _begin_with_snapshot(self, last: int) -> None:
        """Go on from the store's newest snapshot: the records before it are not there any more."""
        for snapshot in reversed(list_snapshots(self._store / JOURNAL)):
            with suppress(FileNotFoundError):
                if self._number < snapshot.number <= last and snapshot.is_whole():
                    self._put_snapshot(snapshot)
                    shutil.copyfile(self._target / JOURNAL / snapshot.path.name, self._database)
                    self._records, self._number = [], snapshot.number
                    return
        raise _Gone

    def _copy_files(self) -> tuple[int, int]:
        """Copy the files of the record that are not in the target; return how many, and bytes."""
        files, length, missing = 0, 0, set()
        with closing(sqlite3.connect(self._database)) as database:
            wanted = [
                (path, checksum)
                for _, select in _KEPT_PARTS
                for path, checksum in database.execute(select)
            ]
            pushed = database.execute("SELECT number, checksum FROM inbox WHERE done = 0")
            wanted += [
                (visible_path(Path("inbox"), number).as_posix(), checksum)
                for number, checksum in pushed
            ]
        self._progress.of, self._progress.files = len(wanted), 0
        for path, checksum in wanted:
            self._progress.check()
            files += 1
            to = self._target / path
            try:
                if not to.exists():
                    self._new_bytes += self._copy(path, to, checksum)
                    self._progress.new_bytes = self._new_bytes
                length += to.stat().st_size
                self._progress.files += 1
            except FileNotFoundError:
                missing.add(path)  # go on: the next pass needs most of the others too
        # A file is removed after the record that drops it: in the next pass nothing refers to it.
        if twice := sorted(missing & self._missing):
            raise _damaged_error(twice[0], "There is no such file.")
        self._missing = missing
        if missing:
            raise _Gone
        return files, length

    def _copy(self, path: str, to: Path, checksum: str) -> int:
        source = self._store / path
        if path.startswith("inbox/") and not source.exists():
            source = hidden_path(source.parent, int(source.stem))  # acknowledged a moment ago
        length, found = put_file(source, to, self._link)
        if found is not None and found != checksum:
            to.unlink()
            raise _damaged_error(path, "Its bytes are not those that were written.")
        return length

    def _finish(self, files: int, length: int) -> Kept:
        self._put_checkpoints()
        reach("backup.after_files")
        self._write_journal()
        for name in (JOURNAL, CHECKPOINTS, *FILES):
            sync_directory(self._target / name)
        with closing(sqlite3.connect(self._database)) as database:
            row = database.execute("SELECT epoch, committed_at FROM epoch ORDER BY epoch DESC")
            epoch, committed_at = row.fetchone() or (0, self._taken_at)
        kept = Kept(
            self._number, epoch, committed_at, self._taken_at, files, length, self._new_bytes
        )
        reach("backup.before_kept")
        write_kept(self._target, kept)
        reach("backup.after_kept")
        return kept

    def _write_journal(self) -> None:
        """Write the new records as one file, and the store's newest snapshot if it is new."""
        newest = [s for s in list_snapshots(self._store / JOURNAL) if s.number <= self._number]
        with suppress(FileNotFoundError):  # it spares folding, and is not needed
            if newest and newest[-1].is_whole():
                self._put_snapshot(newest[-1])
        if not self._records:
            return
        first = self._records[0][0]
        path = self._target / JOURNAL / file_name(first)
        descriptor, _ = begin_file(path.parent, self._incarnation, first)
        with open(descriptor, "wb") as file:
            for number, body in self._records:
                file.write(frame_body(self._incarnation, number, body))
            file.flush()
            os.fsync(file.fileno())
        self._new_bytes += path.stat().st_size

    def _put_snapshot(self, snapshot: Snapshot) -> None:
        to = self._target / JOURNAL / snapshot.path.name
        if not to.exists():
            self._new_bytes += put_file(snapshot.path, to, self._link)[0]

    def _pack_checkpoints(self) -> set[str]:
        """Pack what Structured Streaming remembers; return the names of the files.

        It is read after the number of the record, so it is of that record or ahead of it.
        """
        folder, names = self._store / "checkpoints", set()
        create_owner_only(self._packed)
        with tarfile.open(self._packed, "w") as packed:
            for path in sorted(folder.rglob("*")):
                inner = path.relative_to(folder).as_posix()
                if not inner.startswith(".scratch-") and path.is_file():
                    with suppress(FileNotFoundError):  # Spark removes what it needs no more
                        packed.add(path, inner, recursive=False)
                        names.add(inner)
        return names

    def _check_packed(self, names: set[str]) -> None:
        """Take another pass if Spark has removed what it remembered of a source's last batch.

        It remembers a few batches. A store that has lost it for good is backed up as it is.
        """
        self._tries += 1
        with closing(sqlite3.connect(self._database)) as database:
            streams = database.execute(
                "SELECT id, batch_id FROM definition JOIN batch ON source = 'stream:' || id"
            ).fetchall()
        for id, batch in streams:
            is_kept = any(name.startswith(f"stream-{id}/") for name in names)
            if is_kept and f"stream-{id}/offsets/{batch}" not in names and self._tries < _TRIES:
                raise _Gone

    def _put_checkpoints(self) -> None:
        to = checkpoints_file(self._target, self._number)
        to.unlink(missing_ok=True)
        self._new_bytes += put_file(self._packed, to, link=False)[0]


def _damaged_error(path: str, why: str) -> MillpondError:
    return MillpondError(
        "STORE-602",
        f'the file "{path}" of the store is corrupt or missing',
        detail=f"{why} Nothing was backed up.",
        hint="`millpond check STORE` lists what is damaged; `millpond repair STORE --to NEW` makes "
        "a new store of what is whole.",
    )
