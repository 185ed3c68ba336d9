"""ORDER BY … LIMIT as a node that takes the first rows of the query without these clauses.

A term of ORDER BY is a column of the answer, by number or name, or else an expression over the
rows of the FROM clause, which becomes one more column of the query. Without LIMIT, ORDER BY has no
influence on which rows the answer has.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millpond.operators.expire import announce_expirations
from millpond.operators.top_k import SortColumn, TopK
from millpond.planner.dataflow.frame import NamedNode, Unsupported, find_columns

#: LIMIT and OFFSET above this are this: there are never as many rows.
MOST = 1 << 61


@dataclass(frozen=True)
class _Term:
    """A term of ORDER BY: a column of the answer by name or number, or a column that was added."""

    named: str | int | None
    descending: bool
    nulls_first: bool


class Cut:
    """A query with LIMIT or OFFSET.

    Attributes:
        uncut: The query without LIMIT, OFFSET and ORDER BY. Terms of ORDER BY that are no columns
            of the answer follow the answer's columns.
    """

    def __init__(self, node: exp.Expr) -> None:
        self._count = _number(node.args.get("limit"), MOST)
        self._skip = _number(node.args.get("offset"), 0)
        self.uncut = node.copy()
        clauses = {c: self.uncut.args.pop(c, None) for c in ("order", "limit", "offset")}
        self._text = " ".join(c.sql().strip() for c in clauses.values() if c is not None)
        self._terms: list[_Term] = []
        self._added = 0
        order = clauses["order"]
        for term in order.expressions if order is not None else ():
            self._terms.append(self._term(term))

    def first_of(self, relation: NamedNode) -> NamedNode:
        """Plan the first rows of a relation that computes `uncut`."""
        shown = len(relation.names) - self._added
        names = [name.lower() for name in relation.names[:shown]]
        by: dict[int, SortColumn] = {}
        added = shown
        for term in self._terms:
            if term.named is None:
                place, added = added, added + 1
            elif isinstance(term.named, int):
                place = term.named - 1
            else:
                if names.count(term.named) != 1:
                    raise Unsupported("ORDER BY what is not one column of the answer")
                place = names.index(term.named)
            if place >= len(relation.names):
                raise Unsupported("ORDER BY a number that is no column's")
            # A second term on the same column does not change the order.
            by.setdefault(place, SortColumn(place, term.descending, term.nulls_first))
        node = TopK(
            announce_expirations(relation.node),
            shown,
            tuple(by.values()),
            self._count,
            self._skip,
            self._text,
        )
        return NamedNode(node, relation.names[:shown])

    def _term(self, term: exp.Expr) -> _Term:
        descending = bool(term.args.get("desc"))
        nulls_first = bool(term.args.get("nulls_first"))
        value = term.this if isinstance(term, exp.Ordered) else term
        while isinstance(value, exp.Paren):
            value = value.this
        if isinstance(value, exp.Literal) and value.is_int:
            return _Term(int(value.this), descending, nulls_first)
        named = self._find_column(value)
        if named is None:
            self._add(value)
        return _Term(named, descending, nulls_first)

    def _find_column(self, value: exp.Expr) -> str | None:
        """Find the answer's column that a term names; None if the term has to be computed."""
        query = self.uncut
        if not isinstance(query, exp.Select):
            if isinstance(value, exp.Column) and not value.table:
                return value.name.lower()
            raise Unsupported("ORDER BY an expression of a set operation")
        aliases = {i.alias.lower() for i in query.expressions if i.alias}
        if isinstance(value, exp.Column) and not value.table and value.name.lower() in aliases:
            return value.name.lower()
        if any(not c.table and c.name.lower() in aliases for c in find_columns(value)):
            raise Unsupported("ORDER BY an expression over names of the SELECT list")
        for item in query.expressions:
            if item.unalias() == value and item.alias_or_name:
                return str(item.alias_or_name).lower()
        if query.args.get("distinct") is not None:
            if isinstance(value, exp.Column):
                return value.name.lower()
            raise Unsupported("ORDER BY what DISTINCT does not select")
        return None

    def _add(self, value: exp.Expr) -> None:
        assert isinstance(self.uncut, exp.Select)
        item = exp.alias_(value.copy(), f"__order_{self._added}")
        self.uncut.append("expressions", item)
        self._added += 1


def _number(clause: exp.Expr | None, default: int) -> int:
    """Return the constant of a LIMIT or OFFSET, `default` without the clause."""
    if clause is None:
        return default
    value = clause.args.get("expression")
    if not isinstance(value, exp.Literal) or not value.is_int:
        raise Unsupported("LIMIT of something else than a number")
    return min(int(value.this), MOST)
