"""Which inputs of a query may be reduced: judged on the relation at every instant (STREAM, 5.1.1).

An input may be reduced if everything above it is monotone in it: fewer rows in it never make a row
in the answer, and change none. Selections, projections, inner joins, unions, intersections,
duplicate elimination, EXISTS and IN that are not negated, the left of EXCEPT, and the preserved
side of an outer join are monotone. What is not known to be monotone counts as not monotone.

A stream-valued query must be MONOTONIC too, and eliminate no duplicates: a smaller input below
DISTINCT may put a row out again.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.cql.tree import nodes
from millpond.model.patterns import Pattern
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.explain.logical_plan import plan_logically
from millpond.planner.residual import LEAF
from millpond.planner.resolve.placement import is_aggregate

#: The parts of a SELECT that are monotone, or looked at below; any other part is not.
_KNOWN_PARTS = frozenset(
    ("with_", "kind", "expressions", "hint", "distinct", "from_", "joins", "where", "order",
     "operation_modifiers", nodes.PERIOD)
)  # fmt: skip

_NOT_KNOWN = "it is in a place where fewer rows may change others"


def find_obstacle(bound: BoundQuery, table: str) -> str | None:
    """Say why an occurrence of a stream may not be reduced; None if it may.

    Args:
        bound: The query.
        table: The name of the occurrence's slice.
    """
    tree = bound.tree
    if isinstance(tree, nodes.RelationToStream):
        return _find_obstacle_of_stream(bound) or _climb_all(tree.this, table)
    return _climb_all(tree, table)


def _find_obstacle_of_stream(bound: BoundQuery) -> str | None:
    if bound.to_stream == "dstream":
        return "DSTREAM gives the rows that leave, and fewer rows may leave later"
    if bound.to_stream == "rstream":
        return None
    plan = plan_logically(bound)
    if any(below.pattern is not Pattern.MONOTONIC for below in plan.inputs):
        return "the query is stream-valued and rows leave its relation"
    body = bound.tree.this
    for node in body.walk():
        distinct = isinstance(node, exp.Select) and node.args.get("distinct")
        if distinct or (isinstance(node, exp.SetOperation) and node.args.get("distinct")):
            return (
                "the query is stream-valued and eliminates duplicates: with fewer rows it may"
                " put a row out again"
            )
        if isinstance(node, exp.Exists | exp.Intersect | exp.Except) or (
            isinstance(node, exp.In) and node.args.get("query")
        ):
            return (
                "the query is stream-valued and asks whether rows are there: with fewer rows it"
                " may put a row out later"
            )
    return None


def find_obstacle_above(bound: BoundQuery, select: exp.Select) -> str | None:
    """Say why the rows that a SELECT's WHERE chooses may not be others; None if they may.

    The SELECT is one of the query's tree, which is relation-valued.
    """
    return _judge_select(select) or _climb_from([select], bound.tree)


def _climb_all(body: exp.Expr, table: str) -> str | None:
    """Judge every place at which the rows of a slice come into the query."""
    starts = [node for node in body.find_all(exp.Table) if node.meta.get(LEAF) == table]
    return _climb_from([*starts], body) if starts else _NOT_KNOWN


def _climb_from(starts: list[exp.Expr], body: exp.Expr) -> str | None:
    """Judge all that is above some inputs."""
    seen: set[int] = set()
    while starts:
        node = starts.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        obstacle, cte = _climb(node, body)
        if obstacle is not None:
            return obstacle
        if cte is not None:
            # Every table of the CTE's name, also one that another CTE hides: that asks too much,
            # never too little.
            name = cte.alias.lower()
            starts += [
                use
                for use in body.find_all(exp.Table)
                if use.meta.get(LEAF) is None and use.name.lower() == name
            ]
    return None


def _climb(node: exp.Expr, body: exp.Expr) -> tuple[str | None, exp.CTE | None]:
    """Go up from an input to the whole query, or to the CTE it is in.

    Returns:
        What is in the way, and the CTE.
    """
    while node is not body:
        parent = node.parent
        match parent:
            case exp.From() | exp.Join():
                select = parent.parent
                if not isinstance(select, exp.Select):
                    return _NOT_KNOWN, None
                obstacle = _judge_joins(select, parent)
                if obstacle is None and isinstance(node, exp.Table) and node.args.get("joins"):
                    obstacle = _NOT_KNOWN
                node = parent
            case exp.Subquery():
                plain = isinstance(node, exp.Query) and not isinstance(node, exp.Subquery)
                obstacle = None if plain else _NOT_KNOWN
                if set(_parts(parent)) - {"this", "alias", "with_"}:
                    obstacle = _NOT_KNOWN
                node = parent
            case exp.Select():
                obstacle = None if isinstance(node, exp.From | exp.Join) else _NOT_KNOWN
                node = parent
            case exp.Union() | exp.Intersect():
                obstacle = _judge_set_operation(parent)
                node = parent
            case exp.Except():
                obstacle = _judge_set_operation(parent)
                if node.arg_key != "this":
                    obstacle = "it is subtracted: with fewer rows there, EXCEPT leaves more"
                node = parent
            case exp.Exists() | exp.In():
                asked = "expressions" not in _parts(parent) and node.arg_key in ("this", "query")
                if isinstance(parent, exp.In) and node.arg_key != "query":
                    asked = False
                found = _find_select_asking(parent) if asked else None
                if found is None:
                    negated = (
                        "NOT EXISTS, NOT IN, or another condition, asks for rows of it: fewer"
                        " rows there may give more"
                    )
                    return negated, None
                obstacle, node = None, found
            case exp.CTE():
                with_ = parent.parent
                if isinstance(with_, exp.With) and with_.args.get("recursive"):
                    return "it is read by WITH RECURSIVE", None
                return None, parent
            case _:
                return _NOT_KNOWN, None
        if obstacle is None and isinstance(node, exp.Select):
            obstacle = _judge_select(node)
        if obstacle is not None:
            return obstacle, None
    obstacle = _judge_select(body) if isinstance(body, exp.Select) else None
    return obstacle, None


def _parts(node: exp.Expr) -> Iterator[str]:
    """The arguments of a node that are there."""
    return (key for key, value in node.args.items() if value not in (None, False, []))


def _judge_select(select: exp.Select) -> str | None:
    """Why a SELECT is not monotone in the items of its FROM clause."""
    parts = set(_parts(select))
    if "limit" in parts or "offset" in parts or "fetch" in parts:
        return "LIMIT chooses among its rows"
    if nodes.PREFERENCE in parts:
        return "its PREFERENCE chooses among its rows"
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        return "DISTINCT ON chooses among its rows"
    if _has(select, exp.Window) or "qualify" in parts:
        return "a window function computes from its rows together"
    if "group" in parts or "having" in parts or _aggregates(select):
        return "an aggregate computes from its rows together"
    unknown = parts - _KNOWN_PARTS
    return f"{', '.join(sorted(unknown))}: {_NOT_KNOWN}" if unknown else None


def _judge_set_operation(node: exp.SetOperation) -> str | None:
    parts = set(_parts(node)) - {"this", "expression", "distinct", "with_", "order"}
    if "limit" in parts or "offset" in parts:
        return "LIMIT chooses among its rows"
    return f"{', '.join(sorted(parts))}: {_NOT_KNOWN}" if parts else None


def _own(select: exp.Select) -> Iterator[exp.Expr]:
    """The nodes of a SELECT's list, its ORDER BY and its joins, without subqueries."""
    for part in (*select.expressions, select.args.get("order")):
        if part is not None:
            yield from part.walk(prune=lambda node: isinstance(node, exp.Query))


def _has(select: exp.Select, kind: type[exp.Expr]) -> bool:
    return any(isinstance(node, kind) for node in _own(select))


def _aggregates(select: exp.Select) -> bool:
    return any(is_aggregate(node) for node in _own(select))


def _judge_joins(select: exp.Select, item: exp.From | exp.Join) -> str | None:
    """Why a SELECT's joins are not monotone in an item of its FROM clause."""
    joins = list(select.args.get("joins") or ())
    place = (
        -1
        if isinstance(item, exp.From)
        else next((n for n, join in enumerate(joins) if join is item), len(joins))
    )
    for number, join in enumerate(joins):
        if number < place:
            continue  # it joins what lies before the item
        on_right = number == place
        obstacle = _judge_join(join, on_right)
        if obstacle is not None:
            return obstacle
    return None


def _judge_join(join: exp.Join, on_right: bool) -> str | None:
    side, kind = join.side.upper(), join.kind.upper()
    method = str(join.args.get("method") or "").upper()
    if isinstance(join.this, exp.Table) and join.this.args.get("joins"):
        return _NOT_KNOWN
    if method not in ("", "NATURAL", "ASOF") or kind not in (
        "", "INNER", "CROSS", "OUTER", "SEMI", "ANTI",
    ):  # fmt: skip
        return f"{method or kind} JOIN: {_NOT_KNOWN}"
    if method == "ASOF" and on_right:
        return "ASOF JOIN chooses among its rows"
    if kind == "ANTI" and on_right:
        return "ANTI JOIN asks that it has no row: fewer rows there may give more"
    if side == "FULL" or (side == "LEFT" and on_right) or (side == "RIGHT" and not on_right):
        return "the outer join fills up with NULL what has no partner in it"
    return None


def _find_select_asking(condition: exp.Expr) -> exp.Expr | None:
    """The FROM clause of the SELECT whose WHERE asks for a condition, not negated; else None."""
    node = condition
    while isinstance(node.parent, exp.And | exp.Or | exp.Paren):
        node = node.parent
    where = node.parent
    if not isinstance(where, exp.Where) or not isinstance(where.parent, exp.Select):
        return None
    # The rows that the condition chooses are rows of the whole FROM clause.
    select = where.parent
    return select if _judge_select(select) is None else None
