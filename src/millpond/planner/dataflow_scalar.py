"""Scalar subqueries without their subquery: a join with one row, or with a row for each key.

    x > (SELECT max(v) FROM t)                  the row of the aggregate beside every row
    x > (SELECT max(v) FROM t WHERE t.k = s.k)  t's groups by k; a row without a group has the
                                                aggregates of no rows: NULL, and 0 for counts

Only aggregates without GROUP BY are known to have one row at every instant; whether anything else
has is for each instant to tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from millpond.operators.join import Join
from millpond.operators.node import Node
from millpond.planner.dataflow_frame import (
    Frame,
    Item,
    Relation,
    Unsupported,
    columns_of,
    frame_of,
)
from millpond.planner.dataflow_joins import condition, outer
from millpond.planner.placement import has_aggregate, is_aggregate
from millpond.planner.pushdown import conjuncts

#: What plans a query that reads nothing around it.
Plans = Callable[[exp.Expr], Relation]
#: Tells of a query which of its columns its own FROM clause has.
Knows = Callable[[exp.Select, exp.Expr], bool]


def without_scalars(
    expression: exp.Expr, frame: Frame, plan: Plans, knows: Knows
) -> tuple[exp.Expr, Frame]:
    """An expression with columns in the place of its scalar subqueries, and a frame that has them.

    Args:
        expression: What may hold scalar subqueries.
        frame: The rows it is evaluated on.
        plan: Plans a query on its own.
        knows: Whether a SELECT's FROM clause has all columns of an expression.

    Raises:
        Unsupported: a subquery is no aggregate of one row, or is correlated in another way.
    """
    holder = exp.Paren(this=expression.copy())
    for query in [q for q in holder.find_all(exp.Query) if q.find_ancestor(exp.Query) is None]:
        if not isinstance(query, exp.Subquery) or isinstance(query.parent, exp.In):
            raise Unsupported("a subquery in a condition")
        select = query.unnest()
        if not isinstance(select, exp.Select) or not _is_one_row(select):
            raise Unsupported("a scalar subquery that is no aggregate")
        value, frame = _beside(select, frame, plan, knows)
        query.replace(value)
    return holder.this, frame


def _is_one_row(select: exp.Select) -> bool:
    clauses = ("group", "having", "qualify", "limit", "offset", "distinct", "with_")
    one = len(select.expressions) == 1 and has_aggregate(select.expressions[0])
    return one and not any(select.args.get(c) for c in clauses)


def _beside(select: exp.Select, frame: Frame, plan: Plans, knows: Knows) -> tuple[exp.Expr, Frame]:
    """The value of an aggregate as an expression, and the frame with what it reads."""
    where = select.args.get("where")
    every = list(conjuncts(where.this if where is not None else None))
    outside = [c for c in every if c.find(exp.Query) is None and not knows(select, c)]
    name = f"__scalar_{len(frame.items)}"
    if not outside:
        found = plan(select)
        node: Node = Join(
            frame.node, found.node, (), (), (), tuple(range(len(frame.node.schema) + 1))
        )
        return exp.column("value", table=name), _with_item(frame, node, name, ("value",))
    inner = [_key(c, select, knows) for c in outside]
    grouped = select.copy()
    rest = [c.copy() for c in every if c not in outside]
    grouped.set("where", exp.Where(this=exp.and_(*rest, copy=False)) if rest else None)
    keys = [exp.alias_(own.copy(), f"key{i}") for i, (own, _) in enumerate(inner)]
    value = exp.alias_(select.expressions[0].unalias().copy(), "value")
    grouped.set("expressions", [*keys, value, exp.alias_(exp.true(), "found")])
    grouped.set("group", exp.Group(expressions=[own.copy() for own, _ in inner]))
    found = plan(grouped)
    groups = frame_of(Relation(found.node, _names(len(inner))), name)
    equal: list[exp.Expr] = [
        exp.EQ(this=other.copy(), expression=exp.column(f"key{i}", table=name))
        for i, (_, other) in enumerate(inner)
    ]
    node = outer(condition(frame, groups, equal), condition(groups, frame, equal), "LEFT")
    empty = _of_nothing(select.expressions[0].unalias())
    case = exp.Case(
        ifs=[exp.If(this=exp.column("found", table=name), true=exp.column("value", table=name))],
        default=empty,
    )
    return exp.Paren(this=case), _with_item(frame, node, name, _names(len(inner)))


def _names(keys: int) -> tuple[str, ...]:
    return (*(f"key{i}" for i in range(keys)), "value", "found")


def _with_item(frame: Frame, node: Node, name: str, names: tuple[str, ...]) -> Frame:
    item = Item(name, names, len(frame.node.schema), hidden=len(names))
    return replace(frame, node=node, items=(*frame.items, item))


def _key(conjunct: exp.Expr, select: exp.Select, knows: Knows) -> tuple[exp.Expr, exp.Expr]:
    """The inner and the outer side of a correlation."""
    if isinstance(conjunct, exp.EQ):
        for own, other in (
            (conjunct.this, conjunct.expression),
            (conjunct.expression, conjunct.this),
        ):
            reads = any(True for _ in columns_of(own))
            if (
                reads
                and knows(select, own)
                and not any(knows(select, c) for c in columns_of(other))
            ):
                return own, other
    raise Unsupported("a scalar subquery that is not correlated by equality")


def _of_nothing(item: exp.Expr) -> exp.Expr:
    """The aggregate's expression over no rows."""
    holder = exp.Paren(this=item.copy())
    for call in [c for c in holder.walk() if is_aggregate(c)]:
        whole = call
        while isinstance(whole.parent, exp.Filter | exp.WithinGroup):
            whole = whole.parent
        if isinstance(call, exp.Count | exp.CountIf | exp.ApproxDistinct):
            whole.replace(exp.Literal.number(0))
        elif isinstance(call, exp.Anonymous):
            raise Unsupported("an aggregate of no rows")
        else:
            whole.replace(exp.Null())
    if any(True for _ in columns_of(holder)):
        raise Unsupported("an aggregate of no rows")
    return holder
