"""Callers by words as people, files and claims write them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from millpond.api.rights.caller import Caller, Quotas, Role
from millpond.catalog.options import OPTIONS


def make_caller(id: str, owner: str, role: str, streams: list[str], **quotas: Any) -> Caller:
    """Make a caller from the words of a token file or the command line.

    Raises:
        ValueError: what is wrong with them.
    """
    words = {r.word: r for r in Role}
    if role not in words:
        raise ValueError(f'There is no role "{role}". There are: {", ".join(words)}')
    check_owner = OPTIONS["owner"].values.check
    if not (isinstance(owner, str) and check_owner(owner)):
        raise ValueError("An owner has a name of at most 200 characters")
    if any(not isinstance(s, str) or not s or "*" in s[:-1] for s in streams):
        raise ValueError("A stream is a name, with a * at its end for any rest")
    known = {field.name for field in fields(Quotas)}
    for name, value in quotas.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if name not in known or not is_number or not 0 < value < 2**53:
            raise ValueError(f'The quota "{name}" cannot be {value!r}')
    return Caller(
        id, OPTIONS["owner"].values.check(owner), words[role], tuple(streams), Quotas(**quotas)
    )
