"""The folder of a store in which operators keep state that is too large for memory.

Its files have no names once they are mapped, so they end with the process that made them, however
it ends. State is made again from segments.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import MillpondError
from millpond.model.owner_only import make_directory, open_owner_only
from millpond.state.disk_floor import check_room
from millpond.synopses.mapped_memory import Mapping, map_file

#: The folder's name.
SCRATCH = "scratch"
#: State of fewer bytes stays in memory: a file takes whole pages.
LEAST = 4096


@dataclass(frozen=True)
class ScratchFolder:
    """Makes mapped files; a `Home` of state.

    Attributes:
        directory: The folder; made if it is not there.
        least: See `Home`.
    """

    directory: Path
    least: int = LEAST

    def map(self, size: int) -> Mapping | None:
        """Make a file of zeros and map it; None if there is no room on the disk.

        The file has its room on the disk from the beginning: a write to a mapped file for which
        there is none ends the process.
        """
        path = self.directory / uuid.uuid4().hex
        try:
            make_directory(self.directory)
            check_room(path, size)
            descriptor = open_owner_only(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except (OSError, MillpondError):
            return None
        try:
            os.unlink(path)
            os.posix_fallocate(descriptor, 0, size)
            return map_file(descriptor, size, self)
        except OSError:
            return None
        finally:
            os.close(descriptor)
