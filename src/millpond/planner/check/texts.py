"""Refuses comparisons of a text with a value of another type: `country = 5`, `a.code = b.number`.

DuckDB would cast the text of every element to the other side's type, and fail at the first text
that cannot be cast. DuckDB itself refuses such a comparison by `<`, but not one by `=`.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.errors import MillpondError
from millpond.planner.check.constants import COMPARISONS
from millpond.planner.check.localize_error import Prober
from millpond.planner.resolve.error_places import mark
from millpond.planner.resolve.scope import TYPE, SelectScope

_Pair = tuple[exp.Expr, exp.Expr]

#: Types whose values are texts.
_TEXTS = ("VARCHAR", "JSON")
#: Operators whose values are never texts; which type they have matters for the message only.
_NUMBERS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg)
#: Calls and operators that may give texts, as far as DuckDB has to be asked.
_CALLS = (exp.Func, exp.DPipe, exp.JSONExtractScalar, exp.Dot, exp.Bracket)


def check_texts(scopes: list[SelectScope], prober: Prober, text: str) -> None:
    """Refuse comparisons by which every element's text would be cast to another type.

    Raises:
        MillpondError: CQL-205, at the side that is no text.
    """
    for scope in scopes:
        for one, other in _find_compared(scope):
            for node, value in ((one, other), (other, one)):
                if _may_differ(node, value) and _is_text(node, prober, scope):
                    _check_against_text(node, value, prober, scope, text)


def _check_against_text(
    node: exp.Expr, value: exp.Expr, prober: Prober, scope: SelectScope, text: str
) -> None:
    name, shown = to_duckdb(node), to_duckdb(value)
    if _is_number(value):
        type_ = "INTEGER" if shown.lstrip("- ").isdigit() else "DOUBLE"
        primary = f"VARCHAR {name} is compared with the number {shown}"
        hint = f"Put the text in quotes, '{shown}', or cast: TRY_CAST({name} AS {type_})."
    else:
        found = _type_of(value, prober, scope)
        if found is None or found in (*_TEXTS, '"NULL"') or found.startswith("ENUM"):
            return
        type_ = found
        primary = f"VARCHAR {name} is compared with {type_} {shown}"
        hint = f"Cast one side: TRY_CAST({name} AS {type_}), or CAST({shown} AS VARCHAR)."
    kind = "a number" if _is_number(value) else type_
    raise MillpondError(
        "CQL-205",
        primary,
        detail=f"Every text would be read as {kind}, and the first that is none would fail.",
        hint=hint,
    ).at(text, mark(value, text))


def _find_compared(scope: SelectScope) -> Iterator[_Pair]:
    for node in scope.select.walk(
        prune=lambda n: isinstance(n, exp.Query) and n is not scope.select
    ):
        if isinstance(node, COMPARISONS):
            yield from _pair(node.this, node.expression)
        elif isinstance(node, exp.In | exp.Between):
            operands = node.expressions or [node.args.get("low"), node.args.get("high")]
            for operand in operands:
                yield from _pair(node.this, operand)
        elif isinstance(node, exp.Case) and node.this is not None:
            for branch in node.args["ifs"]:
                yield from _pair(node.this, branch.this)


def _pair(one: exp.Expr | None, other: exp.Expr | None) -> Iterator[_Pair]:
    """Give the two sides of a comparison, those of tuples one by one."""
    one, other = _unwrap(one), _unwrap(other)
    if isinstance(one, exp.Tuple) and isinstance(other, exp.Tuple):
        for part, counterpart in zip(one.expressions, other.expressions, strict=False):
            yield from _pair(part, counterpart)
    elif one is not None and other is not None:
        yield one, other


def _unwrap(node: exp.Expr | None) -> exp.Expr | None:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _may_differ(node: exp.Expr, value: exp.Expr) -> bool:
    """Whether the first side may be a text that varies and the second something else, as far as
    that is seen without asking DuckDB, who is asked for few."""
    if isinstance(value, exp.Literal) and value.is_string:
        return False
    if isinstance(node, exp.Column):
        if isinstance(value, exp.Column):
            known = value.meta.get(TYPE)
            return known not in _TEXTS
        return _is_number(value) or isinstance(value, (exp.Boolean, *_NUMBERS))
    is_call = isinstance(node, _CALLS) and not isinstance(node, (exp.AggFunc, exp.Cast))
    return is_call and _is_number(value)


def _is_number(node: exp.Expr | None) -> bool:
    while isinstance(node, exp.Neg | exp.Paren):
        node = node.this
    return isinstance(node, exp.Literal) and not node.is_string


def _is_text(node: exp.Expr, prober: Prober, scope: SelectScope) -> bool:
    return _type_of(node, prober, scope) in _TEXTS


def _type_of(node: exp.Expr, prober: Prober, scope: SelectScope) -> str | None:
    """Find an expression's type; None if it has none by itself."""
    if isinstance(node, exp.Boolean):
        return "BOOLEAN"
    if (type_ := node.meta.get(TYPE)) is not None:
        return str(type_)
    try:
        return prober.type_of(node, scope)
    except duckdb.Error:
        return None
