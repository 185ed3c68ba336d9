"""EXISTS, IN and quantified comparisons under OR, CASE or in the SELECT list: a mark join.

The value of such a predicate for a row (true, false or NULL) becomes a column of the row, the mark.
A semijoin gives the rows for which the predicate is true, an antijoin the rest; the rest is split
likewise for NULL. A union puts the parts together again, each with its value. So a mark join needs
no operator of its own.
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
    """A case of a predicate: its value is `truth` for the rows with a partner by a condition."""

    truth: bool | None
    on: Callable[[Frame], Condition]


#: A predicate's cases, in the order they are tried, and its value for the rows left over.
Cases = tuple[tuple[Case, ...], bool]


def add_marks(
    expression: exp.Expr, frame: Frame, cases_of: Callable[[exp.Expr, Frame], Cases]
) -> tuple[exp.Expr, Frame]:
    """Replace an expression's subquery predicates by marks; return it and a frame with the marks.

    Args:
        expression: An expression that may contain predicates over subqueries.
        frame: The rows it is evaluated on.
        cases_of: Lists the cases of a predicate over the rows of a frame.

    Raises:
        Unsupported: a subquery reads the query around it in a way that no join can replace.
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
    """Find the outermost predicates over subqueries in an expression."""
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
