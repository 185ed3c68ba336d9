"""How many rows an evaluation may make of few: the pairs of joins that no equality narrows.

The rows a query reads say nothing of that: a window of 1,000 rows, joined with itself by `<`, has
500,000 pairs, and DuckDB may sort or group them. An equality of two columns is taken to find as
many partners as there are rows; that is no bound where a column has few values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from sqlglot import exp

from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.residual import LEAF
from millpond.planner.resolve.pushdown import split_conjuncts, split_where

#: What a pair takes while it is sorted or grouped, in bytes.
PAIR_BYTES = 16
#: Beyond this all is the same: such an evaluation runs alone.
_MOST = 1 << 50


def measure_pairs(bound: BoundQuery, rows: Mapping[str, int]) -> int:
    """Estimate the bytes of the pairs a query's joins make; 0 for a query without such joins.

    Args:
        bound: The query.
        rows: How many rows its slices have, by the names of their tables.
    """
    if len(rows) < 2:
        return 0
    return min(_Counter(bound.tree, rows).made * PAIR_BYTES, _MOST)


class _Counter:
    """Counts the rows of a tree's SELECTs, from the inside out."""

    def __init__(self, tree: exp.Expr, rows: Mapping[str, int]) -> None:
        self._rows = rows
        self._ctes = {cte.alias.lower(): cte.this for cte in tree.find_all(exp.CTE)}
        self._counted: dict[int, int] = {}
        #: The pairs of all SELECTs that join, each counted once.
        self.made = 0
        for select in tree.find_all(exp.Select):
            self._count(select)

    def _count(self, node: exp.Expr | None) -> int:
        """Estimate the rows of a query; a recursive one never comes here."""
        match node:
            case exp.Select():
                if id(node) not in self._counted:
                    self._counted[id(node)] = 0
                    self._counted[id(node)] = self._count_select(node)
                return self._counted[id(node)]
            case exp.SetOperation():
                return min(self._count(node.left) + self._count(node.right), _MOST)
            case exp.Subquery():
                return self._count(node.this)
            case exp.Table():
                leaf = node.meta.get(LEAF)
                if leaf is not None:
                    return self._rows.get(leaf, 1)
                return self._count(self._ctes.get(node.name.lower()))
        return 1

    def _count_select(self, select: exp.Select) -> int:
        joins = select.args.get("joins") or []
        first = select.args.get("from_")
        sources = [first.this] if first is not None else []
        sources += [join.this for join in joins]
        sizes = sorted((max(self._count(source), 1) for source in sources), reverse=True)
        links = sum(1 for join in joins if join.args.get("using"))
        conjuncts = split_where(select)
        for join in joins:
            conjuncts += split_conjuncts(join.args.get("on"))
        links += len({pair for c in conjuncts if (pair := _linked(c)) is not None})
        free = max(len(sizes) - links, 1)
        made = min(math.prod(sizes[:free]), _MOST)
        if free > 1:
            self.made = min(self.made + made, _MOST)
        return made


def _linked(conjunct: exp.Expr) -> frozenset[str] | None:
    """Name the two sides that an equality of columns links; None for any other conjunct."""
    if not isinstance(conjunct, exp.EQ):
        return None
    one, other = conjunct.this, conjunct.expression
    if not (isinstance(one, exp.Column) and isinstance(other, exp.Column)):
        return None
    sides = frozenset((one.table.lower() or one.sql(), other.table.lower() or other.sql()))
    return sides if len(sides) == 2 else None
