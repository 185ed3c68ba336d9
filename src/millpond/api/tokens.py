"""The token `auto`: a token in a file that only its owner can read.

On this machine, only users who can read the file can call the server. A user has one such token:
every server and every shell that is started with `--token auto` uses it.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from millpond.errors import MillpondError
from millpond.state.private_file import UnusableFileError, make_private_file, read_private_file

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
        make_private_file(path, secrets.token_urlsafe(32))
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
        return read_private_file(path)
    except FileNotFoundError:
        raise _unusable_error(path, "millpond serve --token auto makes it.") from None
    except UnusableFileError as error:
        raise _unusable_error(path, str(error)) from error


def _unusable_error(path: Path, detail: str) -> MillpondError:
    return MillpondError(
        "SERVE-712",
        f'the token in "{path}" cannot be used',
        detail=detail,
        hint="Remove the file if it is there, and start the server with --token auto.",
    )
