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
from pathlib import Path

from millpond.model.owner_only import make_directory
from millpond.state.file_share import FileShare, share_of

#: So many batches' notes stay; Spark keeps as many.
_NOTES = 4


class SharedCheckpoint:
    """The shared copy of one checkpoint's folder."""

    def __init__(self, folder: Path, note: str, share: FileShare) -> None:
        self._folder, self._note, self._share = folder, note, share
        self._given: deque[tuple[str, dict[str, str]]] = deque()

    @classmethod
    def of(cls, folder: Path, note: str) -> SharedCheckpoint | None:
        """Return the shared copy of a folder; None if it is this machine's alone.

        Args:
            folder: The folder of the checkpoint.
            note: The name of the note in it: JSON of the batch and of the files' digests.
        """
        share = share_of(folder / note)
        return None if share is None else cls(folder, note, share)

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

    def restore(self, last: int) -> None:
        """Make the folder what it was when a batch was built, whatever this machine has of it.

        Args:
            last: The last batch that is part of an epoch; -1 for none.

        Raises:
            MillpondError: STORE-603, the shared store gives no answer.
        """
        notes = self._share.list_names(self._folder, f"note-{last:012d}-") if last >= 0 else []
        for name in ("offsets", "commits", "sources"):
            shutil.rmtree(self._folder / name, ignore_errors=True)
        for name in ("metadata", self._note):
            (self._folder / name).unlink(missing_ok=True)
        if not notes or not self._share.fetch(self._folder / self._note, notes[-1]):
            return  # of a batch that is part of an epoch the check says what is missing
        files = dict(json.loads((self._folder / self._note).read_bytes())["files"])
        for name, digest in files.items():
            file = self._folder / name
            make_directory(file.parent)
            self._share.fetch(file, f"{file.name}-{digest}")
