"""The names of user-defined functions inside Millpond: such a name never changes its meaning.

A function a user calls `distance` is known to DuckDB as `__udf_<digest>_distance`, where the digest
is that of its code and signature. So stored factors, running tasks and open connections need not
learn when a function is defined anew: the new function has another name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

#: The beginning of every name inside; no name a user may choose begins so.
PREFIX = "__udf_"
_INSIDE = re.compile(PREFIX + r"[0-9a-f]{16}_([A-Za-z0-9_]+)", re.IGNORECASE)


def name_inside(name: str, content: Iterable[bytes]) -> str:
    """Make the name inside of a function with this name and content (its code, its signature).

    >>> name_inside("distance", [b"code"])
    '__udf_c74796d95b9dbec5_distance'
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in content:
        digest.update(len(part).to_bytes(8, "little") + part)
    return f"{PREFIX}{digest.hexdigest()}_{name.lower()}"


def names_inside(text: str) -> set[str]:
    """Find the names inside that occur in a text."""
    if PREFIX not in text.lower():
        return set()
    return {match[0].lower() for match in _INSIDE.finditer(text)}


def calls_inside(sql: str) -> frozenset[str]:
    """Find the calls of user-defined functions in some SQL, outermost calls whole.

    >>> sorted(calls_inside('__udf_c74796d95b9dbec5_f("a)", g(1)) > 2'))
    ['__udf_c74796d95b9dbec5_f("a)", g(1))']
    """
    if PREFIX not in sql.lower():
        return frozenset()
    calls: set[str] = set()
    at = 0
    while match := _INSIDE.search(sql, at):
        depth, at = 0, match.end()
        quote = ""
        for at in range(match.end(), len(sql)):
            letter = sql[at]
            if quote:
                quote = "" if letter == quote else quote
            elif letter in "\"'":
                quote = letter
            elif letter in "()":
                depth += 1 if letter == "(" else -1
                if not depth:
                    break
        at += 1
        calls.add(sql[match.start() : at])
    return frozenset(calls)


def restore_names(text: str) -> str:
    """Replace the names inside in a text by the names their users know.

    >>> restore_names('__udf_c74796d95b9dbec5_distance("x") > 1')
    'distance("x") > 1'
    """
    return _INSIDE.sub(lambda match: match[1].lower(), text)
