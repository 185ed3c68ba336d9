"""The file of tokens: who may call a server. Tokens come and go while the server runs.

The file holds the hash of each token and never the token, which is printed once, when it is made. A
token is 256 random bits, so nobody can find it by trying, and one round of SHA-256 is enough. The
file is replaced as a whole; a server looks at most once a second whether it has been. A file that
is missing or cannot be read lets nobody in.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from millpond.api.rights.caller import Caller
from millpond.api.rights.jwt_tokens import JWT_MARK, JwtSettings, read_jwt_settings
from millpond.api.rights.make_caller import make_caller
from millpond.errors import MillpondError

log = logging.getLogger("millpond.api")

#: What every token begins with: whoever finds one in a text knows what it is.
MARK = "mp"
#: How often a server looks whether the file has changed, in seconds.
LOOK_SECONDS = 1.0
#: The most bytes a file of tokens has.
_MOST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class TokenEntry:
    """A token as the file has it.

    Attributes:
        caller: Who bears it.
        hash: The SHA-256 of the token, in hexadecimal.
        expires_at: When it ends, in seconds since 1970 UTC; None: never.
    """

    caller: Caller
    hash: str
    expires_at: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The entry as the file has it."""
        caller = self.caller
        quotas = {k: v for k, v in asdict(caller.quotas).items() if v is not None}
        return {
            "id": caller.id,
            "owner": caller.owner,
            "role": caller.role.word,
            "streams": list(caller.streams),
            "quotas": quotas,
            "expires_at": self.expires_at,
            "sha256": self.hash,
        }

    @staticmethod
    def from_json(body: dict[str, Any]) -> TokenEntry:
        """Read what `to_json` wrote. Raises KeyError, TypeError or ValueError."""
        expires_at = body["expires_at"]
        if len(bytes.fromhex(body["sha256"])) != 32:
            raise ValueError("sha256")
        caller = make_caller(
            str(body["id"]), body["owner"], body["role"], body["streams"], **body["quotas"]
        )
        return TokenEntry(caller, body["sha256"], None if expires_at is None else float(expires_at))


def read_entries(path: Path) -> list[TokenEntry]:
    """The tokens of a file.

    Raises:
        MillpondError: SERVE-712, the file cannot be read, or others than its owner can.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:
            about = os.fstat(file.fileno())
            text = file.read(_MOST_BYTES)
        if about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise ValueError("Others than its owner can read or write it")
        return [TokenEntry.from_json(body) for body in json.loads(text)["tokens"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise MillpondError(
            "SERVE-712",
            f'the tokens in "{path}" cannot be used',
            detail=f"{reason}.",
            hint="millpond token add makes the file; only its owner may read it.",
        ) from None


def write_entries(path: Path, entries: list[TokenEntry]) -> None:
    """Replace the file by one with these tokens, which only its owner can read.

    Raises:
        MillpondError: SERVE-712, it cannot be written.
    """
    text = json.dumps({"tokens": [entry.to_json() for entry in entries]}, indent=1)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}-")  # mode 0600
        with open(made, "w") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise MillpondError(
            "SERVE-712", f'the tokens in "{path}" cannot be written', detail=f"{error.strerror}."
        ) from error


def add_token(
    path: Path, make: Callable[[str], Caller], expires_at: float | None = None
) -> tuple[str, Caller]:
    """Add a token to a file, which is made if there is none; give the token, and who bears it.

    Args:
        path: The file.
        make: Makes the caller of an id. Raises ValueError for what cannot be.
        expires_at: When the token ends, in seconds since 1970 UTC.
    """
    entries = read_entries(path) if path.exists() else []
    taken = {entry.caller.id for entry in entries}
    id = next(i for i in iter(lambda: secrets.token_hex(4), "") if i not in taken)
    token = f"{MARK}_{id}_{secrets.token_urlsafe(32)}"
    caller = make(id)
    write_entries(path, [*entries, TokenEntry(caller, hash_token(token), expires_at)])
    return token, caller


def revoke_token(path: Path, id: str) -> None:
    """Take a token out of a file. Raises SERVE-712 if it has none of this id."""
    entries = read_entries(path)
    rest = [entry for entry in entries if entry.caller.id != id]
    if len(rest) == len(entries):
        raise MillpondError(
            "SERVE-712",
            f'no token "{id[:40]}"',
            hint="millpond token list lists them; a token has its id between its underscores.",
        )
    write_entries(path, rest)


def hash_token(token: str) -> str:
    """The hash by which a token is kept."""
    return hashlib.sha256(token.encode()).hexdigest()


class TokenBook:
    """The tokens of a server: those of its file, its one token, and JSON Web Tokens.

    Safe to use from any thread.
    """

    def __init__(
        self,
        path: Path | None = None,
        single: TokenEntry | None = None,
        jwt: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._single = single
        self._now = now
        self._lock = threading.Lock()
        self._entries: dict[str, TokenEntry] = {}
        self._jwt_path = jwt
        self._jwt: JwtSettings | None = None
        self._seen: object = None
        self._jwt_seen: object = None
        self._looked_at = -LOOK_SECONDS
        self._read(time.monotonic())

    def find(self, token: str) -> Caller | None:
        """The caller who bears a token; None if there is no such token."""
        mark, _, rest = token.partition("_")
        id = rest.partition("_")[0] if mark == MARK else ""
        entry = self._current().get(id)
        if id and entry is None:  # it may have been added a moment ago
            entry = self._current(max_age=0.0).get(id)
        if not id and self._jwt is not None and token.count(".") == 2:
            return self._jwt.find(token)
        given = hash_token(token)
        for known in (entry, self._single):
            if known is not None and hmac.compare_digest(given, known.hash):
                return known.caller if self._is_alive(known) else None
        return None

    def is_alive(self, caller: Caller) -> bool:
        """Whether the caller's token is still there, and grants the same."""
        if self._single is not None and caller == self._single.caller:
            return True
        entry = self._current().get(caller.id)
        if caller.id.startswith(JWT_MARK):
            return self._jwt is not None and self._now() < (caller.ends_at or 0.0)
        return entry is not None and entry.caller == caller and self._is_alive(entry)

    def _is_alive(self, entry: TokenEntry) -> bool:
        return entry.expires_at is None or self._now() < entry.expires_at

    def _current(self, max_age: float = LOOK_SECONDS) -> dict[str, TokenEntry]:
        now = time.monotonic()
        with self._lock:
            if now - self._looked_at >= max_age:
                self._read(now)
            return self._entries

    def _read(self, now: float) -> None:
        """Read the files that are others than the ones read before."""
        self._looked_at = now
        if self._path is not None and (seen := look_at(self._path)) != self._seen:
            self._seen = seen
            try:
                self._entries = {e.caller.id: e for e in read_entries(self._path)}
            except MillpondError as error:
                log.error("nobody is let in by a token: %s", error)
                self._entries = {}
        if self._jwt_path is not None and (seen := look_at(self._jwt_path)) != self._jwt_seen:
            self._jwt_seen = seen
            try:
                self._jwt = read_jwt_settings(self._jwt_path)
            except MillpondError as error:
                log.error("nobody is let in by a JSON Web Token: %s", error)
                self._jwt = None


def look_at(path: Path) -> object:
    """What is another once a file has been replaced or changed."""
    try:
        about = path.stat()
    except OSError as error:
        return error.errno
    return about.st_ino, about.st_mtime_ns, about.st_size, about.st_mode
