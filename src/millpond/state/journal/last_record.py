"""LAST: a file beside the journal and the database that says the number of the last record.

The journal cannot tell that its end is missing, and a database that was put back with it cannot
either. This file is written after each record and never waits for the disk: it may be behind the
journal, and then says nothing, but a journal that ends before it has lost its end.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import xxhash

from millpond.model.owner_only import open_owner_only

NAME = "LAST"

_LINE = re.compile(rb"([0-9a-f]{6}) (\d{20}) ([0-9a-f]{16})\n")


class LastRecord:
    """Keeps the file up to date, for the one process that has the store open."""

    def __init__(self, store: Path, incarnation: str) -> None:
        self._incarnation = incarnation
        self._descriptor = -1
        with suppress(OSError):  # who cannot write it cannot write the journal, which says so
            self._descriptor = open_owner_only(store / NAME, os.O_WRONLY | os.O_CREAT)

    def note(self, number: int) -> None:
        """Write the number of the last record, which is durable and committed."""
        said = f"{self._incarnation} {number:020d}"
        with suppress(OSError):
            os.pwrite(self._descriptor, f"{said} {_checksum(said)}\n".encode(), 0)

    def close(self) -> None:
        """Close the file; closing again does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_last_record(store: Path) -> tuple[str, int] | None:
    """Read the incarnation and the number of the last record.

    Returns:
        None if there is no such file, or it is damaged, which is no damage to the store.
    """
    try:
        found = _LINE.match((store / NAME).read_bytes())
    except OSError:
        return None
    if found is None:
        return None
    incarnation, number, checksum = (part.decode() for part in found.groups())
    return (incarnation, int(number)) if checksum == _checksum(f"{incarnation} {number}") else None


def _checksum(said: str) -> str:
    return str(xxhash.xxh3_64_hexdigest(said.encode()))
