"""Which constraints of streams let a join release rows, and of which side (STREAM, CIDR 4.1).

A join's side whose node is a stream under selection, sampling, a window over time and projection
can be read back from the stream's segments. Where both sides are such, each constraint of one
side's stream gives a rule for the rows of a side:

- *unique*, over columns that the join compares: a row of the other side whose partner came.
- *clustered* by what the join compares: a row of the other side whose cluster is over.
- *ordered* by a column that the join compares: a row of the other side whose value is below
  everything that may still come.
- *foreign key* to columns that are unique in the other side's stream: a row of this side whose
  partner did not come in time, because a selection held it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from millpond.model.constraints import CLUSTERED, FOREIGN_KEY, ORDERED, UNIQUE
from millpond.operators.protocol.node import Node
from millpond.operators.protocol.releasing import Constraints, ReleaseRule


def find_source(node: Node) -> Node | None:
    """Find the stream below a node that only selects, samples, windows and projects its elements.

    Returns:
        The stream's source; None if the node does anything else.
    """
    while node.feed is None:
        if node.remembers or len(node.inputs) != 1:
            return None
        (node,) = node.inputs
    return node if node.feed[0] == "stream" else None


@dataclass(frozen=True)
class ComparedKeys:
    """What a join compares of two streams.

    Attributes:
        streams: The streams of its left and right sides.
        names: For each side, the folded names of the streams' columns, in one order; None for what
            is not a column.
    """

    streams: tuple[str, str]
    names: tuple[tuple[str | None, ...], tuple[str | None, ...]]


def find_compared(
    sides: tuple[Node, Node], keys: tuple[Sequence[int], Sequence[int]]
) -> ComparedKeys | None:
    """Find what a join of two sides compares; None if it cannot release rows.

    Args:
        sides: The nodes of its left and right inputs.
        keys: For each side, the places of the columns that must be equal, in one order.
    """
    left, right = (find_source(side) for side in sides)
    if not keys[0] or left is None or right is None or not left.feed or not right.feed:
        return None
    types = [[s.schema.field(p).type for p in k] for s, k in zip(sides, keys, strict=True)]
    if not all(is_hashable(a) and is_hashable(b) for a, b in zip(*types, strict=True)):
        return None
    names = [tuple(trace_to_source(s, p) for p in k) for s, k in zip(sides, keys, strict=True)]
    return ComparedKeys((left.feed[1], right.feed[1]), (names[0], names[1]))


def find_rules(
    sides: tuple[Node, Node], keys: tuple[Sequence[int], Sequence[int]], constraints: Constraints
) -> tuple[ReleaseRule, ...]:
    """Find the rules by which a join of two sides on equal keys releases rows.

    Args:
        sides: The nodes of its left and right inputs.
        keys: For each side, the places of the columns that must be equal, in one order.
        constraints: The constraints of streams.
    """
    if not constraints or (found_keys := find_compared(sides, keys)) is None:
        return ()
    streams, names = found_keys.streams, found_keys.names
    types = [[s.schema.field(p).type for p in k] for s, k in zip(sides, keys, strict=True)]
    known = [constraints.get(stream, ()) for stream in streams]
    found: list[ReleaseRule] = []
    for side in (0, 1):
        other = 1 - side
        for constraint in known[side]:
            columns = {name.lower() for name in constraint.columns}
            compared = set(names[side])
            is_unique = constraint.kind == UNIQUE and columns <= compared
            if is_unique or (constraint.kind == CLUSTERED and columns == compared):
                found.append(ReleaseRule(constraint, streams[side], other))
            elif constraint.kind == ORDERED and columns <= compared:
                (column,) = columns
                place = names[side].index(column)
                if is_ordered_number(types[side][place]) and is_ordered_number(types[other][place]):
                    found.append(ReleaseRule(constraint, streams[side], other, place))
            elif constraint.kind == FOREIGN_KEY and (constraint.references or "").lower() == (
                streams[other].lower()
            ):
                pairs = dict(zip(names[other], names[side], strict=True))
                if any(
                    unique.kind == UNIQUE
                    and {n.lower() for n in unique.columns} <= pairs.keys()
                    and {pairs[n.lower()] for n in unique.columns} == columns
                    for unique in known[other]
                ):
                    found.append(ReleaseRule(constraint, streams[side], side))
    return tuple(found)


def is_hashable(type_: pa.DataType) -> bool:
    """Whether equal values of a type, and of types it is compared with, have equal hashes."""
    return is_ordered_number(type_) or pa.types.is_string(type_) or pa.types.is_boolean(type_)


def is_ordered_number(type_: pa.DataType) -> bool:
    """Whether a type's values are whole numbers inside, in the order of the values."""
    is_whole = pa.types.is_integer(type_) and not pa.types.is_uint64(type_)
    return is_whole or pa.types.is_timestamp(type_) or pa.types.is_date32(type_)


def trace_to_source(node: Node, place: int | None) -> str | None:
    """The folded name of the stream's column that a node passes on at a place; None if none."""
    while place is not None and node.feed is None:
        place = node.trace_column(place)
        (node,) = node.inputs
    if place is None or node.feed is None:
        return None
    return node.feed[2][place].lower()
