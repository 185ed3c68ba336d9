"""Calls that show the order of their rows: over one stream they say that order themselves.

`last(price)` is the latest price: such calls are given the elements of a stream by timestamp, and
in one instant as they arrived. DuckDB hands rows on in another order, where a WHERE leaves few of
some rows and many of others, say, and sorts rows that are equal for a window function as it likes.
So timestamp and arrival, which are hidden columns of the slice, stand in the calls' ORDER BY.
Whatever evaluates them then gives the same: at invocation, at every change, and behind a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from millpond.model.functions import SHOWING_ORDER
from millpond.planner.resolve.nrr_join import hide_columns, sequence_column, timestamp_column
from millpond.planner.resolve.scope import Leaf, SelectScope

#: Macros of DuckDB, which take no ORDER BY.
_MACROS = frozenset(
    {"json_group_array", "json_group_object", "json_group_structure", "variant_group_array"}
)
#: Window functions that go by the place of a row, whatever their frame.
_BY_PLACE = frozenset({"row_number", "ntile", "lag", "lead"})
#: Window functions that go by the places in a frame.
_IN_FRAME = frozenset({"first_value", "last_value", "nth_value"}) | SHOWING_ORDER - _MACROS


def order_shown_rows(scopes: Iterable[SelectScope], body: exp.Expr) -> None:
    """Let the calls of SELECTs from one stream read rows in their order, by hidden columns.

    Args:
        scopes: The SELECTs.
        body: The outermost query, whose columns have their names already.
    """
    for scope in scopes:
        if len(scope.sources) != 1 or (leaf := scope.sources[0].leaf) is None:
            continue
        if not leaf.is_stream or leaf.positional or scope.select.args.get("joins"):
            continue
        calls = list(_find_calls(scope.select, body))
        if calls:
            leaf.hidden = (timestamp_column(leaf), sequence_column(leaf))
            hide_columns(scope)
        for call in calls:
            _put_in_order(call, leaf)


def _find_calls(select: exp.Select, body: exp.Expr) -> Iterator[exp.Expr]:
    """Find the calls of a SELECT's own clauses that show the order of its rows."""
    for item in select.expressions:
        # Another query may read a column by the name it has, which is its text.
        if isinstance(item, exp.Alias) or select is body:
            yield from _find_in(item)
    for clause in ("having", "qualify", "order"):
        if (node := select.args.get(clause)) is not None:
            yield from _find_in(node)


def _find_in(node: exp.Expr) -> Iterator[exp.Expr]:
    for found in node.walk(prune=lambda inner: isinstance(inner, exp.Query)):
        if isinstance(found, exp.Window):
            if _shows_order(found):
                yield found
        elif isinstance(found, exp.AnonymousAggFunc) and _name(found) in SHOWING_ORDER - _MACROS:
            around = found.parent.parent if isinstance(found.parent, exp.Filter) else found.parent
            if not isinstance(around, exp.Window) and _may_say_order(found):
                yield found


def _name(call: exp.Expr) -> str:
    is_named = isinstance(call, exp.Anonymous | exp.AnonymousAggFunc)
    return str(call.this).lower() if is_named else ""


def _may_say_order(call: exp.Expr) -> bool:
    """Whether an ORDER BY may be added to a call's arguments."""
    last = call.expressions[-1] if call.expressions else None
    return last is not None and not isinstance(last, exp.Order | exp.Distinct | exp.Star)


def _called(window: exp.Window) -> exp.Expr:
    called = window.this
    return called.this if isinstance(called, exp.Filter) else called


def _goes_by_rows(window: exp.Window) -> bool:
    """Whether ORDER BY of a window may say more, and no frame becomes another one."""
    spec = window.args.get("spec")
    if _name(_called(window)) in _BY_PLACE:
        return True
    return (
        isinstance(spec, exp.WindowSpec)
        and str(spec.args.get("kind")).upper() == "ROWS"
        and not spec.args.get("exclude")
    )


def _shows_order(window: exp.Window) -> bool:
    """Whether the value of a window function depends on the order of rows that are equal."""
    if window.args.get("alias"):
        return False
    called = _called(window)
    return _goes_by_rows(window) or (_name(called) in _IN_FRAME and _may_say_order(called))


def _put_in_order(call: exp.Expr, leaf: Leaf) -> None:
    """Let a call say the order of its rows: of those that its own ORDER BY finds equal."""
    stamps: list[exp.Expr] = [
        exp.Ordered(this=exp.column(name))
        for name in (timestamp_column(leaf), sequence_column(leaf))
    ]
    if isinstance(call, exp.Window):
        order = call.args.get("order")
        stamps = [*([] if order is None else order.expressions), *stamps]
        if _goes_by_rows(call):
            call.set("order", exp.Order(expressions=stamps))
            return
        call, stamps = _called(call), [stamp.copy() for stamp in stamps]
    *others, last = call.expressions
    call.set("expressions", [*others, exp.Order(this=last, expressions=stamps)])
