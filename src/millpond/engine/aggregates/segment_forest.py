"""The tree above a stream's segments, annotated with totals.

PSoup (VLDB Journal 2003, section 5): a ranked n-ary tree over the data in time order, each node
annotated with the aggregate of its subtree. Here the leaves are segments, in the order of their
first timestamps. Nodes have no data but their totals, so a tree goes on where merging stops.

Which neighbours share a parent depends on their ids alone: a subtree ends behind a segment whose
scrambled id ends in enough zeros. So when segments come, are merged or are evicted, all subtrees
that lie apart from them stay as they are, with their totals.

INV-FOREST-1: the tree is a function of the set of segments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

#: Neighbours that share a parent, on average: 2^3.
_BITS = 3


class Segment(Protocol):
    """What the tree has to know of a segment."""

    @property
    def id(self) -> int: ...

    @property
    def min_ts(self) -> int: ...

    @property
    def max_ts(self) -> int: ...


@dataclass(eq=False, slots=True)
class Subtree:
    """A subtree: one segment, or at least two children.

    Attributes:
        number: Which no other node has.
        min_ts: The least timestamp in the subtree.
        max_ts: The greatest timestamp in the subtree.
        height: How many further levels its last segment ends subtrees of.
        totals: The totals and sketches that were asked for so far, by what they are of.
    """

    number: int
    min_ts: int
    max_ts: int
    height: int
    segment: Segment | None = None
    children: tuple[Subtree, ...] = ()
    totals: dict[Hashable, Any] = field(default_factory=dict)


class SegmentForest:
    """The tree above the segments of one stream; remembers subtrees from one tree to the next."""

    def __init__(self) -> None:
        self._segments: Sequence[Segment] = ()
        self._root: Subtree | None = None
        #: By the segment's id, or the numbers of the children.
        self._known: dict[Hashable, Subtree] = {}
        self._numbers = count()

    def root(self, segments: Sequence[Segment]) -> Subtree | None:
        """Return the tree above these segments; None if there are none.

        Args:
            segments: In the order of (min_ts, id). The same object stands for the same segments.
        """
        if segments is not self._segments:
            known: dict[Hashable, Subtree] = {}
            self._root = self._grow([self._keep(known, s.id, _leaf, s) for s in segments], known)
            self._segments, self._known = segments, known
        return self._root

    def _grow(self, nodes: list[Subtree], known: dict[Hashable, Subtree]) -> Subtree | None:
        while len(nodes) > 1:
            parents: list[Subtree] = []
            family: list[Subtree] = []
            for node in nodes:
                family.append(node)
                if node.height:
                    parents.append(self._unite(family, known))
                    family = []
            if family:
                parents.append(self._unite(family, known))
            if len(parents) == len(nodes):  # every family is an only child
                parents = [self._unite(nodes, known)]
            nodes = parents
        return nodes[0] if nodes else None

    def _unite(self, family: list[Subtree], known: dict[Hashable, Subtree]) -> Subtree:
        if len(family) == 1:
            only = family[0]
            if not only.height:
                return only
            # The same subtree, one level up.
            return self._keep(known, (only.number,), _raised, only)
        return self._keep(known, tuple(n.number for n in family), _parent, tuple(family))

    def _keep(
        self,
        known: dict[Hashable, Subtree],
        key: Hashable,
        make: Callable[..., Subtree],
        of: object,
    ) -> Subtree:
        node = self._known.get(key) or make(next(self._numbers), of)
        known[key] = node
        return node

    def nodes(self) -> Iterable[Subtree]:
        """Return all nodes of the last tree."""
        return list(self._known.values())


def split_at_window(
    root: Subtree | None, low: int | None, high: int
) -> tuple[list[Subtree], list[Subtree]]:
    """Cut a tree at the edges of a window.

    Returns:
        The greatest subtrees that lie wholly in [low, high], and the segments that straddle an
        edge.
    """
    whole: list[Subtree] = []
    straddling: list[Subtree] = []
    stack = [] if root is None else [root]
    while stack:
        node = stack.pop()
        if node.min_ts > high or (low is not None and node.max_ts < low):
            continue
        if node.max_ts <= high and (low is None or node.min_ts >= low):
            whole.append(node)
        elif node.segment is not None:
            straddling.append(node)
        else:
            stack.extend(node.children)
    return whole, straddling


def total_of_node(
    node: Subtree,
    what: Hashable,
    of_segment: Callable[[Segment], Any],
    merge: Callable[[Iterable[Any]], Any],
) -> Any:
    """Return a subtree's total, from its parts' where it was not asked for before.

    Args:
        node: The subtree.
        what: What the total is of.
        of_segment: Gives a segment's total.
        merge: Merges totals of parts.
    """
    found = node.totals.get(what)
    if found is None:
        if node.segment is not None:
            found = of_segment(node.segment)
        else:
            found = merge(total_of_node(child, what, of_segment, merge) for child in node.children)
        node.totals[what] = found
    return found


def _leaf(number: int, segment: Segment) -> Subtree:
    return Subtree(number, segment.min_ts, segment.max_ts, _height(segment.id), segment)


def _raised(number: int, node: Subtree) -> Subtree:
    return Subtree(
        number,
        node.min_ts,
        node.max_ts,
        node.height - 1,
        node.segment,
        node.children,
        node.totals,
    )


def _parent(number: int, children: tuple[Subtree, ...]) -> Subtree:
    return Subtree(
        number,
        min(n.min_ts for n in children),
        max(n.max_ts for n in children),
        max(children[-1].height - 1, 0),
        None,
        children,
    )


def _height(id: int) -> int:
    """Return how many levels of subtrees end behind a segment: by its scrambled id."""
    scrambled = (id * 0x9E3779B97F4A7C15) >> 20 & 0xFFFFFFFF
    zeros = (scrambled & -scrambled).bit_length() - 1 if scrambled else 32
    return zeros // _BITS
