"""Setting aside: opening a store moves files that nothing refers to into a folder of their own.

    set_aside/20261122T130507Z-unreferenced/segments/5b0c….arrow
    set_aside/20261122T130507Z-unknown/segments/notes.txt

An *unreferenced* file is a file of Millpond's that no epoch and no push refers to. A store opens
only if its whole journal could be folded. So such a file was never committed (its writer died
first), or a committed epoch replaced it. Unreferenced files are removed after a week; when there
are more than four gigabytes of them, the oldest are removed sooner; `millpond check --clean`
removes all of them at once.
An *unknown* file has a name that Millpond gives to no file. It stays until somebody removes it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from millpond.model.owner_only import make_directory

DIRECTORY = "set_aside"

#: How long unreferenced files stay, in days, and how many bytes of them.
KEPT_DAYS, KEPT_BYTES = 7, 4 << 30

_FOLDER = re.compile(r"(\d{8}T\d{6})Z-(unreferenced|unknown)")

#: The names Millpond gives to files: a random number, or a push's number, finished or not.
_OURS = re.compile(r"\.?[0-9a-f]{32}\.arrow(\.tmp)?|\.?\d{12,}\.(arrow|tmp)")


@dataclass(frozen=True)
class SetAside:
    """A folder of files that were set aside together."""

    path: Path
    at: datetime
    is_known: bool
    files: int
    bytes: int


def set_aside(store: Path, paths: Iterable[str], at_us: int) -> list[str]:
    """Move files of a store aside; return the paths of the unknown files among them.

    Args:
        store: The store's directory.
        paths: The files, relative to the store's directory.
        at_us: The clock, in microseconds since 1970.
    """
    stamp = datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y%m%dT%H%M%SZ")
    unknown = []
    for path in sorted(paths):
        known = _OURS.fullmatch(Path(path).name) is not None
        folder = store / DIRECTORY / f"{stamp}-{'unreferenced' if known else 'unknown'}"
        target = _free_path(folder / path)
        make_directory(target.parent)
        (store / path).rename(target)
        if not known:
            unknown.append(path)
    return unknown


def _free_path(path: Path) -> Path:
    number = 1
    free = path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


def list_set_aside(store: Path) -> list[SetAside]:
    """List the folders of files that were set aside so far, the oldest first."""
    found = []
    for folder in sorted((store / DIRECTORY).glob("*")):
        if match := _FOLDER.fullmatch(folder.name):
            sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
            at = datetime.strptime(match[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
            known = match[2] == "unreferenced"
            found.append(SetAside(folder, at, known, len(sizes), sum(sizes)))
    return found


def clean_set_aside(store: Path, at_us: int, everything: bool = False) -> int:
    """Remove unreferenced files that were kept long enough; return how many.

    Args:
        store: The store's directory.
        at_us: The clock, in microseconds since 1970.
        everything: Whether to remove all unreferenced files now.
    """
    removed, held = 0, 0
    for folder in reversed(list_set_aside(store)):
        if not folder.is_known:
            continue
        held += folder.bytes
        age = at_us / 1e6 - folder.at.timestamp()
        if everything or age > KEPT_DAYS * 86_400 or held > KEPT_BYTES:
            shutil.rmtree(folder.path, ignore_errors=True)
            removed += folder.files
    return removed
