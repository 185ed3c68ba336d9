"""Files and directories that only their owner can read, whatever the process's umask is."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

#: The permissions of a file and of a directory.
FILE, DIRECTORY = 0o600, 0o700


def open_owner_only(path: str | Path, flags: int) -> int:
    """Open a file, or create it for its owner only; the `opener` of Python's `open`."""
    return os.open(path, flags | os.O_CLOEXEC, FILE)


def write_owner_only(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    with open(path, "wb", opener=open_owner_only) as file:
        file.write(content)


def create_owner_only(path: Path) -> None:
    """Create an empty file for a library that would create it with other permissions."""
    os.close(open_owner_only(path, os.O_WRONLY | os.O_CREAT))


def make_directory(path: Path) -> None:
    """Make a directory, with those above it that are missing; nothing where there is one."""
    missing = [path, *path.parents]
    for directory in reversed([d for d in missing if not d.exists()]):
        directory.mkdir(mode=DIRECTORY, exist_ok=True)


def tighten(directory: Path) -> None:
    """Take from everybody but the owner what they may do with a directory and all that is in it.

    Symbolic links are left alone, and so is what belongs to another user.
    """
    _tighten(directory, DIRECTORY)
    for parent, folders, files in os.walk(directory):
        for name in folders:
            _tighten(Path(parent, name), DIRECTORY)
        for name in files:
            _tighten(Path(parent, name), FILE)


def _tighten(path: Path, mode: int) -> None:
    with suppress(FileNotFoundError, PermissionError):
        about = os.lstat(path)
        if not stat.S_ISLNK(about.st_mode) and stat.S_IMODE(about.st_mode) & 0o077:
            path.chmod(stat.S_IMODE(about.st_mode) & mode)
