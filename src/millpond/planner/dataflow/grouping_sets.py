"""GROUPING SETS, ROLLUP and CUBE, expanded to the sets of keys of several group-bys."""

from __future__ import annotations

from itertools import combinations, product

from sqlglot import exp

#: A grouping set: keys as the query writes them.
GroupingSet = tuple[exp.Expr, ...]


def expand_grouping_sets(clause: exp.Expr | None) -> list[GroupingSet] | None:
    """List the grouping sets of a GROUP BY clause, with repetitions; None for a plain clause.

    >>> from sqlglot import parse_one
    >>> clause = parse_one("SELECT 1 GROUP BY a, ROLLUP (b, c)").args["group"]
    >>> [[key.sql() for key in keys] for keys in expand_grouping_sets(clause) or ()]
    [['a', 'b', 'c'], ['a', 'b'], ['a']]
    """
    if clause is None:
        return None
    parts = [*clause.expressions]
    for kind in ("rollup", "cube", "grouping_sets"):
        parts += clause.args.get(kind) or []
    if not any(isinstance(p, exp.Rollup | exp.Cube | exp.GroupingSets) for p in parts):
        return None
    # Terms beside each other are crossed: every set of one with every set of the other.
    return [sum(chosen, ()) for chosen in product(*map(_sets_of, parts))]


def _sets_of(part: exp.Expr) -> list[GroupingSet]:
    match part:
        case exp.GroupingSets():
            return [keys for inner in part.expressions for keys in _sets_of(inner)]
        case exp.Rollup():
            columns = [_keys_of(e) for e in part.expressions]
            return [sum(columns[:n], ()) for n in range(len(columns), -1, -1)]
        case exp.Cube():
            columns = [_keys_of(e) for e in part.expressions]
            return [
                sum(chosen, ())
                for n in range(len(columns), -1, -1)
                for chosen in combinations(columns, n)
            ]
    return [_keys_of(part)]


def _keys_of(part: exp.Expr) -> GroupingSet:
    return tuple(part.expressions) if isinstance(part, exp.Tuple) else (part,)
