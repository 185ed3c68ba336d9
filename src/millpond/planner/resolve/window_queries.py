"""Queries inside a window's WHERE: `s [RANGE 1 HOUR WHERE a IN (SELECT …)]`.

At each instant the query in the brackets has the answer of that instant, and the window holds what
satisfies the predicate then (SEMANTICS, section 3: snapshot reducibility). Which elements a window
over time holds does not depend on the other elements, so the predicate may as well be applied to
what the window holds: the FROM item becomes `(SELECT * FROM s [RANGE 1 HOUR] WHERE …)`.

A window that counts elements holds the last of those that satisfy the predicate now. That may be
any elements that are kept, so `s [PARTITION BY k ROWS 2 WHERE …]` becomes `(SELECT * FROM s WHERE …
QUALIFY row_number() OVER (PARTITION BY k ORDER BY …) <= 2)`. Elements are counted by timestamp and
arrival, which are hidden columns of the slice.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from millpond.cql.tree import nodes
from millpond.planner.resolve.nrr_join import hide_columns, sequence_column, timestamp_column
from millpond.planner.resolve.scope import SelectScope

#: Key of the `meta` of a SELECT that counts elements: the window function that does.
_COUNTS = "counts_elements"


def move_window_queries(tree: exp.Expr) -> None:
    """Move predicates with queries out of windows' brackets, in the tree itself."""
    for table in list(tree.find_all(exp.Table)):
        window = table.args.get(nodes.WINDOW)
        if window is None or (predicate := window.args.get("where")) is None:
            continue
        if predicate.find(exp.Query) is not None:
            _move(table, window, predicate)


def order_counted_elements(scopes: Iterable[SelectScope]) -> None:
    """Let the SELECTs that count elements count them in their order, by hidden columns."""
    for scope in scopes:
        counts = scope.select.meta.get(_COUNTS)
        if counts is None:
            continue
        (source,) = scope.sources
        assert source.leaf is not None
        stamps = (timestamp_column(source.leaf), sequence_column(source.leaf))
        source.leaf.hidden = stamps
        hide_columns(scope)
        latest = [exp.Ordered(this=exp.column(stamp), desc=True) for stamp in stamps]
        counts.set("order", exp.Order(expressions=latest))


def _move(table: exp.Table, window: exp.Expr, predicate: exp.Expr) -> None:
    """Replace an occurrence of a stream by a query for what its window's predicate selects."""
    window.set("where", None)
    alias = table.args.get("alias")
    name = alias.this if alias is not None and alias.this is not None else table.this
    outer = alias.copy() if alias is not None else exp.TableAlias()
    outer.set("this", name.copy())
    joins = table.args.pop("joins", None)
    subquery = exp.Subquery(alias=outer)
    if joins:
        subquery.set("joins", joins)
    table.replace(subquery)
    table.set("alias", exp.TableAlias(this=name.copy()))
    select = exp.Select(
        expressions=[exp.Star()], from_=exp.From(this=table), where=exp.Where(this=predicate)
    )
    subquery.set("this", select)
    if window.args["kind"] == "rows":
        table.set(nodes.WINDOW, None)
        by = [exp.Column(this=name.copy()) for name in window.args.get("by") or ()]
        counts = exp.Window(this=exp.RowNumber(), partition_by=by)
        most = exp.Literal.number(window.args["rows"])
        select.set("qualify", exp.Qualify(this=exp.LTE(this=counts, expression=most)))
        select.meta[_COUNTS] = counts
