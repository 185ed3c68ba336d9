"""The token `auto`: a token in a file that only its owner can read.

On this machine, only users who can read the file can call the server. A user has one such token:
every server and every shell that is started with `--token auto` uses it.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from millpond.errors import MillpondError

#: The word that stands for the kept token.
AUTO = "auto"


def token_file() -> Path:
    """Where the token is kept: `millpond/token` in the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "millpond" / "token"


def make_token() -> str:
    """The kept token, made if there is none.

    Raises:
        MillpondError: SERVE-712, the file cannot be made, or others can read it.
    """
    path = token_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The file is whole before it gets its name, so another process never reads half a token.
        made, temporary = tempfile.mkstemp(dir=path.parent, prefix="token-")  # for its owner only
        try:
            with open(made, "w") as file:
                file.write(f"{secrets.token_urlsafe(32)}\n")
            with suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            os.unlink(temporary)
    except OSError as error:
        raise _unusable_error(path, f"{error.strerror}.") from error
    return read_token()


def read_token() -> str:
    """The kept token.

    Raises:
        MillpondError: SERVE-712, there is none, or others can read it.
    """
    path = token_file()
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:
            about = os.fstat(file.fileno())
            token = file.read(4096).strip()
    except FileNotFoundError:
        raise _unusable_error(path, "millpond serve --token auto makes it.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable_error(path, f"{error}.") from error
    if about.st_uid != os.geteuid():
        raise _unusable_error(path, "It belongs to another user.")
    if stat.S_IMODE(about.st_mode) & 0o077:
        raise _unusable_error(path, "Others than its owner can read or write it.")
    if not token:
        raise _unusable_error(path, "It is empty.")
    return token


def _unusable_error(path: Path, detail: str) -> MillpondError:
    return MillpondError(
        "SERVE-712",
        f'the token in "{path}" cannot be used',
        detail=detail,
        hint="Remove the file if it is there, and start the server with --token auto.",
    )
