"""The items of FROM clauses while a dataflow is planned: leaves, entries of WITH and subqueries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.operators.protocol.node import Node
from millpond.planner.bind.bound_query import BoundQuery, RelationLeaf, StreamLeaf
from millpond.planner.dataflow.frame import Frame, NamedNode, Plans, Unsupported, frame_of
from millpond.planner.optimize.choices import Choices
from millpond.planner.residual import LEAF
from millpond.planner.resolve.pushdown import split_conjuncts
from millpond.planner.resolve.with_entries import WithEntry, find_seen_entries


class Items:
    """Plans the items of a query's FROM clauses.

    Attributes:
        plan: Plans a subquery that reads nothing around it.
        choices: What somebody chose of operators: in which order items are joined.
        entries: The entries of WITH that are visible in the part being planned, in the order of
            the text, by their names in lower case.
    """

    def __init__(
        self,
        bound: BoundQuery,
        nodes: Mapping[str, Node],
        columns: Mapping[str, tuple[str, ...]],
        plan: Plans,
        choices: Choices = MappingProxyType({}),
    ) -> None:
        """Plan items of a bound query.

        Args:
            bound: The query.
            nodes: The leaves' nodes, by the tables they are bound to.
            columns: The names of the nodes' columns, hidden columns last.
            plan: The attribute `plan`.
            choices: The attribute `choices`.
        """
        self.plan = plan
        self.choices = choices
        self.entries: Mapping[str, WithEntry] = {}
        self._nodes, self._columns = nodes, columns
        self._pushed = {
            leaf.table: frozenset(to_duckdb(p) for p in split_conjuncts(leaf.pushed))
            for leaf in bound.streams
            if leaf.pushed is not None
        }
        self._leaves: dict[str, StreamLeaf | RelationLeaf] = {f.table: f for f in bound.streams}
        self._leaves.update({f.table: f for f in bound.relations})

    def leaf(self, item: exp.Expr) -> StreamLeaf | RelationLeaf | None:
        """Find the stream or relation of an item; None for a subquery or an entry of WITH."""
        return self._leaves.get(item.meta.get(LEAF, "")) if isinstance(item, exp.Table) else None

    def table(self, name: str) -> tuple[Node, tuple[str, ...]]:
        """Look up a leaf's node and its columns' names by the table the leaf is bound to."""
        return self._nodes[name], self._columns[name]

    @contextmanager
    def within(self, query: exp.Expr) -> Iterator[None]:
        """Make the entries of a query's WITH visible while the context is open."""
        with self._seeing(find_seen_entries(query, self.entries)):
            yield

    @contextmanager
    def _seeing(self, entries: Mapping[str, WithEntry]) -> Iterator[None]:
        before, self.entries = self.entries, entries
        try:
            yield
        finally:
            self.entries = before

    def frame(self, item: exp.Expr) -> Frame:
        """Plan an item's rows.

        Raises:
            Unsupported: the item is neither a table nor a subquery.
        """
        alias = item.args.get("alias")
        given = tuple(c.name for c in alias.args.get("columns") or []) if alias else ()
        known: frozenset[str] = frozenset()
        hidden = 0
        if (leaf := self.leaf(item)) is not None:
            found = NamedNode(*self.table(leaf.table))
            name, hidden = item.alias or item.name, len(leaf.hidden)
            if not given:
                known = self._pushed.get(leaf.table, known)
        elif isinstance(item, exp.Table):
            entry = self.entries[item.name.lower()]
            found, name = self._entry(entry), item.alias or entry.cte.alias
        elif isinstance(item, exp.Subquery):
            found, name = self.plan(item), item.alias
        else:
            raise Unsupported(type(item).__name__)
        return frame_of(_rename(found, given), name, known, hidden)

    def _entry(self, entry: WithEntry) -> NamedNode:
        with self._seeing(entry.seen):
            found = self.plan(entry.cte.this)
        columns = entry.cte.args["alias"].args.get("columns") or []
        return _rename(found, tuple(column.name for column in columns))


def _rename(relation: NamedNode, names: tuple[str, ...]) -> NamedNode:
    """Rename the first columns of a relation."""
    return NamedNode(relation.node, names + relation.names[len(names) :])
