"""How far a backup is, for who waits for it, and how it is told to end."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


class BackupCancelledError(Exception):
    """Somebody said that the backup is not wanted any more."""


@dataclass
class BackupProgress:
    """One backup on its way; written by the thread that makes it, read by any.

    Attributes:
        files: How many of its files are in the directory of backups.
        of: How many files it needs; None while that is not known.
        new_bytes: The length of the files that were added for it so far.
    """

    files: int = 0
    of: int | None = None
    new_bytes: int = 0
    _cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """Have the backup end before its next file; the backups there were stay."""
        self._cancelled.set()

    def check(self) -> None:
        """Raise BackupCancelledError if the backup is to end."""
        if self._cancelled.is_set():
            raise BackupCancelledError
