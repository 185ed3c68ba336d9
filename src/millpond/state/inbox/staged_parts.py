"""Staged parts: rows that a writer's tasks have sent, until the writer says which make a batch.

A part is a file `.staged/<stream>.<part>.arrow` in the inbox's directory, which Spark does not
list. Nothing refers to it. A part that nobody makes part of a batch is removed after a day.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from millpond.errors import MillpondError
from millpond.model.owner_only import make_directory
from millpond.state.arrow_file import sync_directory, translate_write_errors, write_bytes

#: How long a part waits for its batch, and how often older ones are looked for, in microseconds.
_LIFETIME, _LOOK = 24 * 3_600 * 1_000_000, 3_600 * 1_000_000
_NAME = re.compile(r"[0-9A-Za-z_-]{1,100}")


class StagedParts:
    """The staged parts of a store. Safe to use from many threads."""

    def __init__(self, inbox: Path) -> None:
        self._directory = inbox / ".staged"
        self._lock = threading.Lock()
        self._looked_at: int | None = None

    def write(self, stream_id: int, part: str, table: pa.Table, clock: int) -> None:
        """Make a part durable, in place of one of its name.

        Raises:
            MillpondError: DATA-501, the name is none; STORE-603, the part cannot be written.
        """
        path = self._path(stream_id, part)
        temporary = path.with_name(f".{path.name}.{threading.get_ident()}.tmp")
        make_directory(self._directory)
        self._remove_old(clock)
        with translate_write_errors(path):
            write_bytes(temporary, table, sync=True)
            temporary.rename(path)
            os.utime(path, ns=(clock * 1_000, clock * 1_000))
            sync_directory(self._directory)

    def open(self, stream_id: int, parts: Sequence[str]) -> list[pa.Table]:
        """Map the rows of parts; they stay while the tables are used.

        Raises:
            MillpondError: DATA-504, a part is not there.
        """
        tables = []
        for part in parts:
            try:
                with pa.memory_map(str(self._path(stream_id, part))) as source:
                    tables.append(pa.ipc.open_file(source).read_all())
            except (FileNotFoundError, pa.ArrowInvalid) as error:
                raise MillpondError(
                    "DATA-504",
                    f'the part "{part}" of the batch is not there',
                    detail="It was not sent, was removed, or waited for more than a day.",
                    hint="Send the parts of the batch again.",
                ) from error
        return tables

    def remove(self, stream_id: int, parts: Sequence[str]) -> None:
        """Remove parts; those that are not there are passed over."""
        for part in parts:
            self._path(stream_id, part).unlink(missing_ok=True)

    def _path(self, stream_id: int, part: str) -> Path:
        if not _NAME.fullmatch(part):
            raise MillpondError(
                "DATA-501",
                "the name of the part cannot be taken",
                detail="It has letters of ASCII, digits, - and _ only, and at most 100.",
                hint="Send a UUID.",
            )
        return self._directory / f"{stream_id}.{part}.arrow"

    def _remove_old(self, clock: int) -> None:
        """Remove what has waited too long; looked for once an hour."""
        with self._lock:
            if self._looked_at is not None and clock - self._looked_at < _LOOK:
                return
            self._looked_at = clock
        for file in self._directory.iterdir():
            try:
                if file.stat().st_mtime_ns < (clock - _LIFETIME) * 1_000:
                    file.unlink()
            except FileNotFoundError:
                pass  # its batch came meanwhile
