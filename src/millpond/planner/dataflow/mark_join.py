"""EXISTS, IN and quantified comparisons under OR, CASE or in the SELECT list: a mark join.

What such a predicate is of a row, true, false or NULL, becomes a column beside the row. The rows
are split: those it is true of are a semijoin, the others an antijoin, and so on, and the parts are
put together again, each with its truth. So it needs no operator of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from millpond.operators.protocol.node import Node
from millpond.operators.union import Union
from millpond.planner.dataflow.frame import Frame, Item, project
from millpond.planner.dataflow.joins import Condition, antijoin, semijoin


@dataclass(frozen=True, eq=False)
class Case:
    """One thing a predicate may be: `truth`, of the rows that have a partner by a condition."""

    truth: bool | None
    on: Callable[[Frame], Condition]


#: What a predicate is, in the order in which it is asked, and what it is of the rows left over.
Cases = tuple[tuple[Case, ...], bool]


def add_marks(
    expression: exp.Expr, frame: Frame, cases_of: Callable[[exp.Expr, Frame], Cases]
) -> tuple[exp.Expr, Frame]:
    """An expression with columns in the place of its subquery predicates, and a frame with them.

    Args:
        expression: What may hold such predicates.
        frame: The rows it is evaluated on.
        cases_of: What a predicate is of the rows of a frame.

    Raises:
        Unsupported: one reads its surroundings in a way that cannot be undone.
    """
    holder = exp.Paren(this=expression.copy())
    for predicate in list(_predicates(holder.this)):
        cases, otherwise = cases_of(predicate, frame)
        name = f"__mark_{len(frame.items)}"
        place = len(frame.node.schema)
        item = Item(name, ("truth",), place, hidden=1)
        frame = replace(frame, node=_add_mark(frame, cases, otherwise), items=(*frame.items, item))
        predicate.replace(exp.column("truth", table=name))
    return holder.this, frame


def _predicates(node: exp.Expr) -> Iterator[exp.Expr]:
    """The outermost predicates over subqueries in an expression."""
    is_quantified = isinstance(node.args.get("expression"), exp.Any | exp.All)
    if isinstance(node, exp.Exists) or is_quantified or node.args.get("query") is not None:
        yield node
    elif not isinstance(node, exp.Query):
        for child in node.iter_expressions():
            yield from _predicates(child)


def _add_mark(frame: Frame, cases: tuple[Case, ...], otherwise: bool) -> Node:
    parts: list[Node] = []
    columns: list[str | int] = [*range(len(frame.node.schema))]

    def add_part(node: Node, truth: bool | None) -> None:
        value = "NULL" if truth is None else str(truth)
        parts.append(project(node, [*columns, f"CAST({value} AS BOOLEAN)"]))

    for case in cases:
        on = case.on(frame)
        add_part(semijoin(on), case.truth)
        frame = replace(frame, node=antijoin(on))
    add_part(frame.node, otherwise)
    return Union(tuple(parts))
