"""The levels of EXPLAIN, and what each level shows."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """A level at which EXPLAIN shows a query; a level is equal to its name.

    >>> Level("shared").shows.partition(",")[0]
    'as rewritten'
    """

    shows: str

    SYNTAX = "syntax", "the tree of the text"
    LOGICAL = (
        "logical",
        "the operators the text asks for, with the update pattern of every edge; the level if none"
        " is named",
    )
    REWRITTEN = (
        "rewritten",
        "what is matched as elements arrive, what windows choose at invocation, and what is left"
        " for the residual",
    )
    SHARED = "shared", "as rewritten, with what of it is shared with which queries"
    APPROXIMATION = (
        "approximation",
        "what could be reduced, what that would save, and what cannot be reduced and why",
    )
    RUNTIME = "runtime", "as shared, with what was measured: rates, selectivities, costs"

    def __new__(cls, name: str, shows: str) -> Level:
        """Make a level of a name and a description of what the level shows."""
        level = str.__new__(cls, name)
        level._value_ = name
        level.shows = shows
        return level
