"""Aggregates for which copies do not matter, below a join: the join joins what each key has, once.

    γ(g, min(b.x)) (A ⋈ B)   =   γ(g, min(m)) (δ(A) ⋈ γ(k, min(b.x) AS m) (B))

MIN and MAX of pairs are those of each key's least and greatest values, and an aggregate of distinct
values needs each value of a key once. So what a row costs does not depend on how many partners its
key has, but on how often a key's extreme changes. (Eager aggregation: Yan and Larson, VLDB 1995,
where MIN and MAX may be formed on both sides of a join, whatever the copies.)

Where other aggregates are beside them, the rows that a grouping gets are a union: the pairs, of
which these are formed (`sum_by_key` may replace the pairs by sums), and the rows that have extremes
or distinct values. Each aggregate has a column of its own for these, which is NULL elsewhere, and a
column that is true for pairs alone.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import pyarrow as pa

from millpond.operators.aggregation.aggregate import Aggregate
from millpond.operators.aggregation.aggregates.first_last import PickedValue
from millpond.operators.aggregation.aggregates.min_max import MinMax
from millpond.operators.aggregation.measures import Argument
from millpond.operators.group_by import GroupBy, Grouping
from millpond.operators.join import Join
from millpond.operators.project import Project
from millpond.operators.protocol.delta import places_in
from millpond.operators.protocol.node import Node
from millpond.operators.union import Union
from millpond.synopses.order_keys import can_be_ordered

_IS_PAIR = pa.scalar(True)


def extremes_by_key(node: Node) -> Node | None:
    """Apply the rule to a node; None if it does not apply."""
    if not isinstance(node, GroupBy):
        return None
    grouping, width = node.input, len(node.input.input.schema)
    wanted = [_read_wanted(aggregate) for aggregate in node.aggregates]
    apart = list(dict.fromkeys(own for own in wanted if own is not None))
    if not apart or any(isinstance(a, PickedValue) for a in node.aggregates):
        return None
    beneath = len(grouping.input.schema)
    keys = places_in(grouping.by, beneath)
    others = [a.argument for a, own in zip(node.aggregates, wanted, strict=True) if own is None]
    pairs = keys | places_in([p for own in others for p in (own.column, own.chosen)], beneath)
    rows = _divide(grouping.input, keys, apart, pairs if others else None)
    if rows is None:
        return None
    aggregates = []
    for aggregate, own in zip(node.aggregates, wanted, strict=True):
        if own is None:
            argument = _of_pairs(aggregate.argument, width + len(apart))
        else:
            argument = replace(aggregate.argument, column=width + apart.index(own))
        aggregates.append(replace(aggregate, argument=argument))
    return replace(node, input=replace(grouping, input=rows), aggregates=tuple(aggregates))


@dataclass(frozen=True)
class _Wanted:
    """What is wanted of a column: an extreme, or each distinct value."""

    place: int
    greatest: bool | None = None


def _read_wanted(aggregate: Aggregate) -> _Wanted | None:
    """Read what an aggregate needs if copies do not matter for it; None if it needs pairs."""
    argument = aggregate.argument
    if not isinstance(argument.column, int) or argument.chosen is not None:
        return None
    if isinstance(aggregate, MinMax):
        return _Wanted(argument.column, aggregate.greatest)
    return _Wanted(argument.column) if argument.distinct else None


def _of_pairs(argument: Argument, is_pair: int) -> Argument:
    """Restrict an argument to pairs; nothing else is computed for other rows: it may fail there."""
    column, chosen = argument.column, argument.chosen
    if isinstance(column, str):
        column = f"CASE WHEN c{is_pair} THEN ({column}) END"
    if chosen is None:
        return replace(argument, column=column, chosen=is_pair)
    chosen = f"CASE WHEN c{is_pair} THEN ({_as_sql(chosen)}) END"
    return replace(argument, column=column, chosen=chosen)


def _as_sql(column: int | str) -> str:
    return f"c{column}" if isinstance(column, int) else column


def _divide(
    node: Node, keys: Set[int], wanted: Sequence[_Wanted], pairs: Set[int] | None
) -> Node | None:
    """Divide the joins below a grouping.

    Args:
        node: Rows.
        keys: The places of the columns that the grouping's keys read.
        wanted: What is wanted apart.
        pairs: The places of the columns that are read of pairs; None if pairs are not needed.

    Returns:
        Rows with a column for each that is wanted, and one that is true for the node's own rows;
        None where there is nothing to divide.
    """
    if isinstance(node, Union):
        parts = [_divide(i, keys, wanted, pairs) for i in node.inputs]
        if all(part is None for part in parts):
            return None
        both = zip(node.inputs, parts, strict=True)
        return Union(tuple(_widen(i, wanted) if part is None else part for i, part in both))
    if isinstance(node, Project):
        return _divide_below(node, keys, wanted, pairs)
    return _divide_join(node, keys, wanted, pairs) if isinstance(node, Join) else None


def _widen(node: Node, wanted: Sequence[_Wanted]) -> Node:
    """Give rows that are not divided the columns of what is wanted, with their own values."""
    columns = (*range(len(node.schema)), *(own.place for own in wanted), _IS_PAIR)
    return Project(node, columns, _list_types(node, wanted), node.text)


def _list_types(node: Node, wanted: Sequence[_Wanted]) -> tuple[pa.DataType, ...]:
    types = node.schema.types
    return (*types, *(types[own.place] for own in wanted), pa.bool_())


def _keep_pairs(node: Join, wanted: Sequence[_Wanted], pairs: Set[int]) -> Node:
    """Make the rows of the pairs themselves: what is wanted apart is NULL, as is what is not read.

    A column that is carried though nobody reads it would tell rows apart that are added up.
    """
    types = _list_types(node, wanted)
    columns = sorted(pairs)
    # A row has a column.
    kept = tuple(node.keep[p] for p in columns) or node.left_keys[:1]
    joined, _ = _narrow(replace(node, keep=kept), set(range(len(kept))))
    own = [columns.index(p) if p in pairs else pa.scalar(None, types[p]) for p in range(len(types))]
    return Project(joined, (*own[:-1], _IS_PAIR), types, node.text)


def _narrow(node: Node, needed: Set[int]) -> tuple[Node, dict[int, int]]:
    """Leave out the columns of joins that are not needed; return where the needed ones are then."""
    if not isinstance(node, Join) or node.sums is not None or node.predicates:
        return node, {p: p for p in needed}
    width, places = len(node.left.schema), sorted(needed)
    used = {*node.left_keys, *(width + p for p in node.right_keys)}
    used |= {node.keep[p] for p in places}
    left, of_left = _narrow(node.left, {p for p in used if p < width})
    right, of_right = _narrow(node.right, {p - width for p in used if p >= width})
    moved = of_left | {width + p: len(left.schema) + at for p, at in of_right.items()}
    found = replace(
        node,
        left=left,
        right=right,
        left_keys=tuple(of_left[p] for p in node.left_keys),
        right_keys=tuple(of_right[p] for p in node.right_keys),
        keep=tuple(moved[node.keep[p]] for p in places),
    )
    return found, {p: at for at, p in enumerate(places)}


def _divide_below(
    node: Project, keys: Set[int], wanted: Sequence[_Wanted], pairs: Set[int] | None
) -> Node | None:
    """Divide the joins below a projection."""
    read = []
    for own in wanted:
        place = node.expressions[own.place]
        if not isinstance(place, int):
            return None
        read.append(replace(own, place=place))
    found, beneath = list(dict.fromkeys(read)), len(node.input.schema)
    below, pairs_below = (
        None if some is None else places_in([node.expressions[p] for p in some], beneath)
        for some in (keys, pairs)
    )
    rows = _divide(node.input, below or set(), found, pairs_below)
    if rows is None:
        return None
    width = len(node.input.schema)
    is_pair = width + len(found)
    expressions: list[str | int | pa.Scalar] = []
    for p, e in enumerate(node.expressions):
        if p in keys or not isinstance(e, str):
            expressions.append(e)
        elif pairs is not None and p in pairs:
            expressions.append(f"CASE WHEN c{is_pair} THEN ({e}) END")
        else:
            expressions.append(pa.scalar(None, node.types[p]))
    expressions += [width + found.index(own) for own in read]
    types = [*node.types, *(node.types[own.place] for own in wanted), pa.bool_()]
    return replace(node, input=rows, expressions=(*expressions, is_pair), types=tuple(types))


def _divide_join(
    node: Join, keys: Set[int], wanted: Sequence[_Wanted], pairs: Set[int] | None
) -> Node | None:
    """Divide a join into its pairs and, for each kind of what is wanted, a join of what is once."""
    if node.predicates or node.sums is not None or not node.left_keys:
        return None
    if all(isinstance(i, GroupBy) for i in node.inputs):
        return None  # divided already
    extremes = [w for w in wanted if w.greatest is not None]
    start = len(node.left.schema)
    found = [] if pairs is None else [_keep_pairs(node, wanted, pairs)]
    for right in (False, True):
        here = [w for w in extremes if (node.keep[w.place] >= start) == right]
        values = [w for w in wanted if (node.keep[w.place] >= start) == right and w not in extremes]
        for some in (here, *([w] for w in values)):
            part = _join_once(node, keys, wanted, some) if some else None
            if some and part is None:
                return None
            found += [part] if part is not None else []
    return found[0] if len(found) == 1 else Union(tuple(found))


def _join_once(
    node: Join, keys: Set[int], wanted: Sequence[_Wanted], some: Sequence[_Wanted]
) -> Node | None:
    """Join each key's extremes, or values, of one side with what the other side has of the key.

    Returns:
        Rows as of `_divide`; None if rows that are equal as keys may still differ (0.0 and -0.0).
    """
    start = len(node.left.schema)
    needed = {node.keep[p] for p in keys}
    if any(pa.types.is_floating(node.schema.types[p]) for p in keys):
        return None
    needed |= {*node.left_keys, *(start + p for p in node.right_keys)}
    needed |= {node.keep[w.place] for w in some if w.greatest is None}
    once: list[GroupBy] = []
    #: Where the joined rows have a column of the pairs, and what is wanted.
    places: dict[int | _Wanted, int] = {}
    width = 0
    for whole, first in zip(node.inputs, (0, start), strict=True):
        types = whole.schema.types
        by = [p for p in range(len(types)) if first + p in needed]
        if not all(can_be_ordered(types[p]) for p in by):
            return None
        least = {node.keep[own.place] - first for own in some if own.greatest is not None}
        side, at_side = _narrow(whole, {*by, *(p for p in least if 0 <= p < len(types))})
        places.update({first + p: width + place for place, p in enumerate(by)})
        width += len(by)
        aggregates = []
        for own in some:
            at = node.keep[own.place] - first
            if own.greatest is not None and 0 <= at < len(types):
                argument = Argument(at_side[at], types[at])
                aggregates.append(MinMax(argument, types[at], own.greatest))
                places[own] = width
                width += 1
        keyed = tuple(at_side[p] for p in by)
        grouping = Grouping(side, keyed, tuple(types[p] for p in by), node.text)
        once.append(GroupBy(grouping, tuple(range(len(by))), tuple(aggregates), node.text))
    left, right = once
    joined = replace(
        node,
        left=left,
        right=right,
        left_keys=tuple(places[p] for p in node.left_keys),
        right_keys=tuple(places[start + p] - len(left.schema) for p in node.right_keys),
        keep=tuple(range(width)),
        group="",
        items=(),
        order=(),
    )
    given = _list_types(node, wanted)
    nulls = [pa.scalar(None, type_) for type_ in given]
    own_columns = [places[node.keep[p]] if p in keys else nulls[p] for p in range(len(node.schema))]
    apart = [
        nulls[-1 - len(wanted) + place]
        if w not in some
        else places[w if w.greatest is not None else node.keep[w.place]]
        for place, w in enumerate(wanted)
    ]
    return Project(joined, (*own_columns, *apart, nulls[-1]), given, node.text)
