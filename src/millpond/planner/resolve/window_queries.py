"""Queries inside a window's WHERE: `s [RANGE 1 HOUR WHERE a IN (SELECT …)]`.

At each instant the query in the brackets has the answer of that instant, and the window holds what
satisfies the predicate then (SEMANTICS, section 3: snapshot reducibility). Which elements a window
over time holds does not depend on the other elements, so the predicate may as well be applied to
what the window holds: the FROM item becomes `(SELECT * FROM s [RANGE 1 HOUR] WHERE …)`. Windows
that count elements are refused.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.cql.tree import nodes
from millpond.errors import MillpondError
from millpond.planner.resolve.error_places import mark


def move_window_queries(tree: exp.Expr, text: str) -> None:
    """Move predicates with queries out of windows' brackets, in the tree itself.

    Raises:
        MillpondError: CQL-301, the window counts elements.
    """
    for table in list(tree.find_all(exp.Table)):
        window = table.args.get(nodes.WINDOW)
        if window is None or (predicate := window.args.get("where")) is None:
            continue
        if (query := predicate.find(exp.Query)) is None:
            continue
        if window.args["kind"] == "rows":
            raise MillpondError(
                "CQL-301",
                "a subquery inside the WHERE of a ROWS window is not available yet",
                detail="Which elements the window counts would change with the subquery's answer.",
                hint="Write (SELECT * FROM stream WHERE ... QUALIFY row_number() OVER "
                "(PARTITION BY key ORDER BY ts DESC) <= n); for elements judged as they come, "
                "(ISTREAM(SELECT ... WHERE ...)) [ROWS n].",
                text=text,
                span=mark(query, text),
            )
        _move(table, window, predicate)


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
