"""SELECTs with window functions: what comes is added where it can be, else answered anew."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millpond.planner.dataflow.frame import Frame, NamedNode, Unsupported, find_columns
from millpond.planner.dataflow.recompute_groups import ListedItem, recompute_partitions
from millpond.planner.dataflow.running_frames import run_frames


def plan_window_functions(node: exp.Select, frame: Frame, items: Sequence[ListedItem]) -> NamedNode:
    """Plan a SELECT with window functions over the rows that its FROM and WHERE give.

    Args:
        node: The SELECT.
        frame: The rows.
        items: The SELECT's columns: names, and expressions over the frame.

    Raises:
        Unsupported: nothing less than the whole answer can be computed anew.
    """
    qualify = node.args.get("qualify")
    chosen = None if qualify is None else _with_aliases(qualify.this, frame, items)
    try:
        return run_frames(frame, items, chosen)
    except Unsupported:
        return recompute_partitions(frame, items, chosen)


def _with_aliases(expression: exp.Expr, frame: Frame, items: Sequence[ListedItem]) -> exp.Expr:
    """Replace names of the SELECT list in a condition by the expressions they name."""
    named = {name.lower(): e for name, e in items if isinstance(e, exp.Expr)}
    holder = exp.Paren(this=expression.copy())
    for column in list(find_columns(holder)):
        definition = None if column.table else named.get(column.name.lower())
        if definition is not None and frame.find(column) is None:
            column.replace(exp.Paren(this=definition.copy()))
    return holder.this
