"""Shares a driver's directory through a shared place: `files/`, under the same relative paths."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from pathlib import Path

from millpond.model.owner_only import make_directory
from millpond.state.journal.snapshot import checksum_of
from millpond.state.shared.cache_room import CacheRoom
from millpond.state.shared.place import PlaceError, SharedPlace, translate_place_errors

log = logging.getLogger("millpond.store")


class PlaceShare:
    """Gives and fetches the files of one directory; see `FileShare`."""

    def __init__(
        self,
        directory: Path,
        place: SharedPlace,
        term: Callable[[], int],
        has_ended: Callable[[], bool] = lambda: False,
    ) -> None:
        """Share a directory.

        Args:
            directory: The driver's directory.
            place: The shared place.
            term: The term in which this process leads; 0 if it does not.
            has_ended: Whether this process leads no more. Then it takes nothing back: a change that
                failed may be in the log all the same, with the files that it names. What it leaves
                the next driver removes (`files_before.py`).
        """
        self._directory, self._place, self._term = directory, place, term
        self._has_ended = has_ended
        self.spreads = False
        self._room: CacheRoom | None = None

    def keep_room(self) -> None:
        """Remove old files from now on when the disk is nearly full: this is a worker's cache."""
        self._room = CacheRoom(self._directory)

    @property
    def term(self) -> int:
        """How many drivers have led the store, with the one of this process; 0 in a worker."""
        return self._term()

    def list_names(self, folder: Path, start: str) -> list[str]:
        """List the names in a folder that begin so, ascending."""
        prefix = self._key(folder / start, None)
        with translate_place_errors(self._place):
            return [key.rpartition("/")[2] for key in self._place.list_keys(prefix)]

    def publish(self, file: Path, name: str | None = None) -> None:
        """Give everybody a file of the directory; on return it is durable for all."""
        self._make_room()
        with translate_place_errors(self._place):
            self._place.upload(file, self._key(file, name))

    def fetch(self, file: Path, name: str | None = None) -> bool:
        """Fetch a file of the directory; return False if nobody has given it."""
        make_directory(file.parent)
        self._make_room()
        with translate_place_errors(self._place):
            return self._place.download(self._key(file, name), file)

    def put_back(self, file: Path, checksum: str, name: str | None = None) -> bool:
        """Give a file again if what was given is damaged or gone, and this machine's copy is not.

        A path stands for the same bytes for ever, so it does not matter who leads meanwhile.
        """
        key = self._key(file, name)
        given = file.with_name(f".{uuid.uuid4().hex}.given")
        try:
            with translate_place_errors(self._place):
                if self._place.download(key, given) and checksum_of(given) == checksum:
                    return False
        finally:
            given.unlink(missing_ok=True)
        if not file.exists() or checksum_of(file) != checksum:
            return False
        with translate_place_errors(self._place):
            self._place.upload(file, key)
        log.warning("a damaged file was put back: %s", self.locate(file, name))
        return True

    def withdraw(self, file: Path, name: str | None = None) -> None:
        """Take a file back that nothing refers to; a failure leaves it there."""
        if self._has_ended():
            return
        try:
            self._place.remove(self._key(file, name))
        except PlaceError as error:
            log.warning("a file that nobody needs stays in the shared store: %s", error)

    def locate(self, file: Path, name: str | None = None) -> str:
        """Return where the shared storage has a file, for people."""
        return f"{self._place.url}/{self._key(file, name)}"

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.make()

    def _key(self, file: Path, name: str | None) -> str:
        own = file if name is None else file.with_name(name)
        return f"files/{own.relative_to(self._directory).as_posix()}"
