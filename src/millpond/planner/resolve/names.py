"""The names a query may use, and suggestions for unknown names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from sqlglot import exp

from millpond.catalog.objects import Definition, FunctionDef, StreamDef, SummaryDef
from millpond.cql.print.printer import print_name


class Names(Protocol):
    """The catalog as binding uses it. Names are compared without regard to case."""

    def find(self, name: str) -> Definition | None:
        """Find the definition of a name; `stream$rejects` gives the stream's pseudo-stream."""
        ...

    def names(self) -> list[str]:
        """List every name, for suggestions."""
        ...

    def function(self, name: str) -> FunctionDef | None:
        """Find the user-defined function of a name, given in lower case."""
        ...

    def functions(self) -> list[str]:
        """List the names of all user-defined functions, for suggestions."""
        ...

    def summary(self, name: str) -> SummaryDef | None:
        """Find the summary of a name, in any case."""
        ...

    def summaries(self) -> list[str]:
        """List the names of all summaries, for suggestions."""
        ...


class TablesAlone:
    """The part of `Names` that a catalog without functions and summaries shares with others."""

    def function(self, name: str) -> FunctionDef | None:
        """There is no function."""
        return None

    def functions(self) -> list[str]:
        """There are no functions."""
        return []

    def summary(self, name: str) -> SummaryDef | None:
        """There is no summary."""
        return None

    def summaries(self) -> list[str]:
        """There are no summaries."""
        return []


#: Key of the `meta` of a table's name: the epoch at which the text that has the name was given.
TEXT_EPOCH = "text_epoch"


def mark_text(tree: exp.Expr, text_epoch: int | None) -> None:
    """Note at which epoch a text was given in the names of its tables; None: it is given now."""
    if text_epoch is not None:
        for table in tree.find_all(exp.Table):
            table.meta[TEXT_EPOCH] = text_epoch


def see_definition(table: exp.Table, found: Definition | None) -> Definition | None:
    """Give a definition as a text sees it: streams without the columns that were added since."""
    epoch = table.meta.get(TEXT_EPOCH)
    if epoch is None or not isinstance(found, StreamDef) or not found.schema.added:
        return found
    return replace(found, schema=found.schema.as_of(epoch))


#: Among more names none is looked for: a comparison of two takes some 50 µs.
MOST_COMPARED = 2_000


def find_nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Find the candidate the user most probably means, in the candidate's spelling, or None.

    Among more than `MOST_COMPARED` names only one that differs in underscores or case is found.

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
    if len(spelling) > MOST_COMPARED:
        return None
    close = difflib.get_close_matches(wanted, sorted(spelling), n=1, cutoff=0.6)
    return spelling[close[0]] if close else None


#: What to write for the windows of other systems, named like a column or a stream.
_WINDOWS = {
    "TUMBLE": "Write GROUP BY TUMBLE(column, INTERVAL 1 MINUTE), or FROM TUMBLE(stream, column,"
    " INTERVAL 1 MINUTE) for each row with its window_start and window_end.",
    "HOP": "Write FROM HOP(stream, column, INTERVAL 1 MINUTE, INTERVAL 5 MINUTES) and GROUP BY"
    " window_start, window_end.",
}


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """Make a hint that suggests the nearest candidate, or how a window is written, or None."""
    found = find_nearest(name, candidates)
    return f'Did you mean "{found}"?' if found else _WINDOWS.get(name.upper())


def join_names(names: Iterable[str], limit: int = 20) -> str:
    """Join names for an error's detail; cut off a long list.

    >>> join_names(["a", "b"])
    'a, b'
    """
    every = list(names)
    shown = ", ".join(every[:limit])
    return f"{shown}, … ({len(every)} in all)" if len(every) > limit else shown


def spell(identifier: exp.Identifier, name: str) -> None:
    """Write a name into an identifier as declared, in quotes only where it needs them."""
    identifier.args["this"] = name
    is_plain = _PLAIN.fullmatch(name) is not None
    if not is_plain or (identifier.args.get("quoted") and print_name(name) == name):
        identifier.args["quoted"] = not is_plain


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
