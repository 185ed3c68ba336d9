"""WHERE in which a conjunct that fails on a row counts only if no other takes the row away.

SQL leaves open in which order the conjuncts of WHERE are evaluated, and so which rows one of them
sees that can fail. Here that is settled without an order (docs/spec/left_open.md):

    WHERE a AND b   is   CASE WHEN a or b is not TRUE of the row, failing aside, THEN FALSE
                              ELSE a AND b END

which fails exactly where a or b fails and the other is TRUE or fails too. Looking at rows one by
one costs microseconds for each, so this form is for queries that failed as they are written:
where nothing fails the two are the same.
"""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError


def apply_parallel_and(tree: exp.Expr) -> exp.Expr | None:
    """A copy with every WHERE in that form; None if none of them has two conjuncts.

    >>> apply_parallel_and(sqlglot.parse_one("SELECT 1 FROM t WHERE a > 1", read="duckdb")) is None
    True
    """
    copied = tree.copy()
    changed = False
    for where in copied.find_all(exp.Where):
        conjuncts = list(where.this.flatten()) if isinstance(where.this, exp.And) else []
        tried = [_try_conjunct(c) for c in conjuncts if c.find(exp.Query) is None]
        if len(conjuncts) < 2 or not tried:
            continue
        some_is_not = exp.In(this=exp.Literal.number(0), expressions=tried)
        where.set(
            "this",
            exp.Case(
                ifs=[exp.If(this=some_is_not, true=exp.false())],
                default=where.this.copy(),
            ),
        )
        changed = True
    return copied if changed else None


def apply_parallel_and_to_sql(sql: str) -> str | None:
    """The same of DuckDB's SQL; None too of what is nested too deeply to be read again."""
    try:
        found = apply_parallel_and(sqlglot.parse_one(sql, read="duckdb"))
        return found.sql(dialect="duckdb") if found is not None else None
    except (SqlglotError, RecursionError):
        return None


def _try_conjunct(conjunct: exp.Expr) -> exp.Expr:
    """1 where a conjunct is TRUE, 0 where it is not, NULL where it fails."""
    verdict = exp.Case(
        ifs=[exp.If(this=conjunct.copy(), true=exp.Literal.number(1))],
        default=exp.Literal.number(0),
    )
    return exp.Anonymous(this="TRY", expressions=[verdict])
