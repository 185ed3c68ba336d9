"""Expressions that have a value for every row, so that it does not matter which rows they see."""

from __future__ import annotations

from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

#: Comparing with text and matching patterns cannot fail; casting and arithmetic can.
_SAFE = (
    exp.And,
    exp.Between,
    exp.Boolean,
    exp.Column,
    exp.DPipe,
    exp.EQ,
    exp.GT,
    exp.GTE,
    exp.Identifier,
    exp.ILike,
    exp.In,
    exp.Is,
    exp.LT,
    exp.LTE,
    exp.Like,
    exp.Literal,
    exp.Lower,
    exp.NEQ,
    exp.Not,
    exp.Null,
    exp.Or,
    exp.Paren,
    exp.Upper,
)


@lru_cache(maxsize=16_384)
def cannot_fail(sql: str) -> bool:
    """Whether an expression in DuckDB's SQL certainly has a value for every row.

    A comparison of different types casts one side, row by row, which can fail. With a text
    constant, DuckDB certainly casts the constant, and once.
    >>> cannot_fail("s LIKE 'a%'"), cannot_fail("CAST(s AS INTEGER) > 3")
    (True, False)
    """
    try:
        tree = sqlglot.parse_one(sql, read="duckdb")
    except SqlglotError:
        return False
    return all(isinstance(node, _SAFE) and _is_safe(node) for node in tree.walk())


def _is_safe(node: exp.Expr) -> bool:
    if isinstance(node, exp.In):
        against = node.expressions
    elif isinstance(node, exp.Between):
        against = [node.args["low"], node.args["high"]]
    elif isinstance(node, _COMPARED):
        against = [node.expression if isinstance(node.expression, exp.Literal) else node.this]
    else:
        return True
    return bool(against) and all(isinstance(a, exp.Literal) and a.is_string for a in against)


_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
