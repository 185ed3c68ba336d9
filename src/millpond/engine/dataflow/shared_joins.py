"""Followed joins over one synopsis, whatever the lengths of their windows (Bulletin 2.2).

Where several joins run together that compare the same keys of windows over the same elements, the
elements are kept by key once, by a node below all of them (`operators/shared_join.py`). As with
lenders (`lenders.py`), plans do not change, nor do their keys: what a plan costs, and what somebody
chose of its operators, is said of the join of the plan. A join that runs alone is that join.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
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


def find_shared_joins(nodes: Iterable[Node]) -> dict[str, SharedJoin]:
    """Find what takes the places of joins that run together and keep the same elements.

    Returns:
        By the key of such a join, the join over what is kept for all of them.
    """
    by_store: defaultdict[str, list[SharedJoin]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, Join) and (shared := share_join(node)) is not None:
            by_store[shared.input.key].append(shared)
    return {one.key: one for some in by_store.values() if len(some) > 1 for one in some}


@lru_cache(maxsize=1 << 12)
def share_join(join: Join) -> SharedJoin | None:
    """Make a join over kept elements of a join of two windows that carry expirations.

    Returns:
        None: it is no such join, or a query has it for itself.
    """
    if join.sums is not None or join.owner:
        return None
    left, right = _find_elements(join.left), _find_elements(join.right)
    if left is None or right is None or not _cannot_fail(join.predicates, _list_types(join)):
        return None
    kept = KeptSides(left.node, right.node, join.left_keys, join.right_keys, join.nulls_match)
    return SharedJoin(kept, (left.window, right.window), Origin(join))


@dataclass(frozen=True)
class _Elements:
    """The elements of a window over time, with the columns that are joined."""

    node: Node
    window: Window


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
    if below.owner or find_source(below) is None:
        return None
    places = tuple(node.kept[place] for place in places)
    if places != tuple(range(len(below.schema))):
        types = tuple(below.schema.field(place).type for place in places)
        shown = ", ".join(names[place] for place in places) if names else ""
        below = Project(below, places, types, shown)
    return _Elements(below, node.window)


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
