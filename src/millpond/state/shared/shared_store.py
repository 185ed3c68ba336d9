"""A shared store, as one driver sees it: its place, its files, and the way to lead it.

    pond.json                  the store's format and incarnation
    log/<number>               records                 snapshots/<number>-<checksum>.db
    files/<kind>/<name>        what a store's directories hold, under the same relative paths
    inbox/<number>-<checksum>  pushed rows
    leader.json                who leads, and how to reach it: a hint

The driver's own directory is a cache of the files, with a database that is made anew at each
opening. Its file SHARED says of which store, so that it is never taken for a store of its own.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from millpond.errors import MillpondError
from millpond.model.owner_only import make_directory, write_owner_only
from millpond.state.arrow_file import sync_directory
from millpond.state.file_share import (
    DIRECTORY_VARIABLE,
    PLACE_VARIABLE,
    SPREADS_VARIABLE,
    open_by,
    share_of,
)
from millpond.state.shared.files_before import FilesBefore
from millpond.state.shared.leader import Complaint, LeadersWord, read_leader
from millpond.state.shared.object_place import open_object_place
from millpond.state.shared.place import PlaceError, SharedPlace, translate_place_errors
from millpond.state.shared.place_share import PlaceShare
from millpond.state.shared.posix_place import PosixPlace
from millpond.state.shared.shared_fold import SharedFold, found_or_find, is_founded
from millpond.state.shared.shared_journal import SharedJournal
from millpond.state.shared.shared_log import SharedLog

#: The file of a directory that is a cache of a shared store.
SHARED = "SHARED"
#: What a URL begins with, what one of an object store does, and what none of these may have.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_OBJECTS = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://[^/@]+(/|$)")
_CREDENTIALS = re.compile(r"//[^/]*@")


def open_place(url: str) -> SharedPlace:
    """Open a shared place by its URL: a directory, `file:///…`, or an object store's.

    Raises:
        MillpondError: STORE-604, the URL names no place.
    """
    if url.startswith("file:///"):
        return PosixPlace(Path(url.removeprefix("file://")))
    scheme = _SCHEME.match(url)
    if not url or (scheme is not None and not _OBJECTS.match(url)):
        # As a path it would be a directory below the one the process is in: another on each machine
        raise MillpondError(
            "STORE-604",
            f"{json.dumps(_CREDENTIALS.sub('//', url))} names no shared store",
            detail="A directory has a path, an object store a URL without credentials.",
            hint="Name `s3://bucket/prefix`, or a directory that all machines have mounted.",
        )
    return open_object_place(url) if scheme is not None else PosixPlace(Path(url))


@dataclass
class SharedStore:
    """A shared store that this process leads, waits for, or is about to lead.

    Attributes:
        place: The shared storage.
        directory: The process's own directory.
        incarnation: The store's incarnation.
        driver: The name of this process in the log.
    """

    place: SharedPlace
    directory: Path
    incarnation: str
    driver: str = field(default_factory=lambda: secrets.token_hex(8))
    _fold: SharedFold | None = None
    _log: SharedLog | None = None
    _heartbeat: LeadersWord | None = None
    _looks: FilesBefore | None = None
    _complain: Complaint = field(default_factory=Complaint)
    #: The paths of files that were there before this process led.
    files_before: list[str] = field(default_factory=list)

    @staticmethod
    def open(url: str, directory: Path, format: str) -> SharedStore:
        """Find the shared store of a place, or found it; nothing is led yet.

        Args:
            url: The place.
            directory: The process's own directory: new, or of this store.
            format: The line that names the store's format.

        Raises:
            MillpondError: STORE-604, the place or the directory is something else; STORE-603, the
                storage gives no answer.
        """
        place = open_place(url)
        known = read_mark(directory)
        with translate_place_errors(place):
            if known is not None and not is_founded(place):
                raise MillpondError(
                    "STORE-604",
                    f'"{place.url}" has no shared store',
                    detail=f'The directory "{directory}" is a cache of {known["url"]}.',
                    hint="Is the storage mounted there? A new store wants a new directory, too.",
                )
            incarnation = found_or_find(place, format)
        mark(directory, place.url, incarnation)
        return SharedStore(place, directory, incarnation)

    @property
    def _fold_file(self) -> Path:
        return self.directory / f".fold-{self.driver}.db"

    def follow(self) -> SharedFold:
        """Return the database that is kept up while another driver leads."""
        if self._fold is None:
            with translate_place_errors(self.place):
                self._fold = SharedFold(self.place, self.incarnation, self._fold_file)
            self._looks = self._looks or FilesBefore(self.place)
        return self._fold

    def claim(self, url: str) -> bool:
        """Lead, unless another driver has just begun to, and say so every second from now on.

        A driver that leads needs a while until it serves; who hears nothing of it meanwhile would
        take it for dead.

        Args:
            url: Where clients will reach this process.

        Returns:
            Whether this process leads; if not, it has to wait again.
        """
        fold = self.follow()
        self._note_files()
        try:
            log = fold.claim(self.driver, self._hear_term())
        except PlaceError as error:
            self._complain(error)
            return False  # should the claim be there, it is read like another's
        if log is None:
            return False
        self._log = log
        self.announce(url)
        return True

    def lead(self, database: Path) -> tuple[SharedJournal, int]:
        """Take over, if `claim` has not, and make the database of all that is in the log.

        Returns:
            The journal, and the bytes of the records that no snapshot has.

        Raises:
            MillpondError: STORE-602, the log is damaged; STORE-603, the storage gives no answer.
        """
        fold = self.follow()
        if self._log is None:
            self._note_files()
            with translate_place_errors(self.place):
                self._log = fold.take_over(self.driver, self._hear_term())
        log = self._log
        if self._looks is not None:
            self._looks.close()
        fold.close()
        self._fold = None
        for suffix in ("-wal", "-shm", "-journal"):
            database.with_name(database.name + suffix).unlink(missing_ok=True)
        os.replace(self._fold_file, database)
        for left in self.directory.glob(".fold-*.db"):
            left.unlink()  # of processes that ended while they waited
        sync_directory(self.directory)
        return SharedJournal(self.place, log), fold.bytes

    def _hear_term(self) -> int:
        """The term of the last driver that said it leads; 0 if none did.

        If the log was put back from a copy, that term may be higher than any of the log. Who leads
        in a lower one would take the word for that of a driver that has taken over.
        """
        said = read_leader(self.place)
        return 0 if said is None else said.term

    def _note_files(self) -> None:
        """Note which files are there, as far as is known; before a claim."""
        if self._looks is not None:
            self.files_before = self._looks.take()

    @property
    def term(self) -> int:
        """The term in which this process leads; 0 if it does not."""
        return 0 if self._log is None else self._log.term

    @property
    def failure(self) -> MillpondError | None:
        """Why this process leads no more; None while it does, as far as it knows."""
        return None if self._log is None else self._log.ended

    def announce(self, url: str) -> None:
        """Say from now on, every second, that this process leads, and where clients reach it."""
        assert self._log is not None
        if self._heartbeat is not None:
            self._heartbeat.fall_silent()  # a word that it leaves would have others take over
        self._heartbeat = LeadersWord(self.place, self._log, url, self.directory)

    def close(self) -> None:
        """Lead no more; closing again does nothing."""
        if self._heartbeat is not None:
            self._heartbeat.close()
            self._heartbeat = None
        if self._looks is not None:
            self._looks.close()
        if self._fold is not None:
            self._fold.close()
            self._fold = None
            self._fold_file.unlink(missing_ok=True)


def mark(directory: Path, url: str, incarnation: str) -> None:
    """Write down that a directory is a cache of a shared store.

    Raises:
        MillpondError: STORE-604, the directory is of another store.
    """
    found = read_mark(directory)
    own = {"url": url, "incarnation": incarnation}
    if found is None and (directory / "FORMAT").exists():
        raise MillpondError(
            "STORE-604",
            f'the directory "{directory}" has a store of its own',
            detail="Its changes are in its own journal, and the shared store has others.",
            hint="Name a new directory for the files of the shared store.",
        )
    if found is not None and found["incarnation"] != incarnation:
        raise MillpondError(
            "STORE-604",
            f'the directory "{directory}" belongs to another shared store',
            detail=f"It is a cache of {found['url']}.",
            hint="Name a new directory for this one's files.",
        )
    make_directory(directory)
    write_owner_only(directory / SHARED, json.dumps(own).encode())


def read_mark(directory: Path) -> dict[str, str] | None:
    """Read of which shared store a directory is a cache: its `url` and `incarnation`."""
    try:
        return dict(json.loads((directory / SHARED).read_bytes()))
    except FileNotFoundError:
        return None


def tell_workers(directory: Path) -> dict[str, str]:
    """The variables that tell a worker how to share a directory; none for an ordinary store."""
    found = read_mark(directory)
    if found is None:
        return {}
    told = {DIRECTORY_VARIABLE: str(directory), PLACE_VARIABLE: found["url"]}
    share = share_of(directory / SHARED)
    return told | ({SPREADS_VARIABLE: "1"} if share is not None and share.spreads else {})


def open_share(directory: Path, url: str) -> PlaceShare:
    """Open the share of a worker's directory, by what its environment says."""
    share = PlaceShare(directory, open_place(url), lambda: 0)
    share.keep_room()
    return share


open_by(open_share)
