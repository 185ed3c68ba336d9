"""The logical plan: a bound query as a tree of operators with the pattern of each edge.

The tree follows the query as written. EXPLAIN LOGICAL shows it, and it says whether rows ever leave
the answer. Changes are computed by another tree, of nodes (`planner/dataflow`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from millpond.cql.print.dialect import print_query
from millpond.cql.tree import nodes
from millpond.model.durations import duration_text
from millpond.model.patterns import ATTACHED, MONOTONIC, RELATION, RULES, Edge, Pattern, window_edge
from millpond.model.time import format_instant
from millpond.model.windows import Bound, Now, Period, Range, Rows, Unbounded, Window
from millpond.planner.bind.bound_query import BoundQuery, RelationLeaf, StreamLeaf
from millpond.planner.residual import LEAF, replace_literals
from millpond.planner.resolve.placement import is_aggregate
from millpond.planner.resolve.pushdown import split_conjuncts
from millpond.planner.resolve.with_entries import WithEntry, find_seen_entries


@dataclass(frozen=True)
class LogicalOperator:
    """An operator: its name, its text, its inputs and its output edge's pattern."""

    name: str
    detail: str
    edge: Edge
    inputs: tuple[LogicalOperator, ...] = ()

    @property
    def pattern(self) -> Pattern:
        return self.edge.pattern


def plan_logically(bound: BoundQuery) -> LogicalOperator:
    """Build the tree of operators of a query as written."""
    return _LogicalPlanner(bound).root()


def is_monotonic(bound: BoundQuery) -> bool:
    """Whether no row ever leaves a query's answer."""
    return plan_logically(bound).pattern is Pattern.MONOTONIC


def _apply(name: str, detail: str, *inputs: LogicalOperator) -> LogicalOperator:
    return LogicalOperator(name, detail, RULES[name]([i.edge for i in inputs]), inputs)


class _LogicalPlanner:
    """Builds the tree of one query."""

    def __init__(self, bound: BoundQuery) -> None:
        self._leaves: dict[str, StreamLeaf | RelationLeaf] = {f.table: f for f in bound.streams}
        self._leaves.update({f.table: f for f in bound.relations})
        self._entries: Mapping[str, WithEntry] = {}
        self._tree = bound.tree
        if bound.literals:
            self._tree = bound.tree.copy()
            replace_literals(self._tree, bound.literals)

    def root(self) -> LogicalOperator:
        tree = self._tree
        if isinstance(tree, nodes.RelationToStream):
            inner = self._query(tree.this)
            # The result is a stream: its elements never leave.
            return LogicalOperator(str(tree.args["kind"]).lower(), "", MONOTONIC, (inner,))
        return self._query(tree)

    def _query(self, node: exp.Expr) -> LogicalOperator:
        return self._plan_seeing(find_seen_entries(node, self._entries), node)

    def _plan_seeing(self, entries: Mapping[str, WithEntry], node: exp.Expr) -> LogicalOperator:
        """Plan a query in which these entries of WITH, its own among them, are visible."""
        before, self._entries = self._entries, entries
        try:
            if isinstance(node, exp.Subquery):
                return self._order(node, self._query(node.this))
            if isinstance(node, exp.SetOperation):
                return self._order(node, self._set_operation(node))
            return self._select(node)
        finally:
            self._entries = before

    def _set_operation(self, node: exp.SetOperation) -> LogicalOperator:
        left, right = self._query(node.left), self._query(node.right)
        once = bool(node.args.get("distinct"))
        match node:
            case exp.Except():
                plan = _apply("negation", "", left, right)
            case exp.Intersect():
                plan = _apply("intersect", "", left, right)
            case _:
                plan = _apply("union all", "", left, right)
        return _apply("distinct", "", plan) if once else plan

    def _select(self, node: exp.Expr) -> LogicalOperator:
        plan = self._from(node)
        if (where := node.args.get("where")) is not None:
            plan = self._filter(where.this, plan)
        group = node.args.get("group")
        aggregates = [
            call
            for item in (*node.expressions, node.args.get("having"))
            if item is not None
            for call in item.find_all(exp.Expr)
            if is_aggregate(call) and not isinstance(call.parent, exp.Window)
        ]
        if group is not None or aggregates:
            by = _text(group).removeprefix("GROUP BY ") if group is not None else "nothing"
            names = ", ".join(dict.fromkeys(_text(a) for a in aggregates))
            plan = _apply("group-by", f"{by}{': ' + names if names else ''}", plan)
        if (having := node.args.get("having")) is not None:
            plan = self._filter(having.this, plan)
        if any(i.find(exp.Window) for i in node.expressions) or node.args.get("qualify"):
            qualify = node.args.get("qualify")
            plan = _apply("window function", _text(qualify.this) if qualify else "", plan)
        subqueries = [
            self._query(q.this if isinstance(q, exp.Subquery) else q)
            for item in node.expressions
            for q in item.find_all(exp.Subquery, exp.Exists)
        ]
        if subqueries:
            plan = _apply("scalar subquery", "", plan, *subqueries)
        plan = _apply("project", ", ".join(_text(i) for i in node.expressions), plan)
        if (distinct := node.args.get("distinct")) is not None:
            on = distinct.args.get("on")
            # DISTINCT ON keeps each key's first row: a new row may come before it.
            plan = (
                _apply("limit", f"1 of each {_text(on)}", plan)
                if on
                else _apply("distinct", "", plan)
            )
        return self._order(node, plan)

    def _order(self, node: exp.Expr, plan: LogicalOperator) -> LogicalOperator:
        if (order := node.args.get("order")) is not None:
            plan = _apply("order", _text(order).strip().removeprefix("ORDER BY "), plan)
        for clause in ("limit", "offset"):
            if (part := node.args.get(clause)) is not None:
                plan = _apply("limit", _text(part).removeprefix("LIMIT "), plan)
        return plan

    def _from(self, node: exp.Expr) -> LogicalOperator:
        clause = node.args.get("from_")
        if clause is None:
            return LogicalOperator("one row", "", MONOTONIC)
        plan = self._item(clause.this)
        for join in node.args.get("joins") or []:
            plan = self._join(join, plan)
        return plan

    def _join(self, join: exp.Join, left: LogicalOperator) -> LogicalOperator:
        right = self._item(join.this)
        on = join.args.get("on")
        detail = _text(on) if on is not None else ""
        if using := join.args.get("using"):
            detail = ", ".join(_text(i) for i in using)
        if join.method == "ASOF":
            return _apply("asof join", detail, left, right)
        if join.kind == "ANTI":
            return _apply("negation", detail, left, right)
        if join.side in ("LEFT", "RIGHT", "FULL"):
            return _apply("outer join", detail or join.side, left, right)
        return _apply("semijoin" if join.kind == "SEMI" else "join", detail, left, right)

    def _item(self, node: exp.Expr) -> LogicalOperator:
        joins = node.args.get("joins") or []
        if isinstance(node, exp.Table):
            leaf = self._leaves.get(node.meta.get(LEAF, ""))
            if leaf is not None:
                plan = self._leaf(leaf)
            else:
                entry = self._entries[node.name.lower()]
                plan = self._plan_seeing(
                    find_seen_entries(entry.cte.this, entry.seen), entry.cte.this
                )
        else:
            plan = self._query(node)
        for join in joins:
            plan = self._join(join, plan)
        return plan

    def _leaf(self, leaf: StreamLeaf | RelationLeaf) -> LogicalOperator:
        if isinstance(leaf, RelationLeaf) and leaf.hidden:
            return LogicalOperator("non-retroactive relation", leaf.relation, ATTACHED)
        if isinstance(leaf, RelationLeaf):
            return LogicalOperator("relation", leaf.relation, RELATION)
        plan = LogicalOperator("stream", leaf.stream, MONOTONIC)
        if leaf.before is not None:
            plan = _apply("select", _text(leaf.before), plan)
        if leaf.sample is not None:
            plan = LogicalOperator("sample", f"{leaf.sample:g} %", plan.edge, (plan,))
        if isinstance(leaf.window, Unbounded):
            return plan
        return LogicalOperator(
            "window", window_text(leaf.window), window_edge(leaf.window), (plan,)
        )

    def _filter(self, predicate: exp.Expr, plan: LogicalOperator) -> LogicalOperator:
        """Plan selections; conjuncts with subqueries become semijoins and negations."""
        plain = [c for c in split_conjuncts(predicate) if c.find(exp.Query) is None]
        if plain:
            plan = _apply("select", " AND ".join(_text(c) for c in plain), plan)
        for conjunct in split_conjuncts(predicate):
            query = conjunct.find(exp.Query)
            if query is None:
                continue
            inner = self._query(query)
            plan = _apply(_subquery_kind(conjunct), _outline(conjunct), plan, inner)
        return plan


def window_text(window: Window) -> str:
    """Write a window as CQL, without its WHERE.

    >>> window_text(Range(3_600_000_000)), window_text(Rows(10, ("carrier",)))
    ('[RANGE 1 HOUR]', '[PARTITION BY carrier ROWS 10]')
    """
    match window:
        case Unbounded():
            return "[RANGE UNBOUNDED]"
        case Now():
            return "[NOW]"
        case Range(size, slide):
            slides = f" SLIDE {duration_text(slide)}" if slide else ""
            return f"[RANGE {duration_text(size)}{slides}]"
        case Rows(count, by):
            return f"[{'PARTITION BY ' + ', '.join(by) + ' ' if by else ''}ROWS {count}]"
        case Period(begin, end):
            return f"BEGIN {_bound_text(begin)} END {_bound_text(end)}"


def _bound_text(bound: Bound) -> str:
    if bound.instant is not None:
        return f"'{format_instant(bound.instant)}'"
    if not bound.offset:
        return "NOW"
    return f"NOW {'-' if bound.offset < 0 else '+'} {duration_text(abs(bound.offset))}"


def _subquery_kind(conjunct: exp.Expr) -> str:
    if conjunct.find(exp.Not, exp.All) is not None:
        return "negation"
    if conjunct.find(exp.Exists, exp.Any) is not None:
        return "semijoin"
    inside = conjunct.find(exp.In)
    if inside is not None and inside.args.get("query") is not None:
        return "semijoin"
    return "scalar subquery"


def _outline(conjunct: exp.Expr) -> str:
    """Write a conjunct with its subqueries left out: the plan shows them as inputs."""
    copied = exp.Paren(this=conjunct.copy())
    for query in list(copied.find_all(exp.Subquery, exp.Select)):
        if query.find_ancestor(exp.Subquery, exp.Select) is None:
            rest: exp.Expr = exp.Column(this=exp.Identifier(this="…"))
            bare = isinstance(query.parent, exp.Exists | exp.Any | exp.All)
            query.replace(rest if bare else exp.Subquery(this=rest))
    return _text(copied.this)


def _text(node: exp.Expr) -> str:
    return print_query(node).strip()
