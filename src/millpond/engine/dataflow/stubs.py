"""Followed operators over one synopsis, whatever the lengths of their windows (Bulletin 2.2).

Where several operators run together that would keep the same of windows over the same elements, it
is kept once, by a store below all of them (`operators/protocol/stubs.py`). As with lenders
(`lenders.py`), plans do not change, nor do their keys: what a plan costs, and what somebody chose
of its operators, is said of the node of the plan. A node that runs alone is that node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from millpond.operators.project import Project
from millpond.operators.protocol.node import Node
from millpond.operators.protocol.stubs import Stub
from millpond.operators.structures.lifetimes import find_length
from millpond.operators.structures.release_rules import find_source
from millpond.operators.windows.time_window import TimeWindow


def choose_stubs(stubs: Iterable[Stub]) -> dict[str, Stub]:
    """Choose, of those that nodes could be replaced by, the ones whose store others read, too.

    Returns:
        By the key of a node, what takes its place.
    """
    by_store: defaultdict[str, list[Stub]] = defaultdict(list)
    for stub in stubs:
        by_store[stub.input.key].append(stub)
    return {one.key: one for some in by_store.values() if len(some) > 1 for one in some}


@dataclass(frozen=True)
class Elements:
    """The elements of a window over time, with the columns that are read.

    Attributes:
        node: The elements.
        length: How long each is in the window.
    """

    node: Node
    length: int


def find_elements(node: Node) -> Elements | None:
    """Find the elements of an input; None if it is not a window that can be shared."""
    places = tuple(range(len(node.schema)))
    while isinstance(node, Project):
        chosen = [node.expressions[place] for place in places]
        node, places = node.input, tuple(place for place in chosen if isinstance(place, int))
        if len(places) < len(chosen):
            return None
    if not isinstance(node, TimeWindow) or not node.in_order:
        return None
    below, names, length = node.input, node.names, find_length(node.window)
    if length is None or below.owner or find_source(below) is None:
        return None
    places = tuple(node.kept[place] for place in places)
    if places != tuple(range(len(below.schema))):
        types = tuple(below.schema.field(place).type for place in places)
        shown = ", ".join(names[place] for place in places) if names else ""
        below = Project(below, places, types, shown)
    return Elements(below, length)
