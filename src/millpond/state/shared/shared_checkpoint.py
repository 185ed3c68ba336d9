"""A source's checkpoint in a shared store: what another driver goes on from.

Before a batch is built, the files it rests on and the note that names them are given to the shared
store. Each is given under a name with its digest, so no driver replaces another's. A note has the
batch and the term of the driver that wrote it: of a batch that is part of an epoch, the note of the
greatest term is of the driver that committed it, or of a later one that read the same offsets.
"""

from __future__ import annotations

import json
import shutil
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from millpond.model.owner_only import make_directory
from millpond.state.file_share import FileShare, share_of

#: So many batches' notes stay; Spark keeps as many.
_NOTES = 4


class SharedCheckpoint:
    """The shared copy of one checkpoint's folder."""

    def __init__(
        self, folder: Path, note: str, share: FileShare, digest: Callable[[Path], str]
    ) -> None:
        self._folder, self._note, self._share, self._digest = folder, note, share, digest
        self._given: deque[tuple[str, dict[str, str]]] = deque()

    @classmethod
    def of(cls, folder: Path, note: str, digest: Callable[[Path], str]) -> SharedCheckpoint | None:
        """Return the shared copy of a folder; None if it is this machine's alone.

        Args:
            folder: The folder of the checkpoint.
            note: The name of the note in it: JSON of the batch and of the files' digests.
            digest: Computes the digest of a file.
        """
        share = share_of(folder / note)
        return None if share is None else cls(folder, note, share, digest)

    def publish(self, batch: int, files: dict[str, str]) -> None:
        """Give everybody what a batch rests on.

        Args:
            batch: The batch's number.
            files: The digest of each file, by its name in the folder.

        Raises:
            MillpondError: STORE-603, the shared store gives no answer.
        """
        before = {(n, d) for _, given in self._given for n, d in given.items()}
        for name, digest in files.items():
            if (name, digest) not in before:
                file = self._folder / name
                self._share.publish(file, f"{file.name}-{digest}")
        note = f"note-{batch:012d}-{self._share.term:012d}"
        self._share.publish(self._folder / self._note, note)
        self._given.append((note, dict(files)))
        if len(self._given) > _NOTES:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        note, files = self._given.popleft()
        self._share.withdraw(self._folder / note)
        kept = {(n, d) for _, given in self._given for n, d in given.items()}
        for name, digest in files.items():
            if (name, digest) not in kept:
                file = self._folder / name
                self._share.withdraw(file, f"{file.name}-{digest}")

    @property
    def url(self) -> str:
        """Where the shared storage has it, for people."""
        return self._share.locate(self._folder)

    def restore(self, last: int) -> None:
        """Make the folder what it was when a batch was built, whatever this machine has of it.

        A file that this machine has as it was stays, so it does not matter what became of its copy.

        Args:
            last: The last batch that is part of an epoch; -1 for none.

        Raises:
            MillpondError: STORE-603, the shared store gives no answer.
        """
        notes = self._share.list_names(self._folder, f"note-{last:012d}-") if last >= 0 else []
        note = self._folder / self._note
        note.unlink(missing_ok=True)
        files: dict[str, str] = {}
        if notes and self._share.fetch(note, notes[-1]):
            # Of a note that cannot be read, and of what is missing, the check of the folder says so
            with suppress(ValueError, TypeError, KeyError):
                files = dict(json.loads(note.read_bytes())["files"])
        for name in ("offsets", "commits", "sources"):
            for file in sorted((self._folder / name).rglob("*")):
                if not file.is_dir() and not self._is_whole(file, files):
                    file.unlink()
            if not files:
                shutil.rmtree(self._folder / name, ignore_errors=True)
        for name, digest in files.items():
            file = self._folder / name
            if not self._is_whole(file, files):
                file.unlink(missing_ok=True)
                make_directory(file.parent)
                self._share.fetch(file, f"{file.name}-{digest}")
        if "metadata" not in files:
            (self._folder / "metadata").unlink(missing_ok=True)

    def _is_whole(self, file: Path, files: dict[str, str]) -> bool:
        """Whether a file of the folder is there, and is what a note says of it."""
        wanted = files.get(file.relative_to(self._folder).as_posix())
        return wanted is not None and file.is_file() and self._digest(file) == wanted
