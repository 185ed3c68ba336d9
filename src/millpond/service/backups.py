"""Backups that the process makes which has the store open, by the code of `millpond backup`.

One is made at a time, in a thread of its own: it reads beside the pond, as another process would.
What is told of a backup is forgotten with the process; the directory of backups knows its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millpond.errors import MillpondError
from millpond.service.json_values import instant_text
from millpond.state.backup.backup import backup_store
from millpond.state.backup.kept import Kept
from millpond.state.backup.progress import BackupCancelledError, BackupProgress

log = logging.getLogger("millpond.backup")

#: Of how many backups is told, the last ones.
_MOST_TOLD = 100


@dataclass
class _Backup:
    number: int
    to: Path
    copy: bool
    begun_at: int
    progress: BackupProgress = field(default_factory=BackupProgress)
    state: str = "running"
    ended_at: int | None = None
    kept: Kept | None = None
    error: MillpondError | None = None

    def describe(self) -> dict[str, Any]:
        kept = self.kept
        return {
            "backup": self.number,
            "to": str(self.to),
            "copy": self.copy,
            "state": self.state,
            "begun_at": instant_text(self.begun_at),
            "ended_at": None if self.ended_at is None else instant_text(self.ended_at),
            "files": self.progress.files,
            "of": self.progress.of,
            "new_bytes": self.progress.new_bytes if kept is None else kept.new_bytes,
            "epoch": None if kept is None else kept.epoch,
            "committed_at": None if kept is None else instant_text(kept.committed_at),
            "bytes": None if kept is None else kept.bytes,
            "error": None if self.error is None else self.error.to_json()["error"],
        }


class Backups:
    """The backups of one open pond; may be called from any thread."""

    def __init__(self, store: Path, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[int, _Backup] = {}
        self._last = 0
        self._thread: threading.Thread | None = None

    def begin(self, to: Path, copy: bool = False) -> dict[str, Any]:
        """Begin a backup, and describe it.

        Raises:
            MillpondError: POND-401, another backup is being made.
        """
        with self._lock:
            running = next((b for b in self._told.values() if b.state == "running"), None)
            if running is not None:
                raise MillpondError(
                    "POND-401",
                    f'backup {running.number} is being made to "{running.to}"',
                    hint="Wait until it is done, or cancel it.",
                )
            self._last += 1
            made = self._told[self._last] = _Backup(self._last, to, copy, self._clock())
            for number in list(self._told)[:-_MOST_TOLD]:
                del self._told[number]
            name = f"backup-{made.number}"
            self._thread = threading.Thread(target=self._make, args=(made,), name=name, daemon=True)
            self._thread.start()
            return made.describe()

    def list_all(self) -> list[dict[str, Any]]:
        """Describe the last backups, the newest first."""
        with self._lock:
            return [made.describe() for made in reversed(self._told.values())]

    def describe(self, number: int) -> dict[str, Any]:
        """Describe a backup. Raises SERVE-704 if there is none of that number."""
        with self._lock:
            return self._find(number).describe()

    def cancel(self, number: int) -> dict[str, Any]:
        """Have a backup end, wait until it has, and describe it; one that is over stays as it is.

        Raises:
            MillpondError: SERVE-704, there is none of that number.
        """
        with self._lock:
            found, thread = self._find(number), self._thread
            if found.state != "running":
                return found.describe()
        found.progress.cancel()
        if thread is not None:
            thread.join()
        return self.describe(number)

    def stop(self) -> None:
        """Cancel the backup that is being made: the pond closes."""
        with self._lock:
            running = [b.number for b in self._told.values() if b.state == "running"]
        for number in running:
            self.cancel(number)

    def _find(self, number: int) -> _Backup:
        found = self._told.get(number)
        if found is None:
            raise MillpondError(
                "SERVE-704",
                f"no backup {number}",
                detail=f"The last {_MOST_TOLD} since the pond was opened are told of.",
                hint="`millpond restore DIRECTORY` lists the backups that a directory has.",
            )
        return found

    def _make(self, made: _Backup) -> None:
        kept, error, state = None, None, "failed"
        try:
            kept = backup_store(
                self._store, made.to, not made.copy, self._clock, progress=made.progress
            )
            state = "done"
            log.info('backup %d to "%s" has epoch %d', made.number, made.to, kept.epoch)
        except BackupCancelledError:
            state = "cancelled"
            log.info('backup %d to "%s" was cancelled', made.number, made.to)
        except MillpondError as failure:
            error = failure
            log.warning('backup %d to "%s" failed: %s', made.number, made.to, failure)
        except Exception as failure:
            log.exception("backup %d failed", made.number)
            detail = f"{type(failure).__name__}: {failure}"
            error = MillpondError("INTERNAL-901", "the backup could not be made", detail=detail)
        with self._lock:
            made.kept, made.error, made.state = kept, error, state
            made.ended_at = self._clock()
