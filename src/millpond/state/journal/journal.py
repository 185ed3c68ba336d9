"""Appending to the journal: a record is durable when `append` returns.

Invariants:
    INV-JOURNAL-1: numbers rise by one from record to record, across files and restarts.
    INV-JOURNAL-2: nothing is acknowledged or published before its record is durable.
    INV-JOURNAL-3: a record whose transaction failed is taken back before anything else is written.

One synchronous write a transaction; SQLite, which comes second, waits for no disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from millpond.errors import MillpondError
from millpond.model.owner_only import open_owner_only
from millpond.state.arrow_file import sync_directory, translate_write_errors
from millpond.state.fail_points import reach
from millpond.state.journal.journal_file import FILE_HEAD_BYTES, encode_head, file_name, list_files
from millpond.state.journal.last_record import LastRecord
from millpond.state.journal.record import Statement, encode_record
from millpond.state.journal.snapshot import Snapshot

#: A file of this length is full, and the next record begins another file.
_FILE_BYTES = 32 << 20


class Journal:
    """Appends records to the journal, for the one process that has the store open.

    The caller holds a lock around every call.
    """

    def __init__(self, directory: Path, incarnation: str, number: int) -> None:
        """Continue after record `number`, in the last file, which must be whole.

        Raises:
            MillpondError: STORE-603, the journal cannot be written.
        """
        self.incarnation = incarnation
        #: The number of the last record.
        self.number = number
        self._directory = directory
        #: Bytes appended since the process opened the journal.
        self.appended = 0
        self._last = LastRecord(directory.parent, incarnation)
        files = list_files(directory)
        if files and number >= files[-1][0] - 1:
            with translate_write_errors(files[-1][1]):
                self._descriptor = os.open(files[-1][1], os.O_RDWR | os.O_CLOEXEC)
                self._end = os.lseek(self._descriptor, 0, os.SEEK_END)
            self._path = files[-1][1]
        else:
            self._path = directory / file_name(number + 1)
            self._descriptor, self._end = begin_file(directory, incarnation, number + 1)

    def append(self, statements: Iterable[Statement]) -> None:
        """Write the next record and wait until it is durable.

        Raises:
            MillpondError: STORE-603, the record cannot be written; the caller calls `take_back`.
        """
        record = encode_record(self.incarnation, self.number + 1, statements)
        reach("journal.before_write")
        with translate_write_errors(self._directory):
            written = 0
            while written < len(record):
                written += os.pwrite(self._descriptor, record[written:], self._end + written)
            reach("journal.before_sync")
            os.fdatasync(self._descriptor)
        reach("journal.after_sync")
        self.number += 1
        self._end += len(record)
        self.appended += len(record)

    def check_file(self) -> None:
        """Check, between records, that the file is there for the next start, and as it was left.

        Raises:
            MillpondError: STORE-602, somebody else has removed or changed it.
        """
        found = os.fstat(self._descriptor)
        try:
            is_there = os.path.samestat(found, os.stat(self._path))
        except OSError:
            is_there = False
        if is_there and found.st_size == self._end:
            return
        what = "has another length than was written" if is_there else "was removed or moved"
        raise MillpondError(
            "STORE-602",
            f'the store\'s journal "{self._directory}" was changed by somebody else',
            detail=f"Its newest file {what}, so no change can be made durable.",
            hint="Stop this process and copy the store before anything else; `millpond repair "
            "STORE --to NEW` then makes a new store of what is whole.",
        )

    def mark(self) -> tuple[int, int]:
        """Return the journal's end, for `take_back`; begin another file if the last one is full.

        Raises:
            MillpondError: STORE-603, the file cannot be made.
        """
        if self._end > _FILE_BYTES:
            descriptor, end = begin_file(self._directory, self.incarnation, self.number + 1)
            os.close(self._descriptor)
            self._descriptor, self._end = descriptor, end
            self._path = self._directory / file_name(self.number + 1)
        return self.number, self._end

    def note_committed(self) -> None:
        """Write into LAST that the last record is committed."""
        self._last.note(self.number)

    def keep_snapshot(self, snapshot: Snapshot) -> None:
        """Do nothing: a snapshot that was taken is in the journal's directory."""

    def take_back(self, mark: tuple[int, int]) -> None:
        """Remove every byte written since a mark, of whole records or not.

        Raises:
            OSError: the bytes cannot be removed.
        """
        self.number, self._end = mark
        os.ftruncate(self._descriptor, self._end)
        os.fsync(self._descriptor)

    def drop_upto(self, number: int) -> None:
        """Remove the files that hold no record after `number`."""
        files = list_files(self._directory)
        for (_, path), (following, _) in pairwise(files):
            if following <= number + 1:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; closing again does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._last.close()


def begin_file(directory: Path, incarnation: str, first: int) -> tuple[int, int]:
    """Make a new file for the records from `first` on; return its descriptor and length.

    Raises:
        MillpondError: STORE-603, the file cannot be written.
    """
    path = directory / file_name(first)
    with translate_write_errors(path):
        descriptor = open_owner_only(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            os.write(descriptor, encode_head(incarnation, first))
            os.fsync(descriptor)
            sync_directory(directory)
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor, FILE_HEAD_BYTES
