"""Which conditions may be answered by a Bloom filter: EXISTS, IN and NOT EXISTS (STREAM, 5.2.1).

A filter says of a few rows that have no partner that they have one. So EXISTS and IN let some rows
through that are not in the answer, and NOT EXISTS keeps some out. That may be where everything
above is monotone, as for rows that are left out (`safety.py`): then nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from millpond.model.windows import Range, Unbounded
from millpond.planner.approximate.safety import find_obstacle_above
from millpond.planner.bind.bound_query import BoundQuery, StreamLeaf
from millpond.planner.residual import LEAF
from millpond.planner.resolve.pushdown import split_conjuncts

#: In the meta of a condition: the share of false positives with which it is filtered, 0 to 1.
FILTERED = "filtered"


@dataclass(frozen=True)
class FilterSurvey:
    """Whether a condition may be answered by a filter.

    Attributes:
        condition: What it asks, and of which stream: EXISTS (… FROM b), for people.
        table: The name of the slice whose keys would be filtered; empty if it may not.
        against: Why it may not; None if it may.
    """

    condition: str
    table: str
    against: str | None


def survey_filters(bound: BoundQuery) -> tuple[FilterSurvey, ...]:
    """Survey a query's conditions that ask whether rows are there, in the order of its text."""
    found = []
    for node in _list_conditions(bound.tree):
        leaf, against = _find_leaf(node, bound), _find_obstacle(node, bound)
        table = "" if against is not None or leaf is None else leaf.table
        found.append(FilterSurvey(_describe(node), table, against))
    return tuple(found)


def mark_filters(bound: BoundQuery, share: float) -> BoundQuery | None:
    """The query with all conditions filtered that may be; None if none may."""
    known = survey_filters(bound)
    if all(one.against is not None for one in known):
        return None
    tree = bound.tree.copy()
    for node, one in zip(_list_conditions(tree), known, strict=True):
        if one.against is None:
            node.meta[FILTERED] = share
    return replace(bound, tree=tree, partial="it is filtered")


def _list_conditions(tree: exp.Expr) -> Iterator[exp.Exists | exp.In]:
    for node in tree.find_all(exp.Exists, exp.In):
        if not isinstance(node, exp.Exists | exp.In):
            continue
        if isinstance(node, exp.Exists) or node.args.get("query") is not None:
            yield node


def _describe(node: exp.Exists | exp.In) -> str:
    names = [table.name for table in node.find_all(exp.Table)]
    asked = "EXISTS" if isinstance(node, exp.Exists) else "IN"
    return f"{'NOT ' if _is_negated(node) else ''}{asked} (… FROM {', '.join(names)})"


def _is_negated(node: exp.Expr) -> bool:
    negated = False
    while isinstance(node.parent, exp.Not | exp.Paren):
        negated ^= isinstance(node.parent, exp.Not)
        node = node.parent
    return negated


def _find_select(node: exp.Exists | exp.In) -> exp.Select | None:
    query = node.this if isinstance(node, exp.Exists) else node.args["query"]
    while isinstance(query, exp.Subquery | exp.Paren):
        query = query.this
    return query if isinstance(query, exp.Select) else None


def _find_leaf(node: exp.Exists | exp.In, bound: BoundQuery) -> StreamLeaf | None:
    """The occurrence of a stream that a condition's subquery reads, if it reads nothing else."""
    select = _find_select(node)
    from_ = None if select is None else select.args.get("from_")
    if select is None or from_ is None or select.args.get("joins"):
        return None
    table = from_.this.meta.get(LEAF) if isinstance(from_.this, exp.Table) else None
    return next((leaf for leaf in bound.streams if leaf.table == table), None)


def _find_obstacle(node: exp.Exists | exp.In, bound: BoundQuery) -> str | None:
    if bound.to_stream is not None:
        return "the query is stream-valued, and what it put out cannot be taken back"
    top: exp.Expr = node
    while isinstance(top.parent, exp.And | exp.Not | exp.Paren):
        if isinstance(top.parent, exp.And) and _is_negated(top.parent):
            return "it is a part of a condition, and does not stand by itself"
        top = top.parent
    where = top.parent
    if not isinstance(where, exp.Where) or not isinstance(where.parent, exp.Select):
        return "it is a part of a condition, and does not stand by itself"
    if isinstance(node, exp.In) and _is_negated(node):
        return "NOT IN asks for NULLs, too, which a filter does not know"
    leaf = _find_leaf(node, bound)
    if leaf is None:
        return "it asks for other rows than those of one stream"
    against = _judge_subquery(node, leaf)
    if against is not None:
        return against
    return find_obstacle_above(bound, where.parent)


def _judge_subquery(node: exp.Exists | exp.In, leaf: StreamLeaf) -> str | None:
    select, window = _find_select(node), leaf.window
    assert select is not None
    if not isinstance(window, Unbounded) and not (isinstance(window, Range) and not window.slide):
        return "a filter has slices of time, and forgets rows only when they leave a RANGE window"
    parts = {key for key, value in select.args.items() if value not in (None, False, [])}
    if parts - {"expressions", "from_", "where", "distinct", "kind"}:
        return "its rows are not elements of a stream alone"
    if any(item.find(exp.AggFunc, exp.Window, exp.Query) for item in select.expressions):
        return "its rows are not elements of a stream alone"
    known_as = select.args["from_"].this.alias_or_name.lower()
    equalities = int(isinstance(node, exp.In))
    where = select.args.get("where")
    for conjunct in split_conjuncts(where.this) if where is not None else ():
        if conjunct.find(exp.Query) is not None:
            return "its rows are not elements of a stream alone"
        tables = {column.table.lower() for column in conjunct.find_all(exp.Column)}
        if tables <= {known_as}:
            continue
        if not isinstance(conjunct, exp.EQ):
            return "a filter knows keys, and it compares more than keys"
        equalities += 1
    return None if equalities else "it asks for no key"
