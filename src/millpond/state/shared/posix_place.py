"""A shared place on a file system that all machines have mounted.

An object is a file, written under a name of its own and synced. `create` links it to its key, which
fails if the key has a file: links are exclusive on every POSIX file system, over NFS too. There a
link may have succeeded although its answer was lost; the file's number of links tells.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from millpond.model.owner_only import make_directory, open_owner_only
from millpond.state.arrow_file import sync_directory, sync_file
from millpond.state.shared.place import FIRST, PlaceError, write_whole


class PosixPlace:
    """A directory of a shared file system; see `SharedPlace`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()

    @property
    def url(self) -> str:
        """The directory as a URL, `file:///…`."""
        return self._directory.as_uri()

    def create(self, key: str, data: bytes) -> bool:
        """Make an object whole; return False, and change nothing, if the key has one."""
        with self._translate(), self._new_file(founds=key == FIRST) as temporary:
            self._fill(temporary, data)
            return self._link(temporary, self._path(key))

    def write(self, key: str, data: bytes) -> None:
        """Make an object, in place of one that the key has."""
        with self._translate(), self._new_file() as temporary:
            self._fill(temporary, data)
            self._rename(temporary, self._path(key))

    def read(self, key: str) -> bytes | None:
        """Return an object; None if the key has none."""
        with self._translate():
            try:
                return self._path(key).read_bytes()
            except FileNotFoundError:
                return None

    def has(self, key: str) -> bool:
        """Return whether the key has an object."""
        with self._translate():
            try:
                return stat.S_ISREG(os.stat(self._path(key)).st_mode)
            except FileNotFoundError:
                return False

    def list_keys(self, prefix: str, after: str = "") -> list[str]:
        """List the keys that begin with `prefix` and come after `after`, ascending."""
        folder, _, _ = prefix.rpartition("/")
        found = []
        with self._translate():
            for parent, _, names in os.walk(
                self._directory / folder, onerror=_raise_unless_missing
            ):
                base = Path(parent).relative_to(self._directory).as_posix()
                if not base.startswith("."):
                    found += [f"{base}/{name}" for name in names]
        return sorted(key for key in found if key.startswith(prefix) and key > after)

    def remove(self, key: str) -> None:
        """Remove an object; nothing happens if the key has none."""
        with self._translate():
            self._path(key).unlink(missing_ok=True)

    def upload(self, file: Path, key: str) -> None:
        """Make an object of a file's bytes, in place of one that the key has."""
        with self._translate(), self._new_file() as temporary:
            with open(file, "rb") as found, open(temporary, "wb", opener=open_owner_only) as new:
                shutil.copyfileobj(found, new)
            sync_file(temporary)
            self._rename(temporary, self._path(key))

    def download(self, key: str, to: Path) -> bool:
        """Write an object to a file, which appears whole; return False if the key has none."""
        with self._translate(), suppress(FileNotFoundError):
            with open(self._path(key), "rb") as found, write_whole(to) as file:
                shutil.copyfileobj(found, file)
            return True
        return False

    def _path(self, key: str) -> Path:
        return self._directory / key

    @contextmanager
    def _new_file(self, founds: bool = False) -> Iterator[Path]:
        """Give a path for a file that is to get a key.

        The directory is made with the first key alone. Made at any time, it would be made on the
        machine's own disk when the storage is not mounted any more, and a driver would acknowledge
        there what nobody else sees.
        """
        folder = self._directory / ".new"
        if not folder.exists():
            if not founds and not self._path(FIRST).exists():
                raise OSError(errno.ENOENT, f"there is no {FIRST}; is the storage mounted?")
            make_directory(folder)
        temporary = folder / uuid.uuid4().hex
        try:
            yield temporary
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _fill(self, temporary: Path, data: bytes) -> None:
        with open(temporary, "wb", opener=open_owner_only) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _link(self, temporary: Path, path: Path) -> bool:
        make_directory(path.parent)
        try:
            os.link(temporary, path)
        except OSError as error:
            if os.stat(temporary).st_nlink != 2:
                if isinstance(error, FileExistsError):
                    return False
                raise
        sync_directory(path.parent)
        return True

    def _rename(self, temporary: Path, path: Path) -> None:
        make_directory(path.parent)
        os.rename(temporary, path)
        sync_directory(path.parent)

    @contextmanager
    def _translate(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise PlaceError(f"{self.url}: {error}") from error


def _raise_unless_missing(error: OSError) -> None:
    """Let a folder be empty that is not there, and none that cannot be read."""
    if not isinstance(error, FileNotFoundError):
        raise error
