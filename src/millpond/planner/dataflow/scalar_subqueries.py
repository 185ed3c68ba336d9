"""Scalar subqueries as joins: with one row, or with one row for each key.

    x > (SELECT max(v) FROM t)                  the row of the aggregate beside every row
    x > (SELECT max(v) FROM t WHERE t.k = s.k)  t's groups by k; a row without a group has the
                                                aggregates of no rows: NULL, and 0 for counts

Only an aggregate without GROUP BY is known to have one row at every instant. Any other scalar
subquery may have at most one row in SQL, so it becomes an aggregate too: the least of its values,
or an error if there are several,

    (SELECT v FROM t WHERE t.k = s.k)           CASE WHEN count(*) > 1 THEN error ELSE min(v) END

A subquery with LIMIT 1 has one row or none, and is joined by a LEFT JOIN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import sqlglot
from sqlglot import exp

from millpond.operators.join import Join
from millpond.operators.protocol.node import Node
from millpond.planner.dataflow.frame import (
    Frame,
    Item,
    NamedNode,
    Plans,
    Unsupported,
    find_columns,
    frame_of,
    reads_columns,
)
from millpond.planner.dataflow.joins import outer_join, split_condition
from millpond.planner.resolve.placement import find_aggregate, has_aggregate
from millpond.planner.resolve.pushdown import split_where

#: The error of a scalar subquery with several rows, in DuckDB's words.
_SEVERAL = "More than one row returned by a subquery used as an expression"

#: Whether a SELECT's own FROM clause has all columns of an expression.
Knows = Callable[[exp.Select, exp.Expr], bool]


def replace_scalars(
    expression: exp.Expr, frame: Frame, plan: Plans, knows: Knows
) -> tuple[exp.Expr, Frame]:
    """Replace an expression's scalar subqueries by columns; return it and a frame with the columns.

    Args:
        expression: An expression that may contain scalar subqueries.
        frame: The rows it is evaluated on.
        plan: Plans a query that reads nothing around it.
        knows: Whether a SELECT's FROM clause has all columns of an expression.

    Raises:
        Unsupported: a subquery is not an aggregate of one row, or its correlation is no equality.
    """
    holder = exp.Paren(this=expression.copy())
    for query in [q for q in holder.find_all(exp.Query) if q.find_ancestor(exp.Query) is None]:
        if not isinstance(query, exp.Subquery) or isinstance(query.parent, exp.In):
            raise Unsupported("a subquery in a condition")
        select = _inner(query)
        if isinstance(select, exp.Select) and _is_plain(select):
            value, frame = _join_per_key(select, frame, plan, knows)
        else:
            value, frame = _join_one_row(select, frame, plan)
        query.replace(value)
    return holder.this, frame


def _inner(query: exp.Expr) -> exp.Expr:
    """Return a query without the brackets around it."""
    while isinstance(query, exp.Subquery) and not query.args.get("limit"):
        query = query.this
    return query


def _is_plain(select: exp.Select) -> bool:
    """Whether a SELECT is an aggregate of one row, or can be made one."""
    clauses = ("group", "having", "qualify", "limit", "offset", "distinct", "with_")
    (*items,) = select.expressions
    is_one = len(items) == 1 and not items[0].is_star and items[0].find(exp.Window) is None
    return is_one and not any(select.args.get(c) for c in clauses)


def _join_one_row(query: exp.Expr, frame: Frame, plan: Plans) -> tuple[exp.Expr, Frame]:
    """Join the one row of an uncorrelated query; return its value and the joined frame."""
    limit = query.args.get("limit")
    count = limit.args.get("expression") if limit is not None else None
    if not isinstance(count, exp.Literal) or count.this != "1":
        raise Unsupported("a scalar subquery that may have several rows")
    name = f"__scalar_{len(frame.items)}"
    found = frame_of(NamedNode(plan(query).node, ("value",)), name)
    node = outer_join(split_condition(frame, found, []), split_condition(found, frame, []), "LEFT")
    return exp.column("value", table=name), _with_item(frame, node, name, ("value",))


def _join_per_key(
    select: exp.Select, frame: Frame, plan: Plans, knows: Knows
) -> tuple[exp.Expr, Frame]:
    """Join a correlated aggregate's groups by key; return its value and the joined frame."""
    every = split_where(select)
    outside = [c for c in every if c.find(exp.Query) is None and not knows(select, c)]
    name = f"__scalar_{len(frame.items)}"
    item = select.expressions[0].unalias()
    columns = _columns(item)
    value = _value(item, name)
    if not outside:
        one = select.copy()
        one.set("expressions", columns)
        one.set("order", None)
        found = plan(one)
        width = len(frame.node.schema) + len(columns)
        node: Node = Join(frame.node, found.node, (), (), (), tuple(range(width)))
        return value, _with_item(frame, node, name, tuple(c.alias for c in columns))
    inner = [_key(c, select, knows) for c in outside]
    grouped = select.copy()
    rest = [c.copy() for c in every if c not in outside]
    grouped.set("where", exp.Where(this=exp.and_(*rest, copy=False)) if rest else None)
    grouped.set("order", None)
    keys = [exp.alias_(own.copy(), f"key{i}") for i, (own, _) in enumerate(inner)]
    grouped.set("expressions", [*keys, *columns, exp.alias_(exp.true(), "found")])
    grouped.set("group", exp.Group(expressions=[own.copy() for own, _ in inner]))
    found = plan(grouped)
    names = tuple(e.alias for e in grouped.expressions)
    groups = frame_of(NamedNode(found.node, names), name)
    equal: list[exp.Expr] = [
        exp.EQ(this=other.copy(), expression=exp.column(f"key{i}", table=name))
        for i, (_, other) in enumerate(inner)
    ]
    node = outer_join(
        split_condition(frame, groups, equal), split_condition(groups, frame, equal), "LEFT"
    )
    empty = _of_nothing(item) if has_aggregate(item) else exp.Null()
    case = exp.Case(
        ifs=[exp.If(this=exp.column("found", table=name), true=value)],
        default=empty,
    )
    return exp.Paren(this=case), _with_item(frame, node, name, names)


def _columns(item: exp.Expr) -> list[exp.Expr]:
    """List the aggregates to compute over the rows of each key, or over all rows."""
    if has_aggregate(item):
        return [exp.alias_(item.copy(), "value")]
    least = exp.Min(this=item.copy())
    return [exp.alias_(least, "value"), exp.alias_(exp.Count(this=exp.Star()), "rows")]


def _value(item: exp.Expr, name: str) -> exp.Expr:
    """Write the subquery's value as an expression over the columns of `_columns`."""
    value = exp.column("value", table=name)
    if has_aggregate(item):
        return value
    is_more = exp.GT(this=exp.column("rows", table=name), expression=exp.Literal.number(1))
    error = exp.Anonymous(this="error", expressions=[exp.Literal.string(_SEVERAL)])
    return exp.Paren(this=exp.Case(ifs=[exp.If(this=is_more, true=error)], default=value))


def _with_item(frame: Frame, node: Node, name: str, names: tuple[str, ...]) -> Frame:
    item = Item(name, names, len(frame.node.schema), hidden=len(names))
    return replace(frame, node=node, items=(*frame.items, item))


def _key(conjunct: exp.Expr, select: exp.Select, knows: Knows) -> tuple[exp.Expr, exp.Expr]:
    """Split a correlation into its inner and its outer side."""
    if isinstance(conjunct, exp.EQ):
        for own, other in (
            (conjunct.this, conjunct.expression),
            (conjunct.expression, conjunct.this),
        ):
            inside = reads_columns(own) and knows(select, own)
            if inside and not any(knows(select, c) for c in find_columns(other)):
                return own, other
    raise Unsupported("a scalar subquery that is not correlated by equality")


def _of_nothing(item: exp.Expr) -> exp.Expr:
    """Return the value of an aggregate's expression over no rows."""
    holder = exp.Paren(this=item.copy())
    calls = [(c, function) for c in holder.walk() if (function := find_aggregate(c)) is not None]
    for call, function in calls:
        whole = call
        while isinstance(whole.parent, exp.Filter | exp.WithinGroup):
            whole = whole.parent
        whole.replace(sqlglot.parse_one(function.of_nothing, dialect="duckdb"))
    if reads_columns(holder):
        raise Unsupported("an aggregate of no rows")
    return holder
