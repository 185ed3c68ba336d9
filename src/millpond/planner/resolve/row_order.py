"""Aggregates that show the order of their rows: over one stream they say that order themselves.

`last(price)` is the latest price: such calls are given the elements of a stream by timestamp, and
in one instant as they arrived. DuckDB hands rows on in another order: where a condition leaves few
of some rows and many of others, these come first. So timestamp and arrival, which are hidden
columns of the slice, stand in the calls' ORDER BY. Whatever evaluates them then gives the same: at
invocation, at every change, and behind a restart. A call that has an ORDER BY gets them behind its
own terms. For window functions `equal_rows.py` does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from millpond.cql.tree.function_calls import name_call
from millpond.model.functions import SHOWING_ORDER
from millpond.planner.resolve.equal_rows import find_only_stream, order_of_arrival
from millpond.planner.resolve.scope import SelectScope

#: Macros of DuckDB take no ORDER BY.
_ORDERED = SHOWING_ORDER - {
    "json_group_array",
    "json_group_object",
    "json_group_structure",
    "variant_group_array",
}

#: Key of an ORDER BY's `meta`: how many of its terms are the query's own, if the others are written
#: here.
_OWN_TERMS = "own_terms"


def split_order(order: exp.Order) -> tuple[list[exp.Expr], list[exp.Expr]] | None:
    """Split an ORDER BY into the query's own terms and timestamp and arrival; None: it has none."""
    own = order.meta.get(_OWN_TERMS)
    return None if own is None else (order.expressions[:own], order.expressions[own:])


def leave_out_arrival(call: exp.Expr) -> exp.Expr:
    """Write a call as the query has it, without what `order_shown_rows` has written."""
    holder = exp.Paren(this=call.copy())
    for order in list(holder.find_all(exp.Order)):
        parts = split_order(order)
        if parts is not None:
            order.set("expressions", parts[0])
            if not parts[0]:
                order.replace(order.this)
    return holder.this


def order_shown_rows(scopes: Iterable[SelectScope], body: exp.Expr) -> None:
    """Let the aggregates of SELECTs from one stream read rows in their order.

    Args:
        scopes: The SELECTs.
        body: The outermost query, whose columns have their names already.
    """
    for scope in scopes:
        leaf = find_only_stream(scope)
        if leaf is None or leaf.positional:
            continue
        if scope.select.args.get("joins"):  # a SEMI JOIN's right side is no source
            continue
        for call in list(_list_calls(scope.select, body)):
            *others, last = call.expressions
            order = last if isinstance(last, exp.Order) else exp.Order(this=last)
            own = order.expressions
            order.set("expressions", [*own, *order_of_arrival(scope, leaf)])
            order.meta[_OWN_TERMS] = len(own)
            call.set("expressions", [*others, order])


def _list_calls(select: exp.Select, body: exp.Expr) -> Iterator[exp.Expr]:
    """List the aggregates of a SELECT's own clauses that show an order."""
    # Another query may read a column without a name by its text.
    parts = [i for i in select.expressions if isinstance(i, exp.Alias) or select is body]
    parts += [select.args[c] for c in ("having", "qualify", "order") if select.args.get(c)]
    for part in parts:
        for node in part.walk(prune=lambda inner: isinstance(inner, exp.Query | exp.Window)):
            if isinstance(node, exp.AnonymousAggFunc) and name_call(node) in _ORDERED:
                last = node.expressions[-1] if node.expressions else None
                given = last.this if isinstance(last, exp.Order) else last
                if given is not None and not isinstance(given, exp.Distinct | exp.Star):
                    yield node
