"""The journal of a driver that leads a shared store: each record is an object of the shared log.

What `journal.Journal` does with files of its own, this does with the log: the same calls, in the
same order. A record that is in the log is there for everybody, so it is never taken back. Should
SQLite fail after it, the driver's database lacks a record, and the store is opened again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable

from millpond.state.fail_points import reach
from millpond.state.journal.record import Statement
from millpond.state.journal.snapshot import Snapshot
from millpond.state.shared.place import SharedPlace
from millpond.state.shared.shared_log import SharedLog, SharedSnapshot, list_shared_snapshots


class SharedJournal:
    """Appends to the shared log. The caller holds a lock around every call."""

    def __init__(self, place: SharedPlace, log: SharedLog) -> None:
        self.incarnation = log.incarnation
        self._place, self._log = place, log

    @property
    def number(self) -> int:
        """The number of the last record."""
        return self._log.number

    @property
    def appended(self) -> int:
        """Bytes appended since the driver has led."""
        return self._log.appended

    def append(self, statements: Iterable[Statement]) -> None:
        """Make the next record durable for everybody.

        Raises:
            MillpondError: STORE-606, another driver leads; STORE-603, the storage gives no answer.
        """
        reach("journal.before_write")
        self._log.append(statements)
        reach("journal.after_sync")

    def check_file(self) -> None:
        """Check that this driver still leads, as far as it knows.

        Raises:
            MillpondError: STORE-606 or STORE-603, as `append` raised it.
        """
        if self._log.ended is not None:
            raise self._log.ended

    def mark(self) -> tuple[int, int]:
        """Return the log's end, for `take_back`."""
        return self._log.number, self._log.appended

    def take_back(self, mark: tuple[int, int]) -> None:
        """Do nothing, if nothing was appended since the mark.

        Raises:
            OSError: a record was appended, and stays.
        """
        if self._log.number != mark[0]:
            raise OSError(errno.EPERM, "a record of the shared log is never taken back")

    def note_committed(self) -> None:
        """Do nothing: what the log has, nobody else has to witness."""

    def keep_snapshot(self, snapshot: Snapshot) -> None:
        """Give everybody a snapshot that was taken.

        Raises:
            PlaceError: the storage gave no answer.
        """
        self._place.upload(snapshot.path, SharedSnapshot(snapshot.number, snapshot.checksum).key)

    def drop_upto(self, number: int) -> None:
        """Let go of what a snapshot of record `number` and a younger one hold.

        Raises:
            PlaceError: the storage gave no answer.
        """
        for snapshot in list_shared_snapshots(self._place):
            if snapshot.number < number:
                self._place.remove(snapshot.key)
        self._log.trim(number)

    def close(self) -> None:
        """Do nothing; another driver may lead from now on."""
