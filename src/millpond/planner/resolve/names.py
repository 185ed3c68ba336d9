"""The names a query may use, and what to suggest for those it may not."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Protocol

from sqlglot import exp

from millpond.catalog.objects import Definition, FunctionDef
from millpond.cql.print.printer import print_name


class Names(Protocol):
    """What binding asks of a catalog. Names are compared without regard to case."""

    def find(self, name: str) -> Definition | None:
        """The definition of that name; `stream$rejects` gives the stream's pseudo-stream."""
        ...

    def names(self) -> list[str]:
        """Every name there is, to suggest from."""
        ...

    def function(self, name: str) -> FunctionDef | None:
        """The user-defined function of that name, in lower case."""
        ...

    def functions(self) -> list[str]:
        """The names of all user-defined functions, to suggest from."""
        ...


def find_nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate a reader most probably meant, in its own spelling, or None.

    >>> find_nearest("flihgts", ["flights", "weather"])
    'flights'
    >>> find_nearest("x", ["flights"]) is None
    True
    """
    spelling = {c.lower(): c for c in candidates}
    wanted = name.lower()
    for candidate in spelling:
        if wanted and (candidate.replace("_", "") == wanted.replace("_", "")):
            return spelling[candidate]
    close = difflib.get_close_matches(wanted, sorted(spelling), n=1, cutoff=0.6)
    return spelling[close[0]] if close else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A hint that suggests the nearest candidate, or None."""
    found = find_nearest(name, candidates)
    return f'Did you mean "{found}"?' if found else None


def join_names(names: Iterable[str], limit: int = 20) -> str:
    """Names for a detail, cut off where the list gets long.

    >>> join_names(["a", "b"])
    'a, b'
    """
    every = list(names)
    shown = ", ".join(every[:limit])
    return f"{shown}, … ({len(every)} in all)" if len(every) > limit else shown


def spell(identifier: exp.Identifier, name: str) -> None:
    """Writes a name as it is declared, in quotes only where it needs them."""
    identifier.args["this"] = name
    is_plain = _PLAIN.fullmatch(name) is not None
    if not is_plain or (identifier.args.get("quoted") and print_name(name) == name):
        identifier.args["quoted"] = not is_plain


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
