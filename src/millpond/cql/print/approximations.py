"""The `approx_…` functions, written with the functions they are defined by.

`approx_quantile(x, q)` is `quantile_disc` of x, rounded to six binary digits.
`approx_count_distinct(x)` is estimated from the least hashes of the values (Bar-Yossef et al. 2002;
Beyer et al. 2007): if the k-th least of n hashes in [0, H) is h, then n is about (k − 1)·H / h.

DuckDB's own functions of these names are not used: their values depend on the order of rows, or on
how data is cut (docs/design/aggregates.md).
"""

from __future__ import annotations

from functools import cache

from sqlglot import exp

from millpond.cql.print.dialect import parse_query, print_query, to_duckdb
from millpond.cql.tree.function_calls import name_call
from millpond.cql.tree.nodes import WRITTEN
from millpond.model.approximation import (
    APPROXIMATE,
    COUNT_DISTINCT,
    HASHES,
    LEAST_HASHES,
    QUANTILE,
    SPLIT,
    UNROUNDED,
)

#: Keys of the meta of what a call was replaced by: the function; its argument's column if it is a
#: column; the quantile if it is a number.
FUNCTION, IS_COLUMN, SHARE = "approximate", "approximate_column", "approximate_share"

_ARGUMENT = "__argument"
_DOUBLE = f"({_ARGUMENT} * 1e0)"
#: What a sketch keeps of a value, in SQL.
_KEPT = {
    COUNT_DISTINCT: f"CASE WHEN {_ARGUMENT} IS NOT NULL THEN hash({_ARGUMENT}) END",
    QUANTILE: f"CASE WHEN abs({_DOUBLE}) < {UNROUNDED!r} THEN {_DOUBLE} * {SPLIT}e0"
    f" - ({_DOUBLE} * {SPLIT}e0 - {_DOUBLE}) + 0e0 ELSE {_DOUBLE} END",
}
_LEAST = f"min(DISTINCT {_KEPT[COUNT_DISTINCT]}, {LEAST_HASHES})"
_ESTIMATE = (
    f"CASE WHEN coalesce(len({_LEAST}), 0) < {LEAST_HASHES} THEN coalesce(len({_LEAST}), 0)"
    f" ELSE greatest({LEAST_HASHES}, CAST(floor({(LEAST_HASHES - 1) * HASHES}e0"
    f" / list_extract({_LEAST}, {LEAST_HASHES}) + 0.5e0) AS BIGINT)) END"
)


def expand_approximations(tree: exp.Expr) -> None:
    """Replace the calls of `approx_…` functions in a query, in the tree itself.

    A call that is no plain aggregate of a group (with ORDER BY in its brackets, or OVER a window)
    stays, and no query may make it.
    """
    calls = [node for node in tree.find_all(exp.AnonymousAggFunc) if name_call(node) in APPROXIMATE]
    if not calls:
        return
    for select in list(tree.find_all(exp.Select)):
        for item in select.expressions:
            if not isinstance(item, exp.Alias) and any(
                name_call(node) in APPROXIMATE for node in item.find_all(exp.AnonymousAggFunc)
            ):
                name = to_duckdb(item)
                item.replace(exp.alias_(item.copy(), name, quoted=True, copy=False))
    for node in tree.find_all(exp.AnonymousAggFunc):
        if name_call(node) in APPROXIMATE:
            _expand(node)


@cache
def write_kept_value(function: str, column: str) -> str:
    """Write, in DuckDB's SQL, what a sketch for a function keeps of a column's value."""
    return to_duckdb(_fill(_KEPT[function], exp.column(column, quoted=True)))


def _expand(call: exp.AnonymousAggFunc) -> None:
    name, arguments = name_call(call), call.expressions
    wrapper = call.parent
    filtered = wrapper if isinstance(wrapper, exp.Filter) else None
    outside = call if filtered is None else filtered
    if len(arguments) != (2 if name == QUANTILE else 1):
        return
    argument = arguments[0]
    if name == COUNT_DISTINCT and isinstance(argument, exp.Distinct):
        if argument.args.get("on") or len(argument.expressions) != 1:
            return
        (argument,) = argument.expressions
    if isinstance(argument, exp.Distinct | exp.Order | exp.Star):
        return
    if name == QUANTILE:
        kept = _fill(_KEPT[QUANTILE], argument)
        share = arguments[1]
        made: exp.Expr = exp.AnonymousAggFunc(this="quantile_disc", expressions=[kept, share])
        if isinstance(share, exp.Literal) and not share.is_string:
            made.meta[SHARE] = float(share.this)
        replaced: exp.Expr = call
    else:
        if isinstance(outside.parent, exp.Window) and outside.parent.this is outside:
            return
        made = _fill(_ESTIMATE, argument)
        if filtered is not None:
            for least in list(made.find_all(exp.Min)):
                least.replace(exp.Filter(this=least.copy(), expression=filtered.expression.copy()))
        replaced = outside
    made.meta[FUNCTION] = name
    made.meta[WRITTEN] = print_query(replaced)
    made.meta[IS_COLUMN] = isinstance(argument, exp.Column)
    replaced.replace(made)


def _fill(template: str, argument: exp.Expr) -> exp.Expr:
    """Copy a template with an argument in it."""
    made = _read(template).copy()
    for place in list(made.find_all(exp.Column)):
        if place.name == _ARGUMENT:
            inside = argument.copy()
            plain = isinstance(argument, exp.Column | exp.Literal | exp.Func)
            place.replace(inside if plain else exp.Paren(this=inside))
    return made


@cache
def _read(template: str) -> exp.Expr:
    made = parse_query(f"SELECT {template}").expressions[0]
    assert isinstance(made, exp.Expr)
    for node in made.walk():
        # Places in the template are none in a user's text.
        node._meta = None
    return made.pop()
