"""Directories whose files other machines need, and how they get them.

A driver's directory may be a cache of a shared store (`state/shared`). Then a file that is written
there is given to the shared storage before anything refers to it, and one that is missing there, or
damaged, is fetched. A path stands for the same bytes for ever, on every machine.

A worker learns of this from its environment, because it is forked before any task names a store.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

#: The variables that tell a worker the directory, the URL of the place, and whether work spreads.
DIRECTORY_VARIABLE, PLACE_VARIABLE = "MILLPOND_SHARED_DIRECTORY", "MILLPOND_SHARED_PLACE"
SPREADS_VARIABLE = "MILLPOND_SHARED_SPREADS"


class FileShare(Protocol):
    """Gives files away and fetches them, for one directory. Safe to use from many threads.

    Attributes:
        spreads: Whether workers run on other machines, and look for files there that nothing
            durable refers to.
    """

    spreads: bool

    @property
    def term(self) -> int:
        """How many drivers have led the store, with the one of this process; 0 in a worker."""
        ...

    def list_names(self, folder: Path, start: str) -> list[str]:
        """List the names in a folder that begin so, ascending.

        Raises:
            MillpondError: STORE-603, the storage gives no answer.
        """
        ...

    def publish(self, file: Path, name: str | None = None) -> None:
        """Give everybody a file of the directory; on return it is durable for all.

        Args:
            file: The file's path.
            name: What it is called for the others; None for its own name. A name that drivers may
                give to different files has to be made unlike.

        Raises:
            MillpondError: STORE-603, the storage gives no answer.
        """
        ...

    def fetch(self, file: Path, name: str | None = None) -> bool:
        """Fetch a file that was given under that name; return False if none was.

        Raises:
            MillpondError: STORE-603, the storage gives no answer.
        """
        ...

    def put_back(self, file: Path, checksum: str, name: str | None = None) -> bool:
        """Give a file again if what was given is damaged or gone, and this machine's copy is not.

        Args:
            file: The file's path.
            checksum: The xxh3_64 of its bytes, in hex.
            name: What it is called for the others; None for its own name.

        Returns:
            Whether it was given again.

        Raises:
            MillpondError: STORE-603, the storage gives no answer.
        """
        ...

    def withdraw(self, file: Path, name: str | None = None) -> None:
        """Take a file back that nothing refers to; a failure leaves it there."""
        ...

    def locate(self, file: Path, name: str | None = None) -> str:
        """Return where the shared storage has a file, for people."""
        ...


_shares: dict[str, FileShare] = {}
_told: list[int] = []
_openers: list[Callable[[Path, str], FileShare]] = []


def share_directory(directory: Path, share: FileShare) -> None:
    """Share a directory from now on, in this process."""
    _shares[f"{directory}{os.sep}"] = share


def unshare_directory(directory: Path) -> None:
    """Share a directory no more."""
    _shares.pop(f"{directory}{os.sep}", None)


def share_of(file: str | Path) -> FileShare | None:
    """Return who shares a file's directory; None if the file is this machine's alone."""
    if not _told:
        _read_environment()
    if not _shares:
        return None
    path = str(file)
    return next((share for root, share in _shares.items() if path.startswith(root)), None)


def publish(file: Path, name: str | None = None) -> None:
    """Give everybody a file, if its directory is shared."""
    if (share := share_of(file)) is not None:
        share.publish(file, name)


def fetch(file: Path, name: str | None = None) -> bool:
    """Fetch a file, if its directory is shared and somebody has given it."""
    share = share_of(file)
    return share is not None and share.fetch(file, name)


def put_back(file: Path, checksum: str, name: str | None = None) -> bool:
    """Give a file again, if its directory is shared; see `FileShare.put_back`."""
    share = share_of(file)
    return share is not None and share.put_back(file, checksum, name)


def publish_scratch(file: Path) -> None:
    """Give workers on other machines a file that nothing durable refers to."""
    if (share := share_of(file)) is not None and share.spreads:
        share.publish(file)


def withdraw_scratch(file: Path) -> None:
    """Take back a file that `publish_scratch` may have given."""
    if (share := share_of(file)) is not None and share.spreads:
        share.withdraw(file)


def withdraw(file: Path, name: str | None = None) -> None:
    """Take back a file that nothing refers to, if its directory is shared."""
    if (share := share_of(file)) is not None:
        share.withdraw(file, name)


def open_by(opener: Callable[[Path, str], FileShare]) -> None:
    """Say by what a worker opens the share that its environment names; who opens imports this."""
    _openers[:] = [opener]


def _read_environment() -> None:
    """Share what this process's environment names; in a worker, after the fork."""
    directory, url = os.environ.get(DIRECTORY_VARIABLE), os.environ.get(PLACE_VARIABLE)
    if directory and url:
        share = _openers[0](Path(directory), url)
        share.spreads = SPREADS_VARIABLE in os.environ
        share_directory(Path(directory), share)
    _told.append(os.getpid())
