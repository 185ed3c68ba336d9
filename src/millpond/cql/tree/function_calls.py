"""Function calls: the tree has them under the names in the text.

DuckDB evaluates all functions, so a call keeps its name and arguments. It does not become one of
sqlglot's portable functions, whose printed form may mean something else. Only the aggregates (of
`millpond.model.functions`) get nodes of their own kinds, because a query's meaning depends on which
calls are aggregates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.parser import Parser

from millpond.model import functions


def _aggregate(name: str) -> Callable[[list[Any]], exp.Expr]:
    return lambda args: exp.AnonymousAggFunc(this=name, expressions=args)


#: The node made of a call, by name; a call of any other name becomes an `exp.Anonymous`.
FUNCTIONS: dict[str, Callable[..., exp.Expr]] = {
    **{
        name.upper(): _aggregate(name)
        for name, function in functions.FUNCTIONS.items()
        if function.kind is functions.Kind.AGGREGATE
    },
    **{name: Parser.FUNCTIONS[name] for name in ("COUNT", "SUM", "AVG", "COALESCE")},
    "MIN": lambda args: exp.Min(this=args[0] if args else None, expressions=args[1:]),
    "MAX": lambda args: exp.Max(this=args[0] if args else None, expressions=args[1:]),
}

#: Calls whose arguments are not a plain list.
FUNCTION_PARSERS: dict[str, Callable[[Any], exp.Expr]] = {
    **{name: Parser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT")},
    "SUBSTRING": lambda parser: _substring(parser),
    "TRIM": lambda parser: _trim(parser),
    "TUMBLE": lambda parser: parser.window_of_time("TUMBLE"),
    "TUMBLE_START": lambda parser: parser.window_of_time("TUMBLE_START"),
    "TUMBLE_END": lambda parser: parser.window_of_time("TUMBLE_END"),
    "HOP": lambda parser: parser.refuse_hops("HOP"),
    "HOP_START": lambda parser: parser.refuse_hops("HOP_START"),
    "HOP_END": lambda parser: parser.refuse_hops("HOP_END"),
}


def _substring(parser: Any) -> exp.Expr:
    """Read `substring(x FROM 2 FOR 3)` as `substring(x, 2, 3)`."""
    call = parser._parse_substring()
    arguments = [call.args.get(key) for key in ("this", "start", "length")]
    return _call("substring", arguments)


def _trim(parser: Any) -> exp.Expr:
    """Read `trim(LEADING x FROM y)` as `ltrim(y, x)`."""
    call = parser._parse_trim()
    names = {"LEADING": "ltrim", "TRAILING": "rtrim"}
    arguments = [call.args.get(key) for key in ("this", "expression")]
    return _call(names.get(call.args.get("position") or "", "trim"), arguments)


def _call(name: str, arguments: list[exp.Expr | None]) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=[a for a in arguments if a is not None])


#: Functions written without brackets.
NO_PAREN_FUNCTION_PARSERS: dict[str, Callable[[Any], exp.Expr]] = {
    name: Parser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("CASE",)
}


def name_call(node: exp.Expr) -> str:
    """Return the name of the function a node calls, in lower case.

    >>> name_call(exp.Count(this=exp.Star())), name_call(exp.Anonymous(this="Lower"))
    ('count', 'lower')
    """
    by_name = isinstance(node, exp.Anonymous | exp.AnonymousAggFunc)
    return node.name.lower() if by_name else str(node.key)
