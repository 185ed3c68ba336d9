"""The items of a FROM clause joined: in the order of the text, or in one that somebody chose.

Inner joins of three items and more may be joined in any order: the joined rows are the same, and
the last join gives their columns in the order of the text, so that nothing above it is different.
Conditions that could fail on some rows keep the order of the text: in another order, they would be
asked of other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from millpond.operators.join import Join
from millpond.operators.source import OneRow
from millpond.planner.dataflow.frame import Frame, project
from millpond.planner.dataflow.from_clause import apply_ready, join_frames, keeps_right
from millpond.planner.dataflow.from_items import Items
from millpond.planner.optimize.choices import NOTHING, Choices
from millpond.planner.resolve.pushdown import split_conjuncts

#: What a condition may consist of that is true, false or NULL of all rows.
_CANNOT_FAIL = (
    exp.And,
    exp.Or,
    exp.Not,
    exp.Paren,
    exp.EQ,
    exp.NEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.Column,
    exp.Identifier,
)


def join_items(select: exp.Select, items: Items, waiting: list[exp.Expr]) -> Frame:
    """Join the items of a SELECT's FROM clause.

    Args:
        select: The SELECT.
        items: Plans the items of the FROM clause.
        waiting: Conjuncts of WHERE; conjuncts that the joined items can decide are applied and
            removed from the list.

    Raises:
        Unsupported: a join's kind or condition has no operators.
    """
    clause = select.args.get("from_")
    if clause is None:
        return Frame(OneRow())
    joins = select.args.get("joins") or []
    # A RIGHT or FULL join above would replace a row that is removed here by NULLs.
    early = [] if keeps_right(select) else waiting
    before = list(waiting)
    frames = [items.frame(clause.this), *(items.frame(join.this) for join in joins)]
    frame = apply_ready(frames[0], early)
    for join, right in zip(joins, frames[1:], strict=True):
        frame = apply_ready(join_frames(join, frame, right, early), early)
    return reorder_joins(frame, frames, joins, before, items.choices)


def reorder_joins(
    frame: Frame,
    frames: Sequence[Frame],
    joins: Sequence[exp.Join],
    where: Sequence[exp.Expr],
    choices: Choices,
) -> Frame:
    """Join items in the order that somebody chose, if there is a choice.

    Args:
        frame: The items, joined in the order of the text.
        frames: The items.
        joins: The joins of the second item and of those behind it.
        where: The conjuncts of WHERE that may be applied.
        choices: What somebody chose of operators.
    """
    last = frame.node
    if not isinstance(last, Join) or len(joins) < 2 or not all(map(_is_inner, joins)):
        return frame
    conjuncts = list(where)
    moved = [c for c in where if frame.covers(c) and not any(f.covers(c) for f in frames)]
    for place, join in enumerate(joins):
        of_join = list(split_conjuncts(join.args.get("on")))
        conjuncts += of_join
        alone = frames[: 2 if place == 0 else 0] or [frames[place + 1]]
        moved += [c for c in of_join if not any(f.covers(c) for f in alone)]
    if not all(_cannot_fail(c, frame) for c in moved):
        return frame
    names = tuple(item.name for item in frame.items)
    as_written = tuple(range(len(frames)))
    known = replace(last, group=last.key, items=names, order=as_written)
    order = choices.get(known.logical_key, NOTHING).order or as_written
    if order == as_written or sorted(order) != list(as_written):
        return replace(frame, node=known)
    waiting = list(conjuncts)
    other = apply_ready(frames[order[0]], waiting)
    starts = {order[0]: 0}
    for place in order[1:]:
        starts[place] = len(other.node.schema)
        other = join_frames(exp.Join(), other, frames[place], waiting)
        other = apply_ready(other, waiting)
    columns = [
        starts[place] + number
        for place, item in enumerate(frames)
        for number in range(len(item.node.schema))
    ]
    node = project(other.node, list(columns))
    if not isinstance(node, Join) or node.schema != last.schema:
        return replace(frame, node=known)
    return replace(frame, node=replace(node, group=last.key, items=names, order=order))


def _is_inner(join: exp.Join) -> bool:
    has_names = bool(join.method or join.args.get("using"))
    return not has_names and not join.side and join.kind in ("", "INNER", "CROSS")


def _cannot_fail(conjunct: exp.Expr, frame: Frame) -> bool:
    """Whether a condition compares columns of equal types only, so that no row makes it fail."""
    for part in conjunct.walk():
        if not isinstance(part, _CANNOT_FAIL):
            return False
        if isinstance(part, exp.EQ | exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE):
            places = [
                frame.find(side) if isinstance(side, exp.Column) else None
                for side in (part.this, part.expression)
            ]
            if None in places:
                return False
            one, other = (frame.node.schema.field(place or 0).type for place in places)
            if one != other:
                return False
    return True
