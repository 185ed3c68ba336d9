"""The operator's file of secrets, which definitions name: `OPTIONS (password secret('db'))`.

The file is JSON: a text for each name, or for the settings of a Kafka client an object of texts.
The environment variable `MILLPOND_SECRETS` names it (`--secrets` sets the variable), so that
workers find it as the driver does. It is read whenever a source is opened and kept nowhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from millpond.errors import MillpondError
from millpond.model.secret_options import name_of_secret

#: The environment variable that names the file.
VARIABLE = "MILLPOND_SECRETS"

#: What the file holds under a name.
Secret = str | dict[str, str]


def read_secrets(file: str | None = None) -> dict[str, Secret]:
    """All secrets of a file, or of the one that the environment names; none if it names none.

    Raises:
        MillpondError: CQL-214, the file cannot be read, or others than its owner can. It never
            shows a value of the file.
    """
    path = file or os.environ.get(VARIABLE)
    if not path:
        return {}
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as opened:
            about = os.fstat(opened.fileno())
            found = json.load(opened)
        if about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise ValueError("Others than its owner can read or write it")
        if not isinstance(found, dict) or not all(map(_is_secret, found.values())):
            raise ValueError("It is not a JSON object of texts, or of objects of texts")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
            reason = "It is not JSON"
        raise MillpondError(
            "CQL-214",
            f'the file of secrets "{Path(path).name}" cannot be used',
            detail=f"{reason}.",
            hint='Write {"name": "secret"} into it, with mode 0600.',
        ) from None
    return found


def find_secret(name: str) -> Secret:
    """The secret of a name. Raises CQL-214 if there is none."""
    secrets = read_secrets()
    if name not in secrets:
        raise MillpondError(
            "CQL-214",
            f'no secret "{name[:100]}"',
            detail=None if secrets else "There is no file of secrets.",
            hint="The operator writes it into the file that --secrets names.",
        )
    return secrets[name]


def fill_in_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """A source's options, with the secrets instead of their names.

    Raises:
        MillpondError: CQL-214, a secret is missing, or is no text.
    """
    filled = dict(options)
    for key, value in options.items():
        name = name_of_secret(value)
        if name is None:
            continue
        secret = find_secret(name)
        if not isinstance(secret, str):
            raise MillpondError(
                "CQL-214", f'the secret "{name}" is not a text', hint=f"{key} takes a text."
            )
        filled[key] = secret
    return filled


def hide_secrets(text: str) -> str:
    """A text without any secret of the file in it."""
    try:
        every = read_secrets()
    except MillpondError:
        return text
    for secret in every.values():
        for value in [secret] if isinstance(secret, str) else secret.values():
            if value:
                text = text.replace(value, "…")
    return text


def _is_secret(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(v, str) for v in value.values())
    return isinstance(value, str)
