"""Entries of WITH: which of them a name means, and what each of them sees.

An entry sees those around it and those before it, and not itself. So one may have the name of
another further out, which it hides from what comes after it, and may even read that other.
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
    """The entries of a query's own WITH, by their names in lower case."""
    clause = query.args.get("with_")
    return {} if clause is None else {cte.alias.lower(): cte for cte in clause.expressions}


def find_seen_entries(query: exp.Expr, around: Mapping[str, WithEntry]) -> Mapping[str, WithEntry]:
    """What is seen inside a query, in the order of the text: what is around it, and its own."""
    seen = around
    for name, cte in find_own_entries(query).items():
        others = {known: entry for known, entry in seen.items() if known != name}
        seen = {**others, name: WithEntry(cte, seen)}
    return seen
