"""Update pattern simplification: put a join below a negation instead of above it.

    (A ▷ B) ⋈ C   =   (A ⋈ C) ▷ B

because the antijoin reads A's columns only. Every operator above a negation has to process negative
tuples. Below the negation the join of A and C is WEAK, and so may be the operators under it (Update
patterns, 5.4.2 and figure 6). The rule does not apply where C is STRICT: the join would be STRICT
anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp, parse_one

from millpond.model.patterns import Pattern
from millpond.operators.join import Join
from millpond.operators.protocol.node import Node
from millpond.operators.semijoin import Semijoin


def pull_up_negation(node: Node) -> Node | None:
    """Apply the rule to a node; None if it does not apply."""
    if not isinstance(node, Join) or node.pattern is not Pattern.STRICT:
        return None
    if _is_simple(node.left) and node.right.pattern is not Pattern.STRICT:
        return _pull_up(node, node.left, left=True)
    if _is_simple(node.right) and node.left.pattern is not Pattern.STRICT:
        return _pull_up(node, node.right, left=False)
    return None


def _is_simple(node: Node) -> bool:
    """Whether a node is an antijoin of rows that are not STRICT."""
    return isinstance(node, Semijoin) and node.anti and node.left.pattern is not Pattern.STRICT


def _pull_up(join: Join, negation: Node, left: bool) -> Node:
    assert isinstance(negation, Semijoin)
    own, keep = negation.left, negation.keep
    width = len(join.left.schema)

    def in_pair(place: int) -> int:
        """Return the place in (A ⋈ C) of a column of the original join."""
        if left:
            return keep[place] if place < width else place - width + len(own.schema)
        return place if place < width else width + keep[place - width]

    if left:
        below = replace(join, left=own, left_keys=tuple(keep[k] for k in join.left_keys))
    else:
        below = replace(join, right=own, right_keys=tuple(keep[k] for k in join.right_keys))
    pair = len(below.left.schema) + len(below.right.schema)
    offset = 0 if left else width
    every = replace(
        below,
        predicates=tuple(_move_columns(p, in_pair) for p in join.predicates),
        keep=tuple(range(pair)),
    )

    def behind(place: int) -> int:
        """Return the place in pairs of (A ⋈ C) and B of a column of the pairs of A and B."""
        return place + offset if place < len(own.schema) else place - len(own.schema) + pair

    return replace(
        negation,
        left=every,
        left_keys=tuple(k + offset for k in negation.left_keys),
        predicates=tuple(_move_columns(p, behind) for p in negation.predicates),
        keep=tuple(in_pair(p) for p in join.keep),
    )


def _move_columns(predicate: str, place_of: Callable[[int], int]) -> str:
    """Move the columns of a predicate to other places."""
    tree = exp.Paren(this=parse_one(predicate, dialect="duckdb"))
    for column in list(tree.find_all(exp.Column)):
        column.replace(exp.column(f"c{place_of(int(column.name[1:]))}"))
    return tree.this.sql(dialect="duckdb")
