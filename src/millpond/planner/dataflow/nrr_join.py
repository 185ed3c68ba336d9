"""FROM clauses with non-retroactive relations: join the streams first, then the relations.

A joined row of the streams comes at the timestamp of its youngest element if no window delays
elements, and is never taken back if no window counts rows. Under both conditions the relations'
rows are looked up when the streams' row comes. Else (SLIDE, ROWS) the join is an ordinary one, with
the versions of the relations' rows: a version's interval has the timestamp of the youngest element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from millpond.model.windows import Now, Period, Range, Unbounded, Window
from millpond.operators.nrr_join import NrrJoin
from millpond.planner.bind.bound_query import RelationLeaf, StreamLeaf
from millpond.planner.dataflow.frame import Frame, Unsupported, project
from millpond.planner.dataflow.from_clause import apply_ready, combine_frames, join_frames
from millpond.planner.dataflow.from_items import Items
from millpond.planner.dataflow.joins import split_condition
from millpond.planner.resolve.nrr_join import CONDITIONS, list_conditions
from millpond.planner.resolve.pushdown import split_conjuncts

_REASON = "a join with a non-retroactive relation that is neither inner nor LEFT, or of queries"

_OUTSIDE = "a non-retroactive relation in a subquery, attached to the row around it"


def refuse_attached(select: exp.Select) -> None:
    """Refuse a subquery whose relation is attached to the row it is evaluated for.

    Raises:
        Unsupported: there is such a relation.
    """
    if select.meta.get(CONDITIONS):
        raise Unsupported(_OUTSIDE)


def has_nrr(select: exp.Select, items: Items) -> bool:
    """Whether a SELECT's FROM clause has non-retroactive relations."""
    leaves = [items.leaf(item) for item, _ in _entries(select)]
    return any(isinstance(leaf, RelationLeaf) and leaf.hidden for leaf in leaves)


def join_nrrs(select: exp.Select, items: Items, waiting: list[exp.Expr]) -> Frame:
    """Join the items of a FROM clause that has non-retroactive relations.

    Args:
        select: The SELECT.
        items: Plans the items of the FROM clause.
        waiting: Conjuncts of WHERE; applied conjuncts are removed from the list.

    Raises:
        Unsupported: a join is neither inner nor LEFT, or an item is neither stream nor relation.
    """
    streams, relations, looks_up = _sort_items(select, items, waiting)
    if not streams:
        raise Unsupported(_OUTSIDE)
    frame, order = apply_ready(streams[0].frame, waiting), [streams[0].place]
    for stream in streams[1:]:
        frame = apply_ready(join_frames(exp.Join(), frame, stream.frame, waiting), waiting)
        order.append(stream.place)
    if not looks_up:
        waiting += list_conditions(select)
    for relation in relations:
        if looks_up:
            frame = _look_up_relation(frame, relation, waiting)
        else:
            join = exp.Join(side="LEFT" if relation.optional is not None else "")
            if relation.optional:
                join.set("on", exp.and_(*relation.optional))
            pending = [] if relation.optional is not None else waiting
            frame = join_frames(join, frame, relation.frame, pending)
        frame = apply_ready(frame, waiting)
        order.append(relation.place)
    ranked = sorted(zip(order, frame.items, strict=True), key=lambda pair: pair[0])
    return replace(frame, items=tuple(item for _, item in ranked))


@dataclass(frozen=True, eq=False)
class _PlacedItem:
    """An item of a FROM clause: its number, its rows, and the LEFT JOIN that adds it, if any."""

    place: int
    frame: Frame
    optional: list[exp.Expr] | None = None


def _sort_items(
    select: exp.Select, items: Items, waiting: list[exp.Expr]
) -> tuple[list[_PlacedItem], list[_PlacedItem], bool]:
    """Part a FROM clause into streams and relations; add inner joins' conditions to `waiting`.

    Returns:
        The streams; the relations; whether the relations' rows are looked up as rows come.
    """
    leaves = [items.leaf(item) for item, _ in _entries(select)]
    looks_up = all(_is_prompt(leaf.window) for leaf in leaves if isinstance(leaf, StreamLeaf))
    streams: list[_PlacedItem] = []
    relations: list[_PlacedItem] = []
    for place, (item, join) in enumerate(_entries(select)):
        leaf = items.leaf(item)
        on = list(split_conjuncts(join.args.get("on")))
        inside = join.kind in ("", "INNER", "CROSS") and not join.method
        if leaf is None or not inside or join.args.get("using"):
            raise Unsupported(_REASON)
        frame = items.frame(item)
        if isinstance(leaf, RelationLeaf):
            if not leaf.hidden:
                raise Unsupported(_REASON)
            if looks_up:
                frame = _without_hidden(replace(frame, node=frame.node.inputs[0]))
            optional = None
            if join.side == "LEFT":
                optional = on if looks_up else [*on, *list_conditions(join)]
            relations.append(_PlacedItem(place, frame, optional))
        elif join.side or any(r.optional for r in relations):
            raise Unsupported(_REASON)
        else:
            streams.append(_PlacedItem(place, _without_hidden(frame) if looks_up else frame))
        if join.side != "LEFT":
            waiting += on
    return streams, relations, looks_up


def _look_up_relation(frame: Frame, relation: _PlacedItem, waiting: list[exp.Expr]) -> Frame:
    """Join rows of streams with the rows a non-retroactive relation has as they come."""
    both = combine_frames(frame, relation.frame)
    on = relation.optional
    if on is None:
        on = [c for c in waiting if both.covers(c)]
        waiting[:] = [c for c in waiting if c not in on]
    found = split_condition(frame, relation.frame, on)
    node = NrrJoin(
        found.left,
        found.right,
        found.left_keys,
        found.right_keys,
        found.predicates,
        relation.optional is not None,
        found.text,
    )
    return replace(both, node=project(node, list(found.both)))


def _entries(select: exp.Select) -> list[tuple[exp.Expr, exp.Join]]:
    """List the items of a FROM clause, each with the join to the items before it."""
    clause = select.args.get("from_")
    if clause is None:
        return []
    joins = select.args.get("joins") or []
    return [(clause.this, exp.Join()), *((join.this, join) for join in joins)]


def _is_prompt(window: Window) -> bool:
    """Whether an element enters a window at its timestamp, and leaves at a known time."""
    match window:
        case Unbounded() | Now():
            return True
        case Range(_, slide):
            return slide is None
        case Period(_, end):
            return end.offset is None or end.offset >= 0
    return False


def _without_hidden(frame: Frame) -> Frame:
    """Remove the hidden columns from a frame of one item."""
    (item,) = frame.items
    node = project(frame.node, list(range(len(item.shown))))
    return Frame(node, (replace(item, names=item.shown, hidden=0),))
