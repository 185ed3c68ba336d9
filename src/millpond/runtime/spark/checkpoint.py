"""The checkpoint of a source's streaming query, held against what the epoch log has.

The checkpoint says which files or offsets each batch stands for; the epoch log says which batches
are part of epochs. If files of the checkpoint are lost or damaged, Spark numbers batches anew or
lists files anew. Then new rows would be passed over as batches that are committed already, or rows
would come twice. So `Checkpoint.note_batch` writes down digests of the files a batch rests on
before the batch is built, and `Checkpoint.check` compares them before the streaming query is
started again.

INV-CHECKPOINT-1: when a batch is part of an epoch, its note and the files the note names are on
    disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millpond.errors import MillpondError
from millpond.model.owner_only import make_directory, write_owner_only
from millpond.state.arrow_file import sync_directory, sync_file, translate_write_errors
from millpond.state.file_share import fetch, publish
from millpond.state.shared.shared_checkpoint import SharedCheckpoint

_NOTE = "millpond.json"
_COMPACT = ".compact"


def note_once(folder: Path, name: str, find: Callable[[], Any]) -> Any:
    """What was found when a source was opened for the first time, written down then as JSON.

    'latest' means another place every time it is asked, and Spark asks anew when the first batch
    is repeated after a crash.
    """
    file = folder / name
    if file.exists() or fetch(file):
        return json.loads(file.read_text())
    found = find()
    with translate_write_errors(folder):
        make_directory(folder)
        written = folder / f".{name}.tmp"
        write_owner_only(written, json.dumps(found).encode())
        sync_file(written)
        os.replace(written, file)
        sync_directory(folder)
    publish(file)
    return found


class Checkpoint:
    """The folder of one streaming query's checkpoint.

    Args:
        folder: The folder, `checkpoints/stream-<id>` of the store.
        stream: The stream's name, for errors.
    """

    def __init__(self, folder: Path, stream: str) -> None:
        self.folder = folder
        self._stream = stream
        self._digests: dict[str, str] = {}
        self._shared = SharedCheckpoint.of(folder, _NOTE, _digest)

    def note_batch(self, number: int) -> None:
        """Write down the digests of the files that a batch rests on.

        Spark writes each of these files once. So a file is read and synced once per query.

        Raises:
            MillpondError: STORE-603, the note cannot be written.
        """
        with translate_write_errors(self.folder):
            names = self._list_files(number)
            for name in names:
                if name not in self._digests:
                    self._digests[name] = _digest(self.folder / name)
                    sync_file(self.folder / name)
                    sync_directory((self.folder / name).parent)
            self._digests = {name: self._digests[name] for name in names}
            written = self.folder / f".{_NOTE}.tmp"
            noted = {"batch": number, "files": self._digests}
            write_owner_only(written, json.dumps(noted).encode())
            sync_file(written)
            os.replace(written, self.folder / _NOTE)
            sync_directory(self.folder)
        if self._shared is not None:
            self._shared.publish(number, self._digests)

    def check(self, last: int) -> None:
        """Check the checkpoint before a streaming query goes on from it.

        Args:
            last: The number of the last batch of the source that is part of an epoch; -1 for none.

        Raises:
            MillpondError: STORE-602, the checkpoint is damaged, or is not the one that the last
                batch was read with.
        """
        self._digests = {}
        if self._shared is not None:
            self._shared.restore(last)
        note = self.folder / _NOTE
        if not note.exists():
            # Without a batch nothing can be lost; earlier versions of Millpond wrote no notes.
            if last >= 0 and not (self.folder / "offsets" / str(last)).exists():
                raise self._damage(f"offsets/{last} is missing")
            return
        try:
            noted = json.loads(note.read_text())
            batch, files = int(noted["batch"]), dict(noted["files"])
        except (OSError, ValueError, TypeError, KeyError):
            if last < 0:
                return
            raise self._damage(f"{_NOTE} cannot be read") from None
        # The process may have been killed between the note and the commit.
        if batch not in (last, last + 1):
            raise self._damage(f"it has come to batch {batch}, and the store to batch {last}")
        for name, digest in files.items():
            if not (self.folder / name).is_file():
                raise self._damage(f"{name} is missing")
            if _digest(self.folder / name) != digest:
                raise self._damage(f"{name} is not what Spark wrote")

    def _list_files(self, number: int) -> list[str]:
        """The files a batch rests on: its offsets and those before, and the source's own log."""
        # Spark wants the offsets of the batch before, too: what the last batch read begins there.
        names = ["metadata", *(f"offsets/{n}" for n in (number - 1, number) if n >= 0)]
        for source in sorted((self.folder / "sources").glob("*")):
            logs = {
                int(file.name.removesuffix(_COMPACT)): file.name
                for file in sorted(source.iterdir())
                if file.name.removesuffix(_COMPACT).isdigit()
            }
            # A compacted file replaces all before it.
            compacted = [n for n, name in logs.items() if name.endswith(_COMPACT)]
            first = max(compacted, default=0)
            names += [f"sources/{source.name}/{logs[n]}" for n in sorted(logs) if n >= first]
        return [name for name in names if (self.folder / name).is_file()]

    def _damage(self, found: str) -> MillpondError:
        where = f"checkpoints/{self.folder.name}"
        if self._shared is not None:
            where += f", which the shared store has at {self._shared.url}"
        return MillpondError(
            "STORE-602",
            f'the checkpoint of stream "{self._stream}" is damaged',
            detail=f"In {where}: {found}. The stream has stopped, because rows could be left out or"
            " come twice.",
            hint="Put the folder back as it was. Or DROP the stream (CASCADE drops what reads it, "
            "too) and CREATE it again: it then reads its source from the beginning.",
        )


def cut_back(folder: Path, last: int) -> bool:
    """Cut a checkpoint to a batch, as if the process had died right after committing it.

    Args:
        folder: The folder of the checkpoint, of which a store that was restored has a copy.
        last: The number of the last batch of the source that is in the store; -1 for none.

    Returns:
        Whether the source can go on; if not, `Checkpoint.check` says so when the store is opened.
    """
    if last < 0:
        for name in ("offsets", "commits", "sources"):
            shutil.rmtree(folder / name, ignore_errors=True)
        (folder / _NOTE).unlink(missing_ok=True)
        return True
    if not (folder / "offsets" / str(last)).is_file():
        return False
    for name in ("offsets", "commits"):
        _remove_behind(folder / name, last)
    offsets = (folder / "offsets" / str(last)).read_text().splitlines()[2:]
    for number, offset in enumerate(offsets):
        place = json.loads(offset) if offset.startswith("{") else {}
        if isinstance(place, dict) and isinstance(place.get("logOffset"), int):
            source = folder / "sources" / str(number)
            _remove_behind(source, place["logOffset"])
            if not _is_gapless(source, place["logOffset"]):
                return False
    Checkpoint(folder, folder.name).note_batch(last)
    return True


def _remove_behind(folder: Path, last: int) -> None:
    """Remove the files of numbers behind one, and Spark's checksums of them."""
    for file in sorted(folder.glob("*")):
        number = file.name.removeprefix(".").removesuffix(".crc").removesuffix(_COMPACT)
        if number.isdigit() and int(number) > last:
            file.unlink()


def _is_gapless(folder: Path, last: int) -> bool:
    """Whether a source's log is there from its beginning, or a compacted file, up to a number."""
    for number in range(last, -1, -1):
        if (folder / f"{number}{_COMPACT}").is_file():
            return True
        if not (folder / str(number)).is_file():
            return False
    return True


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
