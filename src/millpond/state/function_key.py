"""The key that says whose functions run: code in a store runs only if this key has sealed it.

A function's code is kept in the store as a pickle, and who loads a pickle runs it. So every
function carries a seal, an HMAC-SHA256 (RFC 2104) of all that it is, made with a key that lies
outside of every store, in a file of the user's own. A store that somebody else wrote or changed has
no seal of this user's key, and its code is not loaded before the user says so.

INV-SEAL-1: nothing of a function's code is unpickled whose seal was not verified.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pickletools
import secrets
from dataclasses import replace
from pathlib import Path

from millpond.catalog.objects import FunctionDef
from millpond.errors import MillpondError
from millpond.state.private_file import UnusableFileError, make_private_file, read_private_file

#: The environment variable that names the key's file.
VARIABLE = "MILLPOND_FUNCTION_KEY"

#: Stands for a name that a pickle computes and does not write down.
_COMPUTED = "(computed)"


class FunctionKey:
    """A user's key for functions, which is made when the first function is sealed."""

    def __init__(self, path: str | Path | None = None) -> None:
        """Use the key in a file.

        Args:
            path: The file; None for what MILLPOND_FUNCTION_KEY names, else
                `millpond/function_key` in the user's configuration directory.
        """
        named = path or os.environ.get(VARIABLE)
        config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        self.path = Path(named) if named else Path(config) / "millpond" / "function_key"

    def seal(self, definition: FunctionDef) -> FunctionDef:
        """Return the definition with this key's seal; make the key if there is none.

        Raises:
            MillpondError: CQL-221, the key cannot be made or used.
        """
        try:
            make_private_file(self.path, secrets.token_hex(32))
            key = read_private_file(self.path)
        except (OSError, UnusableFileError) as error:
            raise self._unusable_error(error) from error
        return replace(definition, seal=_seal_of(key, definition))

    def is_sealed(self, definition: FunctionDef) -> bool:
        """Whether this key has sealed the definition as it is; False if there is no key.

        Raises:
            MillpondError: CQL-221, there is a key and it cannot be used.
        """
        try:
            key = read_private_file(self.path)
        except FileNotFoundError:
            return False
        except UnusableFileError as error:
            raise self._unusable_error(error) from error
        return hmac.compare_digest(_seal_of(key, definition), definition.seal)

    def _unusable_error(self, error: Exception) -> MillpondError:
        said = error.strerror if isinstance(error, OSError) else str(error)
        return MillpondError(
            "CQL-221",
            f'the key for functions in "{self.path}" cannot be used',
            detail=str(said),
            hint=f"Have the file belong to you alone (mode 0600), or name another with {VARIABLE}.",
        )


def digest_code(definition: FunctionDef) -> str:
    """Compute the SHA-256 of a function's code, in hexadecimal."""
    return hashlib.sha256(definition.code).hexdigest()


def list_imports(definition: FunctionDef) -> list[str]:
    """List the names that a function's code imports as it is loaded, without loading it.

    A pickle that does something when it is loaded has to name what it calls, so calls of the
    operating system show here. What the function does when it is called is not seen.
    """
    found: set[str] = set()
    pushed: list[str] = []
    memo: dict[int, str] = {}
    try:
        for operation, argument, _ in pickletools.genops(definition.code):
            match operation.name:
                case "GLOBAL" | "INST":
                    found.add(str(argument).replace(" ", "."))
                case "STACK_GLOBAL":
                    found.add(".".join(pushed[-2:]))
                case "MEMOIZE":
                    memo[len(memo)] = pushed[-1] if pushed else _COMPUTED
                case "PUT" | "BINPUT" | "LONG_BINPUT":
                    memo[int(str(argument))] = pushed[-1] if pushed else _COMPUTED
                case "GET" | "BINGET" | "LONG_BINGET":
                    pushed.append(memo.get(int(str(argument)), _COMPUTED))
                case "PROTO" | "FRAME" | "MARK":
                    pass
                case _:
                    pushed.append(argument if isinstance(argument, str) else _COMPUTED)
    except ValueError:
        found.add("(no pickle)")
    return sorted(found)


def _seal_of(key: str, definition: FunctionDef) -> str:
    said = [
        definition.name,
        definition.inside,
        list(definition.arguments),
        definition.returns,
        definition.cost,
        definition.max_seconds,
        digest_code(definition),
    ]
    return hmac.new(key.encode(), json.dumps(said).encode(), hashlib.sha256).hexdigest()
