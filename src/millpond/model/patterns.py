"""Update patterns: which rows leave an edge of a plan, and when (SEMANTICS, section 6).

Update patterns of continuous queries (Golab and Özsu, SIGMOD 2005), section 3. The rules are a
table from operators to functions of their inputs' edges; the plan is the query as written, without
rewriting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from millpond.model.windows import Now, Period, Range, Rows, Unbounded, Window


class Pattern(IntEnum):
    """When rows leave; in ascending order of what an operator must be prepared for."""

    MONOTONIC = 0  #: nothing leaves
    WEAKEST = 1  #: leaves in the order of arrival
    WEAK = 2  #: leaves at a time known on arrival
    STRICT = 3  #: may leave at a time nobody could know


@dataclass(frozen=True)
class Edge:
    """What is known of the rows on an edge.

    Attributes:
        pattern: When the rows leave.
        lengths: On a WEAKEST edge, the different lengths of time the rows live.
    """

    pattern: Pattern
    lengths: frozenset[object] = frozenset()


MONOTONIC = Edge(Pattern.MONOTONIC)
WEAK = Edge(Pattern.WEAK)
STRICT = Edge(Pattern.STRICT)
#: A non-retroactive relation beside streams: its rows come and go with the elements they join.
ATTACHED = Edge(Pattern.MONOTONIC, frozenset(["attached"]))


def window_edge(window: Window) -> Edge:
    """Return the edge behind a window.

    >>> window_edge(Range(10)).pattern.name, window_edge(Rows(3)).pattern.name
    ('WEAKEST', 'STRICT')
    """
    match window:
        case Unbounded():
            return MONOTONIC
        case Range(size, slide):
            return Edge(Pattern.WEAKEST, frozenset([(size, slide)]))
        case Now():
            return Edge(Pattern.WEAKEST, frozenset([0]))
        case Period(begin, _):
            # A landmark keeps its elements; a begin that moves with NOW drops them in time order.
            if begin.offset is None:
                return MONOTONIC
            return Edge(Pattern.WEAKEST, frozenset([begin.offset]))
        case Rows():
            return STRICT


def _same(inputs: Sequence[Edge]) -> Edge:
    return inputs[0]


def _union(inputs: Sequence[Edge]) -> Edge:
    greatest = max(inputs, key=lambda e: e.pattern)
    lengths = frozenset(n for e in inputs for n in e.lengths)
    if greatest.pattern is Pattern.WEAKEST:
        # Rows of two lengths do not leave in the order they came: a departure from the paper.
        return WEAK if len(lengths) > 1 else Edge(Pattern.WEAKEST, lengths)
    return greatest


def _join(inputs: Sequence[Edge]) -> Edge:
    moving = [e for e in inputs if e != ATTACHED]
    if len(moving) < len(inputs):
        # Rows of the relation come and go with the rows they are joined with.
        return _join(moving) if len(moving) > 1 else (moving or inputs)[0]
    patterns = {e.pattern for e in inputs}
    if Pattern.STRICT in patterns:
        return STRICT
    return MONOTONIC if patterns == {Pattern.MONOTONIC} else WEAK


def _weak(_: Sequence[Edge]) -> Edge:
    return WEAK


def _strict(_: Sequence[Edge]) -> Edge:
    return STRICT


#: The edge of a retroactive relation: nobody announces its updates, so a join with it is STRICT by
#: the rule of joins.
RELATION = STRICT

#: The output edge of every operator EXPLAIN shows, by its inputs' edges.
RULES: dict[str, Callable[[Sequence[Edge]], Edge]] = {
    "select": _same,
    "project": _same,
    "order": _same,
    "union all": _union,
    "join": _join,
    "semijoin": _join,
    "intersect": _join,
    "distinct": _join,
    "group-by": _weak,
    "negation": _strict,
    "outer join": _strict,
    "asof join": _strict,
    "scalar subquery": _strict,
    "window function": _strict,
    "limit": _strict,
}
