"""The `approx_…` functions, written with the functions they are defined by.

`approx_quantile(x, q)` is `quantile_disc` of x, rounded to six binary digits.
`approx_count_distinct(x)` is estimated from the least hashes of the values (Bar-Yossef et al. 2002;
Beyer et al. 2007): if the k-th least of n hashes in [0, H) is h, then n is about (k − 1)·H / h.
`approx_count(x, v)` adds up 1 for each value of x whose hash has the counter and the sign of v's,
and -1 for those that have the counter alone (`millpond.synopses.sketches.signed_counts`).
`approx_top_k(x, k)` is the k most frequent values, of equally frequent ones the least first.

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
    BUCKETS,
    COUNT_DISTINCT,
    COUNT_OF,
    HASHES,
    LEAST_HASHES,
    QUANTILE,
    SPLIT,
    TOP_K,
    UNROUNDED,
)

#: Keys of the meta of what a call was replaced by: the function; its argument's column if it is a
#: column; the quantile if it is a number; the value that is counted if it is written plainly.
FUNCTION, IS_COLUMN, SHARE = "approximate", "approximate_column", "approximate_share"
VALUE = "approximate_value"

_EVERY = (*APPROXIMATE, TOP_K)
_ARGUMENT, _SECOND = "__argument", "__second"
#: The most values that `approx_top_k` gives.
_MOST = 1_000
_DOUBLE = f"({_ARGUMENT} * 1e0)"
#: What a sketch keeps of a value, in SQL.
_KEPT = {
    COUNT_DISTINCT: f"CASE WHEN {_ARGUMENT} IS NOT NULL THEN hash({_ARGUMENT}) END",
    QUANTILE: f"CASE WHEN abs({_DOUBLE}) < {UNROUNDED!r} THEN {_DOUBLE} * {SPLIT}e0"
    f" - ({_DOUBLE} * {SPLIT}e0 - {_DOUBLE}) + 0e0 ELSE {_DOUBLE} END",
    COUNT_OF: f"CASE WHEN {_ARGUMENT} IS NOT NULL THEN hash({_ARGUMENT}) END",
}
_LEAST = f"min(DISTINCT {_KEPT[COUNT_DISTINCT]}, {LEAST_HASHES})"
_ESTIMATE = (
    f"CASE WHEN coalesce(len({_LEAST}), 0) < {LEAST_HASHES} THEN coalesce(len({_LEAST}), 0)"
    f" ELSE greatest({LEAST_HASHES}, CAST(floor({(LEAST_HASHES - 1) * HASHES}e0"
    f" / list_extract({_LEAST}, {LEAST_HASHES}) + 0.5e0) AS BIGINT)) END"
)
# Both in the type that the two have in common, in which they would be compared, too.
_HASH = f"hash(CASE WHEN TRUE THEN {_ARGUMENT} ELSE {_SECOND} END)"
_WANTED = f"hash(CASE WHEN FALSE THEN {_ARGUMENT} ELSE {_SECOND} END)"
_COUNT = (
    f"CAST(greatest(0, coalesce(sum(CASE WHEN {_ARGUMENT} IS NULL THEN 0"
    f" WHEN {_HASH} % {BUCKETS} <> {_WANTED} % {BUCKETS} THEN 0"
    f" WHEN ({_HASH} >= {HASHES // 2}) = ({_WANTED} >= {HASHES // 2}) THEN 1"
    " ELSE -1 END), 0)) AS BIGINT)"
)
_HISTOGRAM = f"histogram({_ARGUMENT})"
# The keys of a histogram ascend, so their descending places break ties in favour of the least.
_TIES = f"list_grade_up(map_keys({_HISTOGRAM}), 'DESC')"
_TOP = (
    f"list_slice(list_select(map_keys({_HISTOGRAM}), list_grade_up(list_zip("
    f"map_values({_HISTOGRAM}), {_TIES}), 'DESC')), 1, {_SECOND})"
)


def expand_approximations(tree: exp.Expr) -> None:
    """Replace the calls of `approx_…` functions in a query, in the tree itself.

    A call that is no plain aggregate of a group (with ORDER BY in its brackets, or OVER a window)
    stays, and no query may make it.
    """
    if not _find_calls(tree):
        return
    for select in list(tree.find_all(exp.Select)):
        for item in select.expressions:
            if not isinstance(item, exp.Alias) and _find_calls(item):
                name = to_duckdb(item)
                item.replace(exp.alias_(item.copy(), name, quoted=True, copy=False))
    for node in _find_calls(tree):
        _expand(node)


def _find_calls(tree: exp.Expr) -> list[exp.Expr]:
    calls = tree.find_all(exp.AnonymousAggFunc, exp.Anonymous)
    return [node for node in calls if name_call(node) in _EVERY]


@cache
def write_kept_value(function: str, column: str) -> str:
    """Write, in DuckDB's SQL, what a sketch for a function keeps of a column's value."""
    return to_duckdb(_fill(_KEPT[function], exp.column(column, quoted=True)))


def _expand(call: exp.Expr) -> None:
    name, arguments = name_call(call), call.expressions
    wrapper = call.parent
    filtered = wrapper if isinstance(wrapper, exp.Filter) else None
    outside = call if filtered is None else filtered
    if len(arguments) != (1 if name == COUNT_DISTINCT else 2):
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
        if name == COUNT_DISTINCT:
            made = _fill(_ESTIMATE, argument)
        elif not _is_constant(arguments[1], name):
            return
        else:
            made = _fill(_COUNT if name == COUNT_OF else _TOP, argument, arguments[1])
        if filtered is not None:
            for inner in [n for n in made.walk() if _aggregates(n)]:
                inner.replace(exp.Filter(this=inner.copy(), expression=filtered.expression.copy()))
        replaced = outside
    if name == COUNT_OF:
        made.meta[VALUE] = _read_value(arguments[1])
    made.meta[FUNCTION] = name
    made.meta[WRITTEN] = print_query(replaced)
    made.meta[IS_COLUMN] = isinstance(argument, exp.Column)
    replaced.replace(made)


def is_for_quantile(product: exp.Mul) -> bool:
    """Whether a product was written for a call of `approx_quantile`."""
    if not isinstance(product.expression, exp.Literal) or product.expression.this != "1e0":
        return False
    above = product.parent
    while above is not None and above.meta.get(FUNCTION) != QUANTILE:
        above = above.parent
    return above is not None


def _aggregates(node: exp.Expr) -> bool:
    """Whether a node of a template is its aggregate."""
    return isinstance(node, exp.Min | exp.Sum) or name_call(node) == "histogram"


def _is_constant(node: exp.Expr, function: str) -> bool:
    """Whether a second argument is a constant that a function takes."""
    if function == TOP_K:
        plain = isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit()
        return plain and 1 <= int(node.this) <= _MOST
    if isinstance(node, exp.Neg | exp.Cast):
        node = node.this
    return isinstance(node, exp.Literal | exp.Boolean)


def _read_value(node: exp.Expr) -> int | str | None:
    """A text or a whole number as it is written; None of all else."""
    sign, inside = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if not isinstance(inside, exp.Literal):
        return None
    if inside.is_string:
        return str(inside.this) if sign == 1 else None
    return sign * int(inside.this) if inside.this.isdigit() else None


def _fill(template: str, argument: exp.Expr, second: exp.Expr | None = None) -> exp.Expr:
    """Copy a template with its arguments in it."""
    made = _read(template).copy()
    given = {_ARGUMENT: argument, _SECOND: second}
    for place in list(made.find_all(exp.Column)):
        if (value := given.get(place.name)) is not None:
            inside = value.copy()
            plain = isinstance(value, exp.Column | exp.Literal | exp.Func)
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
