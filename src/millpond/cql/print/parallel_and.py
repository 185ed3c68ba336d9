"""WHERE in which a conjunct's failure on a row counts only if no other conjunct removes the row.

SQL leaves open in which order the conjuncts of WHERE are evaluated, and so on which rows a conjunct
can fail. Millpond decides this without an order (docs/spec/left_open.md):

    WHERE a AND b   is   CASE WHEN a or b is not TRUE of the row, failing aside, THEN FALSE
                              ELSE a AND b END

This form fails exactly where a or b fails and the other is TRUE or fails too. It looks at rows one
by one, which takes microseconds for each row, so it is used only for queries that failed as
written: where no conjunct fails, both forms are equal.
"""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError


def apply_parallel_and(tree: exp.Expr) -> exp.Expr | None:
    """Copy a tree with every WHERE in this form; None if no WHERE has two conjuncts.

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
    """Do the same to DuckDB's SQL; None also for SQL that is nested too deeply to be parsed."""
    try:
        found = apply_parallel_and(sqlglot.parse_one(sql, read="duckdb"))
        return found.sql(dialect="duckdb") if found is not None else None
    except (SqlglotError, RecursionError):
        return None


def _try_conjunct(conjunct: exp.Expr) -> exp.Expr:
    """Make an expression: 1 where a conjunct is TRUE, 0 where it is not, NULL where it fails."""
    verdict = exp.Case(
        ifs=[exp.If(this=conjunct.copy(), true=exp.Literal.number(1))],
        default=exp.Literal.number(0),
    )
    return exp.Anonymous(this="TRY", expressions=[verdict])
