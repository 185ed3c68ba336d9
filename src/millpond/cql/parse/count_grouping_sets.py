"""How many groupings a GROUP BY asks for: CUBE of thirty columns is a thousand million."""

from __future__ import annotations

from math import prod

from sqlglot import exp

#: The most grouping sets of a statement. DuckDB makes all of them before anything can end it.
MOST_GROUPING_SETS = 1_024
#: The most keys of a GROUP BY with several: its time grows with their number to the third power.
MOST_KEYS = 64


def count_grouping_sets(clause: exp.Group) -> int:
    """Count the grouping sets of a GROUP BY, with repetitions; one for a plain clause.

    >>> from sqlglot import parse_one
    >>> clause = parse_one("SELECT 1 GROUP BY a, ROLLUP (b, c), CUBE (d, e)").args["group"]
    >>> count_grouping_sets(clause)
    12
    """
    parts = _list_parts(clause)
    # Terms beside each other are crossed.
    return prod(map(_count, parts))


def count_keys(clause: exp.Group) -> int:
    """Count the different keys of all grouping sets of a GROUP BY.

    >>> from sqlglot import parse_one
    >>> clause = parse_one("SELECT 1 GROUP BY a, ROLLUP (a, (b, c)), CUBE (b, d)").args["group"]
    >>> count_keys(clause)
    4
    """
    keys: set[exp.Expr] = set()
    stack = _list_parts(clause)
    while stack:
        part = stack.pop()
        if isinstance(part, exp.GroupingSets | exp.Rollup | exp.Cube | exp.Tuple):
            stack += part.expressions
        else:
            keys.add(part)
    return len(keys)


def _list_parts(clause: exp.Group) -> list[exp.Expr]:
    parts = [*clause.expressions]
    for kind in ("rollup", "cube", "grouping_sets"):
        parts += clause.args.get(kind) or []
    return parts


def _count(part: exp.Expr) -> int:
    match part:
        case exp.GroupingSets():
            return sum(map(_count, part.expressions))
        case exp.Rollup():
            return len(part.expressions) + 1
        case exp.Cube():
            return 1 << len(part.expressions)
    return 1
