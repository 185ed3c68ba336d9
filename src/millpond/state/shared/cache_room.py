"""Room on the disk of a machine that has only a cache of a shared store: old files go.

Tasks on such a machine write files, give them to the shared place, and fetch what others gave;
nobody tells them when a file is merged away. Every file here is in the shared place, or is needed
by nobody, so that any may be removed: who wants it fetches it again, and who has it mapped keeps
it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from millpond.state.disk_floor import measure_room

log = logging.getLogger("millpond.store")

#: Files are removed once less than so many disk floors are free, until so many are.
_BEGINS_AT, _ENDS_AT = 2, 4
#: The seconds between two looks, and the age of a file that somebody may be about to give away.
_LOOK_SECONDS = 5.0
_SPARED_SECONDS = 600.0
#: What only a driver's directory has; it knows by itself what it needs.
_OF_A_DRIVER = "pond.db"


class CacheRoom:
    """Keeps room in the directory of a worker. Safe to use in many processes at once."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._directory, self._clock = directory, clock
        self._looked_at = -_LOOK_SECONDS

    def make(self) -> int:
        """Remove files if the disk is nearly full; return how many bytes they had.

        Those used longest ago go first, as far as the file system notes when a file is used.
        """
        now = self._clock()
        if now - self._looked_at < _LOOK_SECONDS or (self._directory / _OF_A_DRIVER).exists():
            return 0
        self._looked_at = now
        try:
            room = measure_room(self._directory)
        except OSError:
            return 0  # nothing was fetched yet
        if room.free >= _BEGINS_AT * room.floor:
            return 0
        wanted, removed, count = _ENDS_AT * room.floor - room.free, 0, 0
        for used, size, path in sorted(self._list_files()):
            if removed >= wanted or now - used < _SPARED_SECONDS:
                break
            path.unlink(missing_ok=True)
            removed += size
            count += 1
        log.warning(
            "the disk is nearly full: %d cached files were removed, %d bytes", count, removed
        )
        return removed

    def _list_files(self) -> Iterator[tuple[float, int, Path]]:
        for folder, _, names in os.walk(self._directory):
            for name in names:
                path = Path(folder, name)
                try:
                    found = path.stat()
                except OSError:
                    continue  # another process removed it
                yield max(found.st_atime, found.st_mtime), found.st_size, path
