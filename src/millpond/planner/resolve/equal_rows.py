"""In which order a window function is given rows that its ORDER BY finds equal.

`row_number`, `lag` and frames of ROWS number rows, and show in which order equal rows are. DuckDB
sorts few rows stably and many not, so a row could get another number because other rows came. Over
one stream such rows are ordered by timestamp, and in one instant in the order of their arrival
(docs/spec/left_open.md): by hidden columns of the slice, behind what the query orders by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from millpond.cql.tree.function_calls import name_call
from millpond.planner.resolve.nrr_join import hide_columns, sequence_column, timestamp_column
from millpond.planner.resolve.scope import Leaf, SelectScope

#: Functions that number the rows of a partition, whatever their frame.
_NUMBERING = ("row_number", "lag", "lead", "ntile")
#: Functions of the row with which a frame begins.
_BEGINNING = ("first_value", "first")


def order_equal_rows(scopes: Iterable[SelectScope]) -> None:
    """Let window functions over one stream take equal rows in the order of the stream."""
    for scope in scopes:
        leaf = find_only_stream(scope)
        if leaf is None or leaf.hidden:
            continue
        for window in [w for w in _list_own_windows(scope.select) if _shows_equal_rows(w)]:
            order = window.args.get("order")
            terms = [] if order is None else order.expressions
            window.set("order", exp.Order(expressions=[*terms, *order_of_arrival(scope, leaf)]))


def find_only_stream(scope: SelectScope) -> Leaf | None:
    """The stream that a SELECT reads, if that is all it reads."""
    leaf = scope.sources[0].leaf if len(scope.sources) == 1 else None
    return leaf if leaf is not None and leaf.is_stream else None


def order_of_arrival(scope: SelectScope, leaf: Leaf) -> list[exp.Ordered]:
    """Terms that order a stream's rows by timestamp and arrival, hidden columns of its slice."""
    leaf.hidden = (timestamp_column(leaf), sequence_column(leaf))
    hide_columns(scope)
    return [exp.Ordered(this=exp.column(stamp)) for stamp in leaf.hidden]


def _list_own_windows(select: exp.Select) -> Iterator[exp.Window]:
    """List the window functions of a SELECT, without those of the queries in it."""
    for node in select.walk(prune=lambda n: n is not select and isinstance(n, exp.Query)):
        if isinstance(node, exp.Window) and not isinstance(node.this, exp.Identifier):
            yield node


def _shows_equal_rows(window: exp.Window) -> bool:
    """Whether a window function shows the order of rows that it finds equal, and of these alone.

    Frames of RANGE and ranks depend on which rows are equal, so nothing may be added to their
    order.
    """
    if window.args.get("alias"):
        return False
    name, spec = _name_function(window.this), window.args.get("spec")
    if name in _NUMBERING:
        return True
    if spec is not None and spec.text("kind").upper() == "ROWS":
        return not spec.args.get("exclude")
    whole = spec is None or (
        spec.text("start").upper() == "UNBOUNDED"
        and spec.text("end").upper() in ("", "CURRENT ROW")
        and not spec.args.get("exclude")
    )
    return name in _BEGINNING and whole and window.args.get("order") is not None


def _name_function(node: exp.Expr) -> str:
    while isinstance(node, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        node = node.this
    return name_call(node)
