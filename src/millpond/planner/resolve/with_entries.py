"""Entries of WITH: which entry a name means, and which entries each entry sees.

An entry sees the entries of the queries around it and the entries before it, but not itself. So an
entry may have the name of an entry further out, and may even read that entry; what comes after sees
only the inner entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp


@dataclass(frozen=True, eq=False)
class WithEntry:
    """An entry of WITH, and the entries it sees, by their names in lower case."""

    cte: exp.CTE
    seen: Mapping[str, WithEntry]


def find_own_entries(query: exp.Expr) -> dict[str, exp.CTE]:
    """Find the entries of a query's own WITH, by their names in lower case."""
    clause = query.args.get("with_")
    return {} if clause is None else {cte.alias.lower(): cte for cte in clause.expressions}


def find_seen_entries(query: exp.Expr, around: Mapping[str, WithEntry]) -> Mapping[str, WithEntry]:
    """Find the entries seen inside a query, in the text's order: the outer ones, then its own."""
    seen = around
    for name, cte in find_own_entries(query).items():
        others = {known: entry for known, entry in seen.items() if known != name}
        seen = {**others, name: WithEntry(cte, seen)}
    return seen
