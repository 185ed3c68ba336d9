"""Makes a store of a backup, as it was at a record of its journal.

The database is the fold of the journal up to that record. The new store is made beside its place
and renamed, so it is there whole or not at all, and never over another one. It gets a new
incarnation. A cursor of before is good in it up to the last change that both have: these cursors
are in the table `ancestor`. What can be computed again is not in a backup.

Nothing of a backup is unpickled or run.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from millpond.errors import MillpondError
from millpond.model.owner_only import make_directory, tighten, write_owner_only
from millpond.model.time import format_instant
from millpond.state.arrow_file import sync_directory, translate_write_errors
from millpond.state.backup.find_points import Point, find_points
from millpond.state.backup.kept import (
    Kept,
    checkpoints_file,
    list_kept,
    put_file,
    read_incarnation,
)
from millpond.state.check_and_repair.check import FILES, check_files
from millpond.state.check_and_repair.repair import CACHES, forget_caches
from millpond.state.database_tables import fold_row
from millpond.state.inbox.push_file import visible_path
from millpond.state.journal.fold import DIRECTORY as JOURNAL
from millpond.state.journal.fold import JournalState, fold_journal, read_journal
from millpond.state.journal.journal import begin_file
from millpond.state.journal.snapshot import list_snapshots, take_snapshot
from millpond.state.store import FORMAT

#: Cuts one stream's checkpoint to a batch; says whether the stream's source can go on from there.
CutCheckpoint = Callable[[Path, int], bool]


@dataclass
class Restored:
    """What a restore did.

    Attributes:
        to: The new store.
        incarnation: Its incarnation.
        point: What it is as of.
        asked: The last point that was asked for; another than `point` if its files are not kept.
        stopped: The names of the streams whose source cannot go on where they are.
        damage: A line for each file that the backup does not have whole.
    """

    to: Path
    incarnation: str
    point: Point
    asked: Point
    stopped: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)


def restore_store(
    backup: Path,
    to: Path,
    *,
    epoch: int | None = None,
    at: int | None = None,
    link: bool = True,
    cut_checkpoint: CutCheckpoint,
) -> Restored:
    """Make a store of a backup.

    Args:
        backup: The directory of backups.
        to: The new store's directory, which must be empty or not there.
        epoch: The epoch to restore, with the pushes that were acknowledged before the next one;
            None for the last one.
        at: The instant to restore, in microseconds since 1970: the last state up to it of which
            every file is there.
        link: Whether files become hard links where the file system can do that.
        cut_checkpoint: Cuts a stream's checkpoint to a batch.

    Raises:
        MillpondError: STORE-604, there is no backup, or none of that epoch or instant, or the
            directory is not empty; STORE-602, the backup's journal is damaged; STORE-603, the
            store cannot be written.
    """
    incarnation = read_incarnation(backup)
    kept = list_kept(backup)
    if not kept:
        raise MillpondError("STORE-604", f'no backup in "{backup}" was finished')
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise MillpondError(
            "STORE-604", f'the directory "{to}" is not empty', hint="Name a new directory."
        )
    with translate_write_errors(to), tempfile.TemporaryDirectory() as scratch:
        point, asked = _choose(backup, kept, Path(scratch), epoch, at)
        done = Restored(to, secrets.token_hex(3), point, asked)
        make_directory(to.absolute().parent)
        made = to.absolute().with_name(f".{to.name}.restoring")
        shutil.rmtree(made, ignore_errors=True)
        make_directory(made / JOURNAL)
        database = Path(scratch) / "restored.db"
        fold_journal(_read(backup, point.record), database)
        _mark_restored(database, incarnation, done.incarnation, point.record)
        forget_caches(database)
        take_snapshot(database, made / JOURNAL)
        os.close(begin_file(made / JOURNAL, done.incarnation, point.record + 1)[0])
        _put_files(backup, made, database, link)
        first = next(k.record for k in kept if k.record >= point.record)
        _put_checkpoints(checkpoints_file(backup, first), made, database, cut_checkpoint, done)
        shutil.copyfile(database, made / "pond.db")
        write_owner_only(made / "FORMAT", FORMAT.encode())
        for part in check_files(made, database):
            done.damage += [] if part.name in CACHES else part.damage
        tighten(made)
        os.sync()
        made.rename(to)
        sync_directory(to.absolute().parent)
    return done


def _choose(
    backup: Path, kept: list[Kept], scratch: Path, epoch: int | None, at: int | None
) -> tuple[Point, Point]:
    """Find the point to restore, and the one that was asked for."""
    last = kept[-1]
    if epoch is None and at is None:
        point = Point(last.record, last.epoch, last.committed_at, last.committed_at, True)
        return point, point
    asked: Point | None = None
    before: Point | None = None
    after: Point | None = None
    for point in _list_points(backup, last.record, scratch, epoch, at):
        if not _is_upto(point, epoch, at):
            if point.is_whole:
                after = point
                break
        elif epoch is None:
            if point.at:  # before its first epoch a store is of no instant
                asked, before = point, point if point.is_whole else before
        elif point.epoch == epoch and point.is_whole:
            asked = point  # with everything acknowledged before the next epoch
        elif point.is_whole and point.epoch < epoch:
            before = point
    if epoch is not None and asked is not None:
        return asked, asked
    if epoch is None and before is not None and asked is not None:
        return before, asked
    raise _no_point_error(backup, epoch, before, after)


def _is_upto(point: Point, epoch: int | None, at: int | None) -> bool:
    """Whether a point is not behind what is asked for."""
    return point.at <= (at or 0) if epoch is None else point.epoch <= epoch


def _list_points(
    backup: Path, last: int, scratch: Path, epoch: int | None, at: int | None
) -> Iterator[Point]:
    """Yield the points from the newest snapshot on that is not behind what is asked for."""
    starts = [0, *(s.number for s in list_snapshots(backup / JOURNAL) if s.number <= last)]
    ends = [*(number - 1 for number in starts[1:]), last]
    parts = []
    for number, end in reversed(list(zip(starts, ends, strict=True))):
        state = read_journal(backup, None, end)  # up to where records are missing, if they are
        if state.incarnation is None:
            continue
        parts.append(find_points(backup, state, scratch / f"points-{number}.db"))
        first = next(parts[-1])
        parts[-1] = chain([first], parts[-1])
        if _is_upto(first, epoch, at):
            break
    for part in reversed(parts):
        yield from part


def _no_point_error(
    backup: Path, epoch: int | None, before: Point | None, after: Point | None
) -> MillpondError:
    what = "that instant" if epoch is None else f"epoch {epoch:,}"
    found = [
        f"epoch {point.epoch:,} of {format_instant(point.committed_at)}"
        for point in (before, after)
        if point is not None
    ]
    return MillpondError(
        "STORE-604",
        f'"{backup}" does not have the store as of {what}',
        detail=f"It has {' and then '.join(found)}." if found else None,
        hint="--at INSTANT takes the last state up to an instant that is kept.",
    )


def _read(backup: Path, record: int) -> JournalState:
    state = read_journal(backup, None, record)
    if state.damage or state.number < record:
        cut = (backup / JOURNAL, f"It ends with record {state.number}, and not {record}.")
        file, why = (*state.damage, cut)[0]
        raise MillpondError(
            "STORE-602",
            f'the backup\'s journal "{file}" is damaged',
            detail=f"{why} An earlier epoch may be whole.",
            hint="Name one with --epoch or --at.",
        )
    return state


def _mark_restored(path: Path, before: str, incarnation: str, record: int) -> None:
    """Give a database its new incarnation, and note which cursors of before are good in it.

    The sinks' own cursors lie before the record, so they stay where they are.
    """
    with closing(sqlite3.connect(path)) as database, database:
        rows = database.execute(
            "SELECT d.id, d.body ->> '$.resets', c.next_seq FROM definition d"
            " JOIN clock c ON c.stream_id = d.id"
            " WHERE d.kind = 'stream' AND d.body ->> '$.derived' IS NOT NULL"
        ).fetchall()
        database.executemany(
            "INSERT OR REPLACE INTO ancestor VALUES (?, ?)",
            [
                (f"{before}.{id}" + (f"-{resets}" if resets else ""), last)
                for id, resets, last in rows
            ],
        )
        for id, text in database.execute(
            "SELECT id, body FROM definition WHERE kind = 'sink'"
        ).fetchall():
            text = text.replace(f'"cursor":"{before}.', f'"cursor":"{incarnation}.')
            body = json.loads(text)
            if not body.get("origin"):  # its receiver knows it by the store it was created in
                text = json.dumps({**body, "origin": before}, separators=(",", ":"))
            database.execute("UPDATE definition SET body = ? WHERE id = ?", (text, id))
        database.execute("DELETE FROM fold")
        database.execute("INSERT INTO fold VALUES (?, ?, ?)", fold_row(incarnation, record))


def _put_files(backup: Path, made: Path, database: Path, link: bool) -> None:
    with closing(sqlite3.connect(database)) as known:
        wanted = [
            path
            for name, select in FILES
            if name not in CACHES
            for path, _ in known.execute(select)
        ]
        pushed = known.execute("SELECT number FROM inbox WHERE done = 0")
        wanted += [visible_path(Path("inbox"), number).as_posix() for (number,) in pushed]
    for name in ("inbox", *(name for name, _ in FILES)):
        make_directory(made / name)
    for path in wanted:
        with suppress(FileNotFoundError):  # the check names it
            put_file(backup / path, made / path, link)


def _put_checkpoints(
    packed: Path, made: Path, database: Path, cut: CutCheckpoint, done: Restored
) -> None:
    """Unpack what Structured Streaming remembered, and cut it to the batches of the store."""
    folder = made / "checkpoints"
    make_directory(folder)
    with suppress(FileNotFoundError), tarfile.open(packed) as opened:
        opened.extractall(folder, filter="data")
    with closing(sqlite3.connect(database)) as known:
        names = dict(
            known.execute(
                "SELECT id, body ->> '$.name' FROM definition"
                " WHERE kind = 'stream'"
                " AND coalesce(body ->> '$.source', body ->> '$.history') IS NOT NULL"
            )
        )
        batches = dict(known.execute("SELECT source, batch_id FROM batch"))
    for stream_folder in folder.glob("stream-*"):
        id = int(stream_folder.name.removeprefix("stream-"))
        if id not in names:
            shutil.rmtree(stream_folder)
    for id, name in sorted(names.items()):
        if not cut(folder / f"stream-{id}", batches.get(f"stream:{id}", -1)):
            done.stopped.append(name)
