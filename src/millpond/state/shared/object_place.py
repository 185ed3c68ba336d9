"""A shared place in an object store that has conditional puts: S3 and what speaks like it.

`obstore` gives the conditional put that Arrow's file systems lack. Credentials come from where the
cloud's own tools have them (environment, profile, the machine's role), never from a store or a
statement.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.errors import MillpondError
from millpond.state.shared.place import PlaceError, write_whole

if TYPE_CHECKING:
    from obstore.store import ObjectStore, RetryConfig

#: How much of an object is held in memory while it is written to a file, in bytes.
_CHUNK = 8 << 20
#: A request is tried again a few times; what has no answer then, the log tries again itself.
_RETRIES: RetryConfig = {"max_retries": 3, "retry_timeout": timedelta(seconds=10)}


class ObjectPlace:
    """A prefix of an object store; see `SharedPlace`."""

    def __init__(self, url: str, store: ObjectStore) -> None:
        self.url = url
        self._store = store

    def create(self, key: str, data: bytes) -> bool:
        """Make an object whole; return False, and change nothing, if the key has one."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._translate():
            try:
                obstore.put(self._store, key, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def write(self, key: str, data: bytes) -> None:
        """Make an object, in place of one that the key has."""
        import obstore

        with self._translate():
            obstore.put(self._store, key, data)

    def read(self, key: str) -> bytes | None:
        """Return an object; None if the key has none."""
        import obstore

        with self._translate():
            try:
                return bytes(obstore.get(self._store, key).bytes())
            except FileNotFoundError:
                return None

    def has(self, key: str) -> bool:
        """Return whether the key has an object."""
        import obstore

        with self._translate():
            try:
                obstore.head(self._store, key)
            except FileNotFoundError:
                return False
        return True

    def list_keys(self, prefix: str, after: str = "") -> list[str]:
        """List the keys that begin with `prefix` and come after `after`, ascending."""
        import obstore

        folder = prefix.rpartition("/")[0]
        with self._translate():
            pages = obstore.list(self._store, folder, offset=after or None)
            found = [entry["path"] for page in pages for entry in page]
        return sorted(key for key in found if key.startswith(prefix) and key > after)

    def remove(self, key: str) -> None:
        """Remove an object; nothing happens if the key has none."""
        import obstore

        with self._translate():
            try:
                obstore.delete(self._store, key)
            except FileNotFoundError:
                return

    def upload(self, file: Path, key: str) -> None:
        """Make an object of a file's bytes, in place of one that the key has."""
        import obstore

        with self._translate():
            obstore.put(self._store, key, file)

    def download(self, key: str, to: Path) -> bool:
        """Write an object to a file, which appears whole; return False if the key has none."""
        import obstore

        with self._translate(), suppress(FileNotFoundError):
            found = obstore.get(self._store, key)
            with write_whole(to) as file:
                for chunk in found.stream(min_chunk_size=_CHUNK):
                    file.write(chunk)
            return True
        return False

    @contextmanager
    def _translate(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            raise PlaceError(f"{self.url}: {_read_reason(str(error))}") from error


def _read_reason(text: str) -> str:
    """The reason in an error of the library.

    That is its first line, as what follows is of the library's insides and may have addresses, with
    the code of S3's answer instead of the beginning of its XML.
    """
    line = text.splitlines()[0]
    code = re.search(r"<Code>(\w+)</Code>", text)
    return line if code is None else line.partition("<")[0] + code[1]


def open_object_place(url: str, retries: RetryConfig | None = None) -> ObjectPlace:
    """Open a place in an object store.

    Args:
        url: `s3://bucket/prefix`; the endpoint, the region and the credentials are in the
            environment (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, …).
        retries: How often and how long a request is tried again before it has no answer.

    Raises:
        MillpondError: STORE-604, `obstore` is not installed, or it does not know the URL.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as error:
        raise MillpondError(
            "STORE-604",
            "stores on object storage need another package",
            hint="pip install 'millpond[cluster]', on every machine of the cluster.",
        ) from error
    plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    try:
        store = from_url(
            url, client_options={"allow_http": plain}, retry_config=retries or _RETRIES
        )
    except (BaseError, ValueError) as error:
        raise MillpondError(
            "STORE-604",
            f'"{url}" names no shared store',
            detail=str(error).splitlines()[0],
            hint="Name `s3://bucket/prefix`, or a directory that all machines have mounted.",
        ) from error
    return ObjectPlace(url, store)
