"""Small files that only their owner can read: keys and tokens, outside of any store.

Such a file is made once and never changed. It is whole before it gets its name, so another process
never reads half of it, and of two processes that make it at once both read the same content.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


class UnusableFileError(Exception):
    """A private file is missing, empty, another user's, or others may read it; the text says it."""


def make_private_file(path: Path, content: str) -> None:
    """Make the file with this content, unless there is one.

    Raises:
        OSError: the file cannot be made.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}-")  # mode 0600
    try:
        with open(made, "w") as file:
            file.write(f"{content}\n")
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)


def read_private_file(path: Path) -> str:
    """Read the file's content, without the end of its line.

    Raises:
        FileNotFoundError: there is no such file.
        UnusableFileError: it cannot be read, is empty, or is not for its owner alone.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:
            about = os.fstat(file.fileno())
            content = file.read(4096).strip()
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableFileError(f"{error}.") from error
    if about.st_uid != os.geteuid():
        raise UnusableFileError("It belongs to another user.")
    if stat.S_IMODE(about.st_mode) & 0o077:
        raise UnusableFileError("Others than its owner can read or write it.")
    if not content:
        raise UnusableFileError("It is empty.")
    return content
