"""What Millpond asks of shared storage: whole objects by key, and creation only if absent.

`create` is all the agreement there is: of any number of drivers that create one key, one succeeds.
Everything else is safe because an object never changes once it has a key, or because it is a hint.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from millpond.errors import MillpondError
from millpond.model.owner_only import open_owner_only

#: The key that is created first. Nothing is written where it is not.
FIRST = "pond.json"


class PlaceError(Exception):
    """The storage gave no answer, so the call may have happened, or may happen yet."""


class SharedPlace(Protocol):
    """Shared storage, for many drivers and executors at once. Safe to use from many threads.

    A key is a relative path of lower-case ASCII. Every call that returns has happened, is durable,
    and is seen by every later call of anybody.

    Raises:
        PlaceError: by every call; see there.
    """

    @property
    def url(self) -> str:
        """The place's name, by which another process opens it."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Make an object whole; return False, and change nothing, if the key has one."""
        ...

    def write(self, key: str, data: bytes) -> None:
        """Make an object, in place of one that the key has."""
        ...

    def read(self, key: str) -> bytes | None:
        """Return an object; None if the key has none."""
        ...

    def has(self, key: str) -> bool:
        """Return whether the key has an object."""
        ...

    def list_keys(self, prefix: str, after: str = "") -> list[str]:
        """List the keys that begin with `prefix` and come after `after`, ascending."""
        ...

    def remove(self, key: str) -> None:
        """Remove an object; nothing happens if the key has none."""
        ...

    def upload(self, file: Path, key: str) -> None:
        """Make an object of a file's bytes, in place of one that the key has."""
        ...

    def download(self, key: str, to: Path) -> bool:
        """Write an object to a file, which appears whole; return False if the key has none."""
        ...


def check_founded(place: SharedPlace) -> None:
    """Check that a place has the object that is created first.

    Raises:
        PlaceError: it has not, or gave no answer.
    """
    if not place.has(FIRST):
        raise PlaceError(f"{place.url}: there is no {FIRST}; is the storage mounted?")


@contextmanager
def write_whole(to: Path) -> Iterator[BinaryIO]:
    """Write a file that appears under its name once it is whole, and never otherwise."""
    temporary = to.with_name(f".{to.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "wb", opener=open_owner_only) as file:
            yield file
        os.rename(temporary, to)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def translate_place_errors(place: SharedPlace) -> Iterator[None]:
    """Turn the error of a place that gives no answer into STORE-603."""
    try:
        yield
    except PlaceError as error:
        raise MillpondError(
            "STORE-603",
            f'the shared store "{place.url}" gives no answer',
            detail=str(error),
            hint="Make the storage reachable, and try again; nothing was changed.",
        ) from error
