"""Followed joins over one synopsis, whatever the lengths of their windows (Bulletin 2.2).

Where two windows are joined whose elements enter as they come, the elements are kept by key below
the join, by a node that joins of windows of all lengths share. As with windows
(`shared_windows.py`), what a plan costs, and what somebody chose of its operators, is said of the
join itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import sqlglot
from sqlglot import exp

from millpond.model.windows import Window
from millpond.operators.join import Join
from millpond.operators.project import Project
from millpond.operators.protocol.node import Node
from millpond.operators.shared_join import KeptSides, Origin, SharedJoin, find_length
from millpond.operators.structures.release_rules import find_source
from millpond.operators.windows.time_window import TimeWindow

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
#: What a condition may consist of that is true, false or NULL of all pairs.
_CANNOT_FAIL = (*_COMPARISONS, exp.And, exp.Or, exp.Not, exp.Paren, exp.Column, exp.Identifier)


def share_joins(root: Node) -> Node:
    """Put joins over kept rows wherever a plan joins two windows that carry expirations.

    A query that has a join for itself has the rows, too.
    """
    done: dict[str, Node] = {}

    def visit(node: Node) -> Node:
        if node.key not in done:
            shared = _share(node) if isinstance(node, Join) else None
            if shared is None:
                inputs = tuple(map(visit, node.inputs))
                shared = node if inputs == node.inputs else node.over_inputs(inputs)
            done[node.key] = shared
        return done[node.key]

    return visit(root)


def _share(join: Join) -> Node | None:
    if join.sums is not None:
        return None
    left, right = _find_elements(join.left), _find_elements(join.right)
    if left is None or right is None or not _cannot_fail(join.predicates, _list_types(join)):
        return None
    kept: Node = KeptSides(left.node, right.node, join.left_keys, join.right_keys, join.nulls_match)
    if join.owner:
        kept = kept.own_by(join.owner)
    text = " ".join(part for part in (join.text, f"of {left.text} and {right.text}") if part)
    found: Node = SharedJoin(kept, (left.window, right.window), Origin(join), text=text)
    return found.own_by(join.owner) if join.owner else found


@dataclass(frozen=True)
class _Elements:
    """The elements of a window over time, with the columns that are joined."""

    node: Node
    window: Window
    text: str


def _find_elements(node: Node) -> _Elements | None:
    """Find the elements of an input of a join; None if it is not a window that can be shared."""
    places = tuple(range(len(node.schema)))
    while isinstance(node, Project):
        chosen = [node.expressions[place] for place in places]
        node, places = node.input, tuple(place for place in chosen if isinstance(place, int))
        if len(places) < len(chosen):
            return None
    if not isinstance(node, TimeWindow) or not node.in_order or find_length(node.window) is None:
        return None
    below, names = node.input, node.names
    if find_source(below) is None:
        return None
    places = tuple(node.kept[place] for place in places)
    if places != tuple(range(len(below.schema))):
        types = tuple(below.schema.field(place).type for place in places)
        shown = ", ".join(names[place] for place in places) if names else ""
        below = Project(below, places, types, shown)
    return _Elements(below, node.window, node.text)


def _list_types(join: Join) -> tuple[pa.DataType, ...]:
    return (*join.left.schema.types, *join.right.schema.types)


@lru_cache(maxsize=1 << 12)
def _cannot_fail(predicates: tuple[str, ...], types: tuple[pa.DataType, ...]) -> bool:
    """Whether predicates compare columns of equal types only: they fail on nobody's pairs.

    A pair that holds only before a query's changes begin must not fail it, and the operator of a
    shared join is not tried again without such pairs.
    """
    for sql in predicates:
        for part in sqlglot.parse_one(sql, dialect="duckdb").walk():
            if not isinstance(part, _CANNOT_FAIL):
                return False
            if isinstance(part, _COMPARISONS):
                sides = part.this, part.expression
                if not all(isinstance(side, exp.Column) for side in sides):
                    return False
                one, other = (types[int(side.name[1:])] for side in sides)
                if one != other:
                    return False
    return True
