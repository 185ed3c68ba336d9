"""FROM and WHERE: two items joined, and each conjunct where it can first be applied."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.planner.dataflow.frame import Frame, Unsupported, reads_columns
from millpond.planner.dataflow.joins import (
    antijoin,
    inner_join,
    outer_join,
    semijoin,
    split_condition,
)
from millpond.planner.resolve.from_clause import strip_qualifiers
from millpond.planner.resolve.pushdown import split_conjuncts, split_where


def keeps_right(select: exp.Select) -> bool:
    """Whether a SELECT's FROM clause has joins that keep rows of their right side."""
    return any(join.side in ("RIGHT", "FULL") for join in select.args.get("joins") or [])


def split_plain_where(select: exp.Select) -> list[exp.Expr]:
    """List the conjuncts of a SELECT's WHERE that contain no subquery."""
    return [c for c in split_where(select) if c.find(exp.Query) is None]


def apply_ready(frame: Frame, waiting: list[exp.Expr]) -> Frame:
    """Apply the conjuncts of `waiting` that read the frame only; remove them from `waiting`."""
    ready = [c for c in waiting if frame.covers(c)]
    for conjunct in ready:
        waiting.remove(conjunct)
    alone = frame.items[0] if len(frame.items) == 1 else None
    known = alone.known if alone is not None else frozenset()
    return frame.select([c for c in ready if to_duckdb(strip_qualifiers(c)) not in known])


def join_frames(join: exp.Join, left: Frame, right: Frame, waiting: list[exp.Expr]) -> Frame:
    """Join two frames by a JOIN or a comma.

    Args:
        join: The JOIN, without its right side.
        left, right: The frames to join.
        waiting: Conjuncts of WHERE; conjuncts that are applied here are removed from the list.

    Raises:
        Unsupported: the join's kind or condition has no operators.
    """
    if join.method not in ("", "NATURAL"):
        raise Unsupported(f"{join.method} JOIN")
    on = list(split_conjuncts(join.args.get("on")))
    if any(c.find(exp.Query) is not None for c in on):
        raise Unsupported("a subquery in ON")
    merged = _find_merged(join, left, right)
    if merged:
        if join.side in ("RIGHT", "FULL"):
            raise Unsupported(f"{join.side} JOIN with USING")
        on = [_make_equality(left, right, name) for name in sorted(merged)]
    # ON reads both sides: a name that both have is ambiguous in ON, not the right side's.
    both = combine_frames(left, right)
    if not all(both.covers(c) for c in on):
        raise Unsupported("a condition that names something else than the join's sides")
    if join.kind in ("SEMI", "ANTI"):
        matched = split_condition(left, right, on)
        return replace(left, node=(semijoin if join.kind == "SEMI" else antijoin)(matched))
    if join.side in ("LEFT", "RIGHT", "FULL"):
        node = outer_join(
            split_condition(left, right, on), split_condition(right, left, on), join.side
        )
        return replace(both, node=node, merged=left.merged | merged)
    if waiting:
        right = apply_ready(right, waiting)
        ready = [c for c in waiting if both.covers(c)]
        for conjunct in ready:
            waiting.remove(conjunct)
        on += ready
    alone = [[c for c in on if side.covers(c) and reads_columns(c)] for side in (left, right)]
    left, right = left.select(alone[0]), right.select(alone[1])
    rest = [c for c in on if c not in alone[0] and c not in alone[1]]
    node = inner_join(split_condition(left, right, rest))
    return replace(both, node=node, merged=left.merged | merged)


def _find_merged(join: exp.Join, left: Frame, right: Frame) -> frozenset[str]:
    """Find the columns that USING or NATURAL merges: their names in lower case."""
    names = {i.name.lower() for i in join.args.get("using") or []}
    if join.method == "NATURAL":
        ours = {n.lower() for item in left.items for n in item.names}
        names = {n.lower() for item in right.items for n in item.names} & ours
    return frozenset(names)


def combine_frames(left: Frame, right: Frame) -> Frame:
    """Combine two frames' items in one frame; its node is the left frame's."""
    offset = len(left.node.schema)
    shifted = tuple(replace(i, start=i.start + offset) for i in right.items)
    return replace(left, items=(*left.items, *shifted))


def _make_equality(left: Frame, right: Frame, name: str) -> exp.Expr:
    """Make the equality that USING means for a column."""
    sides = []
    for frame in (left, right):
        item = next((i for i in frame.items if i.place(name) is not None), None)
        if item is None or not item.name:
            raise Unsupported("USING of a column without a table")
        sides.append(exp.column(name, table=item.name, quoted=True))
    return exp.EQ(this=sides[0], expression=sides[1])
