"""Which inputs of a query may be reduced: judged on the relation at every instant (STREAM, 5.1.1).

An input may be reduced if everything above it is monotone in it: fewer rows in it never make a row
in the answer, and change none. Selections, projections, inner joins, unions, intersections,
duplicate elimination, EXISTS and IN that are not negated, the left of EXCEPT, and the preserved
side of an outer join are monotone. What is not known to be monotone counts as not monotone.

What is subtracted twice counts as added: fewer rows of u in `s EXCEPT (t EXCEPT u)` leave more of t
to subtract. So on the way up it is noted whether fewer rows make more.

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
from millpond.planner.resolve.pushdown import split_conjuncts

#: The parts of a SELECT that are monotone, or looked at below; any other part is not.
_KNOWN_PARTS = frozenset(
    ("with_", "kind", "expressions", "hint", "distinct", "from_", "joins", "where", "order",
     "operation_modifiers", nodes.PERIOD)
)  # fmt: skip

_ASKS = "NOT EXISTS, NOT IN, or another condition, asks for rows of it: fewer rows may give more"
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
        if (
            distinct
            or isinstance(node, exp.Group)
            or (isinstance(node, exp.SetOperation) and node.args.get("distinct"))
        ):
            return (
                "the query is stream-valued and eliminates duplicates: with fewer rows it may"
                " put a row out again"
            )
        asks = isinstance(node, exp.In) and node.args.get("query")
        asks = asks or (isinstance(node, exp.Where) and node.find(exp.Query) is not None)
        if asks or isinstance(node, exp.Exists | exp.Intersect | exp.Except):
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
    #: Inputs, each with what makes more of fewer rows below it; empty: nothing does.
    waiting = [(start, "") for start in starts]
    seen: set[tuple[int, str]] = set()
    while waiting:
        node, inverted = waiting.pop()
        if (id(node), inverted) in seen:
            continue
        seen.add((id(node), inverted))
        obstacle, inverted, cte = _climb(node, body, inverted)
        if obstacle is not None:
            return obstacle
        if cte is None and inverted:
            return inverted
        if cte is not None:
            # Every table of the CTE's name, also one that another CTE hides: that asks too much,
            # never too little.
            name = cte.alias.lower()
            waiting += [
                (use, inverted)
                for use in body.find_all(exp.Table)
                if use.meta.get(LEAF) is None and use.name.lower() == name
            ]
    return None


def _climb(node: exp.Expr, body: exp.Expr, inverted: str) -> tuple[str | None, str, exp.CTE | None]:
    """Go up from an input to the whole query, or to the CTE it is in.

    Returns:
        What is in the way; what makes more of fewer rows; and the CTE.
    """

    def invert(what: str) -> str:
        return "" if inverted else what

    while node is not body:
        parent = node.parent
        match parent:
            case exp.From() | exp.Join():
                select = parent.parent
                if not isinstance(select, exp.Select):
                    return _NOT_KNOWN, inverted, None
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
                    inverted = invert("it is subtracted: with fewer rows there, EXCEPT leaves more")
                node = parent
            case exp.Exists() | exp.In():
                asked = "expressions" not in _parts(parent) and node.arg_key in ("this", "query")
                if isinstance(parent, exp.In) and node.arg_key != "query":
                    asked = False
                found, negated = _find_select_asking(parent) if asked else (None, False)
                if found is None:
                    return _ASKS, inverted, None
                if negated:
                    inverted = invert(_ASKS)
                obstacle, node = None, found
            case exp.CTE():
                with_ = parent.parent
                if isinstance(with_, exp.With) and with_.args.get("recursive"):
                    return "it is read by WITH RECURSIVE", inverted, None
                return None, inverted, parent
            case _:
                return _NOT_KNOWN, inverted, None
        if obstacle is None and isinstance(node, exp.Select):
            node = _find_select_comparing(node) or node
            obstacle = _judge_select(node)
        if obstacle is not None:
            return obstacle, inverted, None
    obstacle = _judge_select(body) if isinstance(body, exp.Select) else None
    return obstacle, inverted, None


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
        if not _only_chooses_groups(select):
            return "an aggregate computes from its rows together"
        parts -= {"group", "having"}
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


def _only_chooses_groups(select: exp.Select) -> bool:
    """Whether a SELECT gives keys of groups alone, and of fewer rows never another group.

    HAVING may ask for many rows, a great maximum or a small minimum.
    """
    group, having = select.args.get("group"), select.args.get("having")
    if group is None or set(_parts(group)) != {"expressions"} or _aggregates(select):
        return False
    conditions = split_conjuncts(having.this) if having is not None else ()
    return all(_asks_for_more(condition) for condition in conditions)


def _asks_for_more(condition: exp.Expr) -> bool:
    """Whether a condition on a group compares an aggregate so that fewer rows fulfil it less."""
    measured = condition.this
    if not isinstance(condition.args.get("expression"), exp.Literal):
        return False
    if isinstance(condition, exp.GT | exp.GTE):
        grows = isinstance(measured, exp.Count | exp.Max)
    else:
        grows = isinstance(condition, exp.LT | exp.LTE) and isinstance(measured, exp.Min)
    return grows and is_aggregate(measured) and measured.find(exp.Query) is None


def _find_select_comparing(select: exp.Select) -> exp.Select | None:
    """The SELECT whose WHERE asks that a value is beyond the MIN, or below the MAX, of another.

    Of fewer rows the minimum is greater, or NULL, so fewer values are beyond it. A NULL is not true
    where the comparison was false; so no NOT may be above it.
    """
    around = select.parent
    if set(_parts(select)) - {"expressions", "from_", "joins", "where", "kind"}:
        return None
    if not isinstance(around, exp.Subquery) or len(select.expressions) != 1:
        return None
    value, comparison = select.expressions[0].unalias(), around.parent
    kinds = {exp.Min: (exp.GT, exp.GTE), exp.Max: (exp.LT, exp.LTE)}.get(type(value), ())
    if not is_aggregate(value) or not isinstance(comparison, kinds):
        return None
    node: exp.Expr = comparison
    while isinstance(node.parent, exp.And | exp.Or | exp.Paren):
        node = node.parent
    if around.arg_key != "expression" or not isinstance(node.parent, exp.Where):
        return None
    found = node.parent.parent
    return found if isinstance(found, exp.Select) else None


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
        if obstacle is not None and not (on_right and _only_counts(select, join)):
            return obstacle
    return None


def _only_counts(select: exp.Select, join: exp.Join) -> bool:
    """Whether of a LEFT JOIN's right side only the number of partners matters, or that it is one.

    So it is if no column of it is read but in the join's own condition.
    """
    name = join.this.alias_or_name.lower()
    if join.side.upper() != "LEFT" or join.args.get("using") or join.args.get("method"):
        return False
    if not isinstance(join.this, exp.Table) or any(item.is_star for item in select.expressions):
        return False
    own = join.args.get("on")
    inside = set() if own is None else {id(column) for column in own.find_all(exp.Column)}
    others = [c for c in select.find_all(exp.Column) if id(c) not in inside]
    return all(column.table and column.table.lower() != name for column in others)


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


def _find_select_asking(condition: exp.Expr) -> tuple[exp.Expr | None, bool]:
    """The SELECT whose WHERE asks for a condition, None if there is none; and whether negated.

    AND and OR are true less, or as, often if a part is, by the order false, NULL, true; NOT turns
    the order around.
    """
    node, negated = condition, False
    while isinstance(node.parent, exp.And | exp.Or | exp.Paren | exp.Not):
        node = node.parent
        negated ^= isinstance(node, exp.Not)
    where = node.parent
    if not isinstance(where, exp.Where) or not isinstance(where.parent, exp.Select):
        return None, negated
    # The rows that the condition chooses are rows of the whole FROM clause.
    select = where.parent
    return (select if _judge_select(select) is None else None), negated
