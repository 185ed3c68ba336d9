"""Which constants of a query may be lifted: the query is bound alike whatever their values.

INV-TEMPLATE-1 and INV-TEMPLATE-2 of `templates.py` say which these are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from millpond.cql.print.dialect import to_duckdb
from millpond.cql.tree import nodes
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.check.constants import COMPARISONS
from millpond.planner.resolve.placement import is_aggregate
from millpond.planner.resolve.scope import TYPE

#: The forms of strings that certainly are instants and days.
_MOMENTS = {
    "TIMESTAMP": re.compile(
        r"(19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])"
        r"( ([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?)?"
    ),
    "DATE": re.compile(r"(19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])"),
}


def _is_in_approximation(literal: exp.Expr) -> bool:
    """Whether a constant is part of a call whose written form is kept as a text."""
    node: exp.Expr | None = literal
    while node is not None and not (node._meta and nodes.WRITTEN in node._meta):
        node = node.parent
    return node is not None


def find_liftable(
    bound: BoundQuery, constants: list[Token]
) -> list[tuple[int, int, re.Pattern[str] | None]]:
    """Find the constants of a bound query that may be lifted.

    Args:
        bound: The query.
        constants: The constant tokens of its text, in their order.

    Returns:
        Of each: its number among the constants, its place in the text, and the form that a string
        in its place must have.
    """
    numbers = {token.start: number for number, token in enumerate(constants)}
    found: list[tuple[int, int, re.Pattern[str] | None]] = []
    for literal, standing in _literals(bound.tree):
        place = literal.meta.get("start")
        if place not in numbers or _is_in_approximation(literal):
            continue
        number = numbers[place]
        sibling = _find_sibling(literal)
        if sibling is None or literal.this != constants[number].text:
            continue
        if standing is _Standing.KEY and not is_aggregate(sibling):
            continue
        form: re.Pattern[str] | None = None
        if literal.is_string:
            type_ = _find_cast_type(literal, sibling)
            form = _MOMENTS.get(type_ or "")
            if type_ != "VARCHAR" and (form is None or not form.fullmatch(literal.this)):
                continue
        elif isinstance(literal.parent, exp.Cast):
            continue
        found.append((number, place, form))
    return found


class _Standing(Enum):
    """What an expression's text may mean in its place, besides the expression's value."""

    NAME = "the name of a column, or a column itself"
    KEY = "the key of a group, unless it is an aggregate"
    TRUTH = "nothing"


#: Clauses of a SELECT whose text names no column of its result.
_NEVER_NAMES = ("where", "having", "joins", "from_", "with_")
#: Clauses of a whole query that may name a column of its result.
_NAMES = ("order", "limit", "offset")


def _literals(tree: exp.Expr) -> Iterator[tuple[exp.Literal, _Standing]]:
    """Find the constants in predicates, each with what its text may mean besides its value."""
    stack: list[tuple[exp.Expr, _Standing | None]] = [(tree, None)]
    while stack:
        node, standing = stack.pop()
        if isinstance(node, exp.Literal) and standing is not None:
            yield node, standing
        for child in node.iter_expressions():
            below = _standing(node, str(child.arg_key), standing)
            if below is not _Standing.NAME:
                stack.append((child, below))


def _standing(parent: exp.Expr, key: str, standing: _Standing | None) -> _Standing | None:
    """Find what the text of a child may mean, from what that of its parent may mean."""
    match parent:
        case exp.Where():
            return _Standing.TRUTH
        case exp.Join() if key == "on":
            return _Standing.TRUTH
        case nodes.StreamWindow() if key == "where":
            return _Standing.TRUTH
        case exp.Having():
            return _Standing.KEY
        case exp.Select() if key not in _NEVER_NAMES:
            return _Standing.NAME
        case exp.SetOperation() | exp.Subquery() if key in _NAMES:
            return _Standing.NAME
    return standing


def _find_cast_type(literal: exp.Expr, sibling: exp.Expr) -> str | None:
    """Find the type a string is cast to: the written type, or that of the compared column."""
    if isinstance(literal.parent, exp.Cast):
        return to_duckdb(literal.parent.to)
    type_: str | None = sibling.meta.get(TYPE) if isinstance(sibling, exp.Column) else None
    return type_


#: Operators that take numbers of every value.
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div)


def _is_number(node: exp.Expr) -> bool:
    """Whether an expression is computed from constant numbers alone."""
    if isinstance(node, _ARITHMETIC):
        return _is_number(node.this) and _is_number(node.expression)
    if isinstance(node, exp.Neg | exp.Paren):
        return _is_number(node.this)
    return isinstance(node, exp.Literal) and not node.is_string


def _find_sibling(literal: exp.Literal) -> exp.Expr | None:
    """Find the operand a constant is compared with; None if there is none: it is not lifted."""
    node: exp.Expr = literal
    while (
        isinstance(node.parent, exp.Neg | exp.Paren)
        or (isinstance(node.parent, exp.Cast) and node is literal)
        or (isinstance(node.parent, _ARITHMETIC) and _is_number(node.parent))
    ):
        node = node.parent
    parent = node.parent
    if isinstance(parent, (*COMPARISONS, exp.Like, exp.ILike)):
        sibling = parent.expression if node is parent.this else parent.this
    elif isinstance(parent, exp.Between | exp.In) and node is not parent.this:
        sibling = parent.this
    else:
        return None
    return sibling
