"""Duplicate elimination below a join, so that δ* and the join share the rows they keep.

    δ(π (A ⋈ C))   =   δ(π (δ(π' A) ⋈ δ(π' C)))

π' projects to the columns that the join needs. Where π keeps all of these columns, the pairs are
distinct already and the outer δ is dropped (Update patterns, 5.4.2, where the rule is called
duplicate elimination pull-up, and query 4 of section 6).
"""

from __future__ import annotations

from millpond.operators.distinct_delta_star import DistinctDeltaStar
from millpond.operators.join import Join
from millpond.operators.project import Project
from millpond.operators.protocol.node import Node


def push_down_distinct(node: Node) -> Node | None:
    """Apply the rule to a node; None if it does not apply."""
    if not isinstance(node, DistinctDeltaStar) or not isinstance(node.input, Join):
        return None
    join = node.input
    if join.predicates or any(isinstance(i, DistinctDeltaStar) for i in join.inputs):
        return None
    width = len(join.left.schema)
    left = sorted({p for p in join.keep if p < width} | set(join.left_keys))
    right = sorted({p - width for p in join.keep if p >= width} | set(join.right_keys))
    if not left or not right:
        return None
    below = Join(
        DistinctDeltaStar(_columns(join.left, left)),
        DistinctDeltaStar(_columns(join.right, right)),
        tuple(left.index(k) for k in join.left_keys),
        tuple(right.index(k) for k in join.right_keys),
        (),
        tuple(
            left.index(p) if p < width else len(left) + right.index(p - width) for p in join.keep
        ),
        join.nulls_match,
        join.label,
        join.text,
    )
    # A key is equal on both sides: it is enough if π keeps the key of one side.
    equal = {k: len(left) + right.index(r) for k, r in _pairs(join, left)}
    kept = set(below.keep)
    kept |= {other for one, other in equal.items() if one in kept}
    kept |= {one for one, other in equal.items() if other in kept}
    return below if len(kept) == len(left) + len(right) else DistinctDeltaStar(below)


def _pairs(join: Join, left: list[int]) -> list[tuple[int, int]]:
    pairs = zip(join.left_keys, join.right_keys, strict=True)
    return [(left.index(one), other) for one, other in pairs]


def _columns(node: Node, places: list[int]) -> Node:
    if places == list(range(len(node.schema))):
        return node
    narrower = node.choose_columns(tuple(places))
    types = tuple(node.schema.field(p).type for p in places)
    return narrower if narrower is not None else Project(node, tuple(places), types)
