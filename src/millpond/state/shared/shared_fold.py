"""The database of a shared store: a snapshot, the records after it, and those that still come.

The driver that leads makes its database so when it opens the store; one that waits keeps it up to
date meanwhile. So taking over costs the last few records.
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path

from millpond.errors import MillpondError
from millpond.model.owner_only import create_owner_only, make_directory
from millpond.state.database_tables import add_tables, create_tables, fold_row
from millpond.state.journal.fold import apply_record
from millpond.state.journal.snapshot import checksum_of
from millpond.state.shared.place import FIRST, SharedPlace
from millpond.state.shared.shared_log import (
    LogBehind,
    LogReader,
    SharedLog,
    SharedSnapshot,
    damaged_log,
    list_shared_snapshots,
    steady_seconds,
)
from millpond.state.shared.shared_record import key_of, list_records

#: The file by which a directory is a store that is not shared.
_STORE = "FORMAT"
#: Earlier formats of which nothing has to be written anew.
_READ_AS_IT_IS = ("millpond store 3",)
#: The keys of what the directories of a store hold.
FILES = "files/"
#: How many records one transaction of SQLite applies.
_TOGETHER = 1_000

log = logging.getLogger("millpond.store")


def found_or_find(place: SharedPlace, format: str) -> str:
    """Found a shared store, or find it; return its incarnation.

    Args:
        place: The place, empty or with a store.
        format: The line that names the store's format.

    Raises:
        MillpondError: STORE-604, what is there is of another format, or no store; STORE-602, it is
            a store that has lost what it was founded with.
        PlaceError: the storage gave no answer.
    """
    own = {"format": format.strip(), "incarnation": secrets.token_hex(3)}
    if not is_founded(place):
        _check_empty(place)
        place.create(FIRST, json.dumps(own).encode())
    try:
        found = json.loads(place.read(FIRST) or b"")
        if found["format"] in _READ_AS_IT_IS:
            # From here on the Millpond that wrote it, which would misread new files, refuses it.
            found["format"] = own["format"]
            place.write(FIRST, json.dumps(found).encode())
        if found["format"] == own["format"]:
            return str(found["incarnation"])
        says = f"It says {found['format']!r}; this Millpond reads {own['format']!r}."
    except (ValueError, KeyError, TypeError):
        says = f"Its {FIRST} cannot be read."
    raise MillpondError(
        "STORE-604",
        f'"{place.url}" has no shared store of this version',
        detail=says,
        hint="Name another place, or use the Millpond that wrote it.",
    )


def is_founded(place: SharedPlace) -> bool:
    """Whether a place has a shared store.

    Raises:
        PlaceError: the storage gave no answer.
    """
    return place.read(FIRST) is not None


def _check_empty(place: SharedPlace) -> None:
    """Refuse to found a store where one is, or was.

    Raises:
        MillpondError: STORE-604, a store of its own is there; STORE-602, a shared one without its
            first object.
        PlaceError: the storage gave no answer.
    """
    if place.read(_STORE) is not None:
        raise MillpondError(
            "STORE-604",
            f'"{place.url}" has a store of its own',
            detail="Its changes are in its own journal, and a shared store would not have them.",
            hint="Name an empty or new place.",
        )
    has = list_records(place) or list_shared_snapshots(place) or place.list_keys(FILES)
    if has and not is_founded(place):
        raise damaged_log(place, f"There is no {FIRST}, and there are files of a store.")


class SharedFold:
    """A database file that has all records up to one; for one thread at a time."""

    def __init__(
        self,
        place: SharedPlace,
        incarnation: str,
        file: Path,
        clock: Callable[[], float] = steady_seconds,
    ) -> None:
        """Begin from the newest snapshot.

        Args:
            place: Where the log is.
            incarnation: The store's.
            file: The database's path, in the driver's own directory; replaced.
            clock: Seconds that pass while the process is stopped, too.

        Raises:
            MillpondError: STORE-602, what the log has lost stands in no snapshot that can be read.
            PlaceError: the storage gave no answer.
        """
        self._place, self._incarnation, self._file = place, incarnation, file
        self._clock = clock
        self._database: sqlite3.Connection | None = None
        self._begin()

    def _begin(self) -> None:
        self.close()
        damaged: set[SharedSnapshot] = set()
        while True:
            began = self._clock()
            found = [s for s in list_shared_snapshots(self._place) if s not in damaged]
            number = 0
            self._file.unlink(missing_ok=True)
            create_owner_only(self._file)
            for snapshot in reversed(found):
                # One that is not there any more has a younger one; one that is damaged, an older.
                if self._take(snapshot, damaged):
                    number = snapshot.number
                    break
            if number or not found:
                break
        if not number:
            self._check_beginning(damaged)
        self._database = sqlite3.connect(self._file, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        if not number:
            create_tables(self._database, self._incarnation)
        add_tables(self._database)
        #: Of the records applied after the snapshot.
        self.bytes = 0
        self._reader = LogReader(self._place, self._incarnation, number, began, self._clock)

    def _check_beginning(self, damaged: Collection[SharedSnapshot]) -> None:
        """Check that a log that is read from its beginning has one.

        Who finds no record may be the first of all. So may another be, who has claimed the log
        since: files are there only after a record.

        Raises:
            MillpondError: STORE-602, it has none.
        """
        first = key_of(1)
        if self._place.read(first) is not None:
            return
        if not damaged and not self._place.list_keys(FILES):
            return
        if self._place.read(first) is None and len(list_shared_snapshots(self._place)) == len(
            damaged
        ):
            names = ", ".join(sorted(snapshot.key for snapshot in damaged))
            why = f"and these are damaged: {names}." if names else "and there are files of a store."
            raise damaged_log(self._place, f"Record 1 is missing, {why}")

    def _take(self, snapshot: SharedSnapshot, damaged: set[SharedSnapshot]) -> bool:
        """Begin with a snapshot; return False if it is gone, or `damaged`."""
        kept = self._file.parent / "journal" / Path(snapshot.key).name
        make_directory(kept.parent)
        if not kept.exists() or checksum_of(kept) != snapshot.checksum:
            if not self._place.download(snapshot.key, kept):
                return False
            if checksum_of(kept) != snapshot.checksum:
                log.warning("a snapshot of the shared store is damaged: %s", snapshot.key)
                damaged.add(snapshot)
                kept.unlink()
                return False
        shutil.copyfile(kept, self._file)
        return True

    @property
    def number(self) -> int:
        """The last record that is in the database."""
        return self._reader.number

    @property
    def leader(self) -> tuple[int, str]:
        """The term and the name of the driver that wrote it."""
        return self._reader.term, self._reader.driver

    def catch_up(self) -> int:
        """Apply the records that have come; return how many.

        Raises:
            MillpondError: STORE-602, the log is damaged; STORE-603, the driver's directory is gone.
            PlaceError: the storage gave no answer; what was applied stays.
        """
        if not self._file.exists():
            raise lost_directory(self._file.parent)
        applied = 0
        try:
            while self._apply_some():
                applied += 1
        except LogBehind:
            self._begin()
            return self.catch_up() + 1
        return applied

    def _apply_some(self) -> bool:
        """Apply up to a thousand records in one transaction; return whether there were any."""
        database = self._database
        assert database is not None
        before = self.number
        database.execute("BEGIN")
        try:
            for _ in range(_TOGETHER):
                record = self._reader.read_next()
                if record is None:
                    break
                apply_record(database, record.body)
                self.bytes += len(record.body)
        finally:
            # What was read is in, also when the next one cannot be read.
            database.execute("DELETE FROM fold")
            row = fold_row(self._incarnation, self.number)
            database.execute("INSERT INTO fold VALUES (?, ?, ?)", row)
            database.execute("COMMIT")
        return self.number > before

    def take_over(self, driver: str, heard: int = 0) -> SharedLog:
        """Lead: claim the log's next number, with every record before it in the database.

        Args:
            driver: Sixteen hexadecimal digits that no process had before.
            heard: A term that a driver said it leads in; the new one is higher.

        Raises:
            MillpondError: STORE-602, the log is damaged.
            PlaceError: the storage gave no answer; a claim of this driver may be in the log.
        """
        while True:
            self.catch_up()
            if (log := self.claim(driver, heard)) is not None:
                return log

    def claim(self, driver: str, heard: int = 0) -> SharedLog | None:
        """Lead as `take_over` does, unless somebody has written a record since the last one read.

        Returns:
            None if somebody has.

        Raises:
            MillpondError: STORE-602, the last record that was read is not in the log any more.
            PlaceError: the storage gave no answer; a claim of this driver may be in the log.
        """
        log = SharedLog(self._reader, driver, self._clock)
        if not log.claim(heard):
            return None
        self._set_number(log.number)
        return log

    def _set_number(self, number: int) -> None:
        assert self._database is not None
        row = fold_row(self._incarnation, number)
        self._database.execute("UPDATE fold SET incarnation = ?, number = ?, proof = ?", row)

    def close(self) -> None:
        """Close the database, whose file stays; closing again does nothing."""
        if self._database is not None:
            self._database.close()
            self._database = None


def lost_directory(directory: Path) -> MillpondError:
    """Return the error STORE-603: a driver has lost its own files: it leads and waits no more."""
    return MillpondError(
        "STORE-603",
        f'the directory "{directory}" is gone',
        detail="What was acknowledged is in the shared store; a driver that waits takes over.",
        hint="Start this one again: it makes the directory anew.",
    )
