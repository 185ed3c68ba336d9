"""The disk floor: how much of a store's file system stays free.

Files of rows are written only while that much stays free: segments, rejects, matches, pushes,
changes. The journal and the database may use the rest. So statements that free room (DROP, shorter
RETAIN) are taken on a disk that is nearly full, and seldom does a commit find no room.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import MillpondError

#: The variable that says how much stays free: `512m`, `4g`, or `0` for nothing.
DISK_FLOOR = "MILLPOND_DISK_FLOOR"
#: Unless it says so: this much, and on a small file system this part of it.
_MOST, _PART = 1 << 30, 20
_UNITS = {"m": 1 << 20, "g": 1 << 30}
#: The status warns while less than this multiple of the floor is free.
_WARNS_AT = 3
#: RETAIN alone frees nothing that the window of a registered query needs.
_HINT = "Free disk space, drop streams, or keep less (RETAIN, and drop queries that need old rows)"


def disk_floor(size: int) -> int:
    """The bytes that stay free on a file system of so many bytes.

    Raises:
        MillpondError: CQL-214, the variable is not like `512m`, `4g` or `0`.
    """
    given = os.environ.get(DISK_FLOOR)
    if given is None:
        return min(_MOST, size // _PART)
    found = re.fullmatch(r"(0)|([1-9][0-9]{0,6})([mg])", given.strip().lower())
    if found is None:
        raise MillpondError(
            "CQL-214",
            f"{DISK_FLOOR} cannot be {given!r}",
            hint="Write megabytes or gigabytes: 512m or 4g; 0 lets the disk become full.",
        )
    return 0 if found[1] else int(found[2]) * _UNITS[found[3]]


@dataclass(frozen=True)
class DiskRoom:
    """How much of a file system is free, and how much of it stays free."""

    free: int
    floor: int

    @property
    def is_scarce(self) -> bool:
        """Whether so little is free that somebody should be told."""
        return self.free < self.floor * _WARNS_AT

    @property
    def is_used_up(self) -> bool:
        """Whether no file of rows is written any more."""
        return self.free < self.floor

    def explain(self) -> MillpondError:
        """Make the error STORE-603 that says how little is free."""
        stopped = self.is_used_up
        return MillpondError(
            "STORE-603",
            "the disk of the store is too full for more rows"
            if stopped
            else "the disk of the store is nearly full",
            detail=f"{self.free:,} bytes are free, and {self.floor:,} stay free: "
            + (
                "pushes are refused and sources have stopped; answers go on."
                if stopped
                else "below that, pushes are refused and sources stop."
            ),
            hint=f"{_HINT}.",
        )


def measure_room(directory: Path) -> DiskRoom:
    """Look how much room the file system of a directory has.

    Raises:
        OSError: the directory is not there.
        MillpondError: CQL-214, the variable is wrong.
    """
    found = os.statvfs(directory)
    floor = disk_floor(found.f_blocks * found.f_frsize)
    return DiskRoom(found.f_bavail * found.f_frsize, floor)


def check_room(path: Path, size: int) -> None:
    """Refuse a file of rows that would leave less than the floor.

    Raises:
        OSError: its directory is not there.
        MillpondError: STORE-603, there is not enough room for so many bytes.
    """
    room = measure_room(path.parent)
    if room.free - size >= room.floor or not room.floor:
        return
    raise MillpondError(
        "STORE-603",
        f'the file "{path}" cannot be written',
        detail=f"It has {size:,} bytes; {room.free:,} are free on the disk, and {room.floor:,} stay"
        f" free ({DISK_FLOOR}).",
        hint=f"{_HINT}; then it resumes where it was.",
    )
