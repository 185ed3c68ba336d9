"""From a query's tree to nodes: set operations, SELECT lists, and parts without operators.

Where a part of SQL has no incremental operators, `Unsupported` is raised. The smallest query around
the part that reads nothing outside itself becomes one node, which recomputes it at every change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import duckdb
from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.cql.tree import nodes
from millpond.operators.expire import announce_expirations
from millpond.operators.negation import Negation
from millpond.operators.protocol.node import Node
from millpond.operators.recompute import Recompute
from millpond.operators.set_operations import SetOperation
from millpond.operators.union import Union
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.dataflow.column_types import (
    find_answer_columns,
    find_answer_types,
    type_names,
)
from millpond.planner.dataflow.frame import (
    Frame,
    NamedNode,
    Unsupported,
    as_types,
    expand_star,
    project,
    unnest,
)
from millpond.planner.dataflow.from_clause import keeps_right, split_plain_where
from millpond.planner.dataflow.from_items import Items
from millpond.planner.dataflow.group_by import is_grouped, plan_groups, read_whole_window
from millpond.planner.dataflow.join_items import join_items
from millpond.planner.dataflow.joins import eliminate_duplicates
from millpond.planner.dataflow.nrr_join import has_nrr, join_nrrs
from millpond.planner.dataflow.recompute_groups import ListedItem as Listed
from millpond.planner.dataflow.recompute_groups import recompute_grouped
from millpond.planner.dataflow.subquery_conditions import Subqueries
from millpond.planner.dataflow.top_k import Cut
from millpond.planner.dataflow.window_functions import plan_window_functions
from millpond.planner.optimize.choices import Choices
from millpond.planner.residual import LEAF, replace_literals, to_slices
from millpond.planner.resolve.ages import COLUMNS, write_aged
from millpond.planner.resolve.placement import find_set_call, has_aggregate
from millpond.planner.resolve.pushdown import split_where
from millpond.planner.resolve.with_entries import find_own_entries


class Compiler:
    """Compiles one bound query.

    Attributes:
        reasons: Why parts of the query are recomputed at every change.
    """

    def __init__(
        self,
        bound: BoundQuery,
        leaves: Mapping[str, Node],
        columns: Mapping[str, tuple[str, ...]],
        choices: Choices = MappingProxyType({}),
        *,
        shares: bool = False,
    ) -> None:
        """Make a compiler of a query.

        Args:
            bound: The query.
            leaves: Its leaves' nodes, by the tables they are bound to.
            columns: The names of the nodes' columns, hidden columns last.
            choices: What somebody chose of operators.
            shares: Whether its windows are over what they share with other queries' windows.
        """
        self._shares = shares
        self.reasons: list[str] = []
        self._items = Items(bound, leaves, columns, self.compile_relation, choices)
        self._subqueries = Subqueries(self._items)
        self._tree = bound.tree
        if bound.literals:
            self._tree = bound.tree.copy()
            replace_literals(self._tree, bound.literals)

    def compile_query(self) -> NamedNode:
        """Compile the whole query."""
        tree = self._tree
        return self.compile_relation(
            tree.this if isinstance(tree, nodes.RelationToStream) else tree
        )

    def compile_relation(self, node: exp.Expr) -> NamedNode:
        """Compile a query that reads nothing around it.

        Raises:
            Unsupported: the query reads columns of a query around it.
        """
        known = len(self.reasons)
        try:
            return self._query(node)
        except Unsupported as unsupported:
            del self.reasons[known:]
            found = self._recompute(node, str(unsupported))
            self.reasons.append(str(unsupported))
            return found

    def _query(self, node: exp.Expr) -> NamedNode:
        with self._items.within(node):
            distinct = node.args.get("distinct")
            if isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
                raise Unsupported("DISTINCT ON")
            if node.args.get("limit") or node.args.get("offset"):
                cut = Cut(node)
                return cut.first_of(self._query(cut.uncut))
            match node:
                case exp.Subquery():
                    return self._query(node.this)
                case exp.SetOperation():
                    return self._set_operation(node)
                case exp.Select():
                    return self._select(node)
            raise Unsupported(type(node).__name__)

    # -- set operations ----------------------------------------------------------------------------

    def _set_operation(self, node: exp.SetOperation) -> NamedNode:
        if node.args.get(nodes.BY_ATTRIBUTES):
            return self._negation(node)
        left, right = self.compile_relation(node.left), self.compile_relation(node.right)
        once = bool(node.args.get("distinct"))
        both = _align_types([left.node, right.node])
        match node:
            case exp.Except():
                rule = "except" if once else "except all"
            case exp.Intersect():
                rule = "intersect" if once else "intersect all"
            case _:
                united = Union(tuple(both))
                return NamedNode(eliminate_duplicates(united) if once else united, left.names)
        return NamedNode(SetOperation(tuple(map(announce_expirations, both)), rule), left.names)

    def _negation(self, node: exp.SetOperation) -> NamedNode:
        """Compile EXCEPT ALL … BY: a left row is as old as the youngest element it is made of."""
        aged = write_aged(node.left, node.meta[COLUMNS])
        left, right = self.compile_relation(aged), self.compile_relation(node.right)
        places = []
        for side in (left, right):
            lower = [name.lower() for name in side.names]
            places.append(
                tuple(lower.index(a.name.lower()) for a in node.args[nodes.BY_ATTRIBUTES])
            )
        types = [
            [side.node.schema.field(p).type for p in by]
            for side, by in zip((left, right), places, strict=True)
        ]
        if types[0] != types[1]:
            raise Unsupported("EXCEPT ALL … BY attributes of different types")
        by = ", ".join(a.name for a in node.args[nodes.BY_ATTRIBUTES])
        found = Negation(
            announce_expirations(left.node),
            announce_expirations(right.node),
            places[0],
            places[1],
            by,
        )
        return NamedNode(found, left.names[:-1])

    # -- SELECT ------------------------------------------------------------------------------------

    def _select(self, node: exp.Select) -> NamedNode:
        for clause in ("windows", "laterals"):
            if node.args.get(clause):
                raise Unsupported(clause.upper())
        has_windows = any(item.find(exp.Window) for item in node.expressions)
        frame = self._rows(node)
        if has_windows or node.args.get("qualify"):
            if node.args.get("group") or node.args.get("having") or _has_plain_aggregates(node):
                raise Unsupported("window functions over groups")
            found = plan_window_functions(node, frame, self._list_columns(node, frame))
        elif is_grouped(node):
            found = self._compile_grouped(node, frame)
        else:
            found = self._project(tuple(node.expressions), frame)
        if node.args.get("distinct") is None:
            return found
        return NamedNode(eliminate_duplicates(found.node), found.names)

    def _rows(self, node: exp.Select) -> Frame:
        """Compile the rows of FROM and WHERE."""
        waiting = split_plain_where(node)
        planned = join_nrrs if has_nrr(node, self._items) else join_items
        frame = planned(node, self._items, waiting)
        if keeps_right(node):
            frame = frame.select(split_plain_where(node))
        for conjunct in split_where(node):
            if conjunct.find(exp.Query) is not None:
                frame = self._subqueries.apply_condition(conjunct, frame)
            elif not frame.covers(conjunct):
                raise Unsupported("a condition that names something of the SELECT list")
        return frame

    def _compile_grouped(self, node: exp.Select, frame: Frame) -> NamedNode:
        """Compile a SELECT with groups over the rows of its FROM and WHERE."""
        for item in node.expressions:
            _refuse_set_calls(item)  # a group may be made of what it gives
        try:
            groups = plan_groups(node, read_whole_window(frame) if self._shares else frame)
        except Unsupported as unsupported:
            return recompute_grouped(node, frame, self._list_columns(node, frame), str(unsupported))
        text = ", ".join(item.sql() for item in node.expressions)
        parts = [self._project(g.items, g.frame, text) for g in groups]
        if len(parts) == 1:
            return parts[0]
        return NamedNode(Union(tuple(_align_types([p.node for p in parts]))), parts[0].names)

    def _list_columns(self, node: exp.Select, frame: Frame) -> list[Listed]:
        """List the columns of a SELECT list as expressions over a frame's rows."""
        listed: list[Listed] = []
        for item in node.expressions:
            value = item.unalias()
            _refuse_set_calls(value)
            if value.is_star:
                listed += expand_star(value, frame)
            else:
                listed.append((item.alias_or_name or value.sql(), value))
        return listed

    def _project(self, items: Sequence[exp.Expr], frame: Frame, text: str = "") -> NamedNode:
        """Project rows to a SELECT list; `text` is the list as written, if different."""
        names: list[str] = []
        columns: list[str | int] = []
        arrange = project
        for item in items:
            value = item.unalias()
            if value.is_star:
                for name, place in expand_star(value, frame):
                    names.append(name)
                    columns.append(place)
                continue
            if find_set_call(value) is not None:
                arrange = unnest
            if value.find(exp.Query) is not None:
                value, frame = self._subqueries.replace_subqueries(value, frame)
            names.append(item.alias_or_name or value.sql())
            found = frame.find(value) if isinstance(value, exp.Column) else None
            columns.append(frame.sql(value) if found is None else found)
        text = text or ", ".join(item.sql() for item in items)
        return NamedNode(arrange(frame.node, columns, text), tuple(names))

    # -- parts without operators -------------------------------------------------------------------

    def _recompute(self, node: exp.Expr, reason: str) -> NamedNode:
        """Compile a query that reads nothing around it to one node that recomputes the query."""
        copied = node.copy()
        own = find_own_entries(copied)
        around = {n: e.cte.copy() for n, e in self._items.entries.items() if n not in own}
        if around:
            inside = {cte.alias.lower() for cte in copied.find_all(exp.CTE)}
            if isinstance(copied, exp.Subquery) and not inside.isdisjoint(around):
                # Of two WITH entries with one name and brackets between them, DuckDB takes the
                # outer.
                raise Unsupported(reason)
            copied.set("with_", exp.With(expressions=[*around.values(), *own.values()]))
        used = dict.fromkeys(
            t.meta[LEAF] for t in copied.find_all(exp.Table) if t.meta.get(LEAF) is not None
        )
        if isinstance(copied, exp.Subquery):
            copied.args.pop("alias", None)
        copied = to_slices(copied)
        sql = to_duckdb(copied)
        leaves = {name: self._items.table(name) for name in used}
        tables = tuple((name, columns) for name, (_, columns) in leaves.items())
        over = tuple(leaf for leaf, _ in leaves.values())
        try:
            columns = find_answer_columns(sql, tables, [n.schema for n in over])
        except duckdb.Error as error:
            raise Unsupported(reason) from error
        return NamedNode(
            Recompute(over, tables, sql, tuple(t for _, t in columns), reason),
            tuple(n for n, _ in columns),
        )


def _has_plain_aggregates(node: exp.Select) -> bool:
    """Whether a SELECT list has aggregates in addition to its window functions."""
    for item in node.expressions:
        rest = exp.Paren(this=item.copy())
        for window in list(rest.find_all(exp.Window)):
            window.replace(exp.Null())
        if has_aggregate(rest):
            return True
    return False


def _refuse_set_calls(value: exp.Expr) -> None:
    if (call := find_set_call(value)) is not None:
        raise Unsupported(call.name.lower())


def _align_types(some: Sequence[Node]) -> list[Node]:
    """Cast nodes' columns to common types, as a union needs."""
    tables = [(f"t{n}", node.schema.names) for n, node in enumerate(some)]
    sql = " UNION ALL ".join(f"SELECT * FROM {name}" for name, _ in tables)
    types = list(find_answer_types(sql, tables, [node.schema for node in some]))
    return [as_types(node, types, type_names(types)) for node in some]
