"""Joins over one synopsis: rows are kept by key once, whatever windows join them (Bulletin 2.2).

There is a store with a stub for each reader (`protocol/stubs.py`). `KeptSides` is the store: the
elements of two streams by the keys that are compared, each as long as the longest of the windows
over its stream may hold it. A `SharedJoin` is a stub, a join of two windows over them. In each step
it is told which elements came, and looks for their partners in the store. Two elements with the
timestamps s and t are a pair of windows of the lengths m and n

    from max(s, t) until min(s + m, t + n), if that is not empty.

The elements of a key are looked at from the last to the first, so a short window does not look at
what only a longer one holds. Nor does it lay out a pair that it does not give: a query that joins
too many rows fails alone.

INV-SIDES-1: of each side every element is kept that is in one of its readers' windows, or was
released because of constraints (`structures/releases.py`). Rows that are taken over are those that
the windows hold for which they were kept (`take_over`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa

from millpond.model.patterns import RULES, Edge
from millpond.model.time import BEGINNING, END
from millpond.operators.protocol.delta import Delta, Ints, positional_schema
from millpond.operators.protocol.node import Node, Operator, Scalars
from millpond.operators.protocol.purging import Purging
from millpond.operators.protocol.releasing import Constraints, ReleaseFigures, ReleaseRule
from millpond.operators.protocol.stubs import Stub, StubOperator
from millpond.operators.structures.join_side import PAIRS_AT_ONCE, Side
from millpond.operators.structures.pairs import PairFinder
from millpond.operators.structures.release_rules import find_rules
from millpond.operators.structures.rows_by_key import RowsByKey


@dataclass(frozen=True)
class KeptSide:
    """One side of a store, as it is lent to the readers of a step.

    Attributes:
        new: The elements of the step that can have partners.
        numbers: The numbers of their keys.
        held: The elements that are kept, with these.
        before: How many of them were there before the step.
    """

    new: Delta
    numbers: Ints
    held: Side
    before: int


@dataclass(frozen=True, eq=False)
class SidesDelta(Delta):
    """The elements of a step, with the store that holds them; without rows of its own."""

    sides: tuple[KeptSide, KeptSide] | None = None

    def __len__(self) -> int:
        return 0 if self.sides is None else sum(len(side.new) for side in self.sides)


@dataclass(frozen=True, eq=False)
class KeptSides(Node):
    """The elements of two inputs by key, kept for all joins of windows over them.

    Attributes:
        left, right: The elements, in the order of their timestamps.
        left_keys, right_keys: Places of the columns that must be equal; none for all pairs.
        nulls_match: As of `Join`.
    """

    left: Node
    right: Node
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    nulls_match: bool = False

    name = "kept rows"
    purges = True
    serves_readers = True
    lends = True

    @property
    def schema(self) -> pa.Schema:
        return positional_schema([*self.left.schema.types, *self.right.schema.types])

    @property
    def edge(self) -> Edge:
        return RULES["join"]([i.edge for i in self.inputs])

    @property
    def identity(self) -> tuple[Any, ...]:
        equal = sorted(zip(self.left_keys, self.right_keys, strict=True))
        return (equal, self.nulls_match)

    def find_release_rules(self, constraints: Constraints) -> tuple[ReleaseRule, ...]:
        if self.nulls_match:
            return ()
        return find_rules((self.left, self.right), (self.left_keys, self.right_keys), constraints)

    def operator(self) -> Operator:
        return KeepingSides(self)


class KeepingSides:
    """Runs `KeptSides`.

    What it lends is read before it runs again, so rows leave it when the next step begins.

    Attributes:
        rows: The rows.
    """

    def __init__(self, node: KeptSides) -> None:
        self.purging = Purging()
        self._empty = Delta.empty(node.schema)
        keys = node.left_keys, node.right_keys
        self.rows = RowsByKey((node.left, node.right), keys, node.nulls_match)
        #: How long an element is kept, of each side; None: nobody has said, so for ever.
        self._lengths: tuple[int, int] | None = None
        self._upto = BEGINNING - 1

    def set_release_rules(self, rules: Sequence[ReleaseRule]) -> None:
        self.rows.set_release_rules(rules)

    def list_release_figures(self) -> list[ReleaseFigures]:
        return self.rows.list_release_figures()

    def serve(self, needed: Set[int], readers: Sequence[Node]) -> None:
        """Keep from now on what the windows of these readers hold."""
        found = [reader.lengths for reader in readers if isinstance(reader, SharedJoin)]
        if found:
            self._keep(*map(max, *found, (0, 0)))

    def _keep(self, *lengths: int) -> None:
        self._lengths = lengths[0], lengths[1]
        self.rows.set_lengths(self._lengths)

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        is_empty = not any(map(len, inputs))
        if is_empty or self._upto >= BEGINNING:
            self.rows.compact(upto if is_empty else self._upto, self.purging)
        self._upto = upto
        if is_empty:
            return self._empty
        lent = []
        new, lengths = self.rows.begin_step(inputs, scalars), self._lengths or (END, END)
        for (own, numbers), side, length in zip(new, self.rows.sides, lengths, strict=True):
            before = len(side)
            if len(own):
                side.build(_leave_after(own, length), numbers, len(self.rows.keys))
            lent.append(KeptSide(own, numbers, side, before))
        none, both = self._empty, (lent[0], lent[1])
        return SidesDelta(none.rows, none.at, none.until, none.weight, sides=both)

    def absorb(self, other: KeepingSides) -> None:
        """Take over the elements that only an operator of an equal node keeps: the older ones."""
        if other._lengths is not None:
            self.take_over(other.rows, other._lengths)

    def hand_over(self, lengths: tuple[int, ...]) -> RowsByKey:
        return self.rows

    def take_over(self, rows: RowsByKey, lengths: tuple[int, ...]) -> None:
        """Take over the rows of windows of these lengths: of each side, if they are the longer.

        Before anybody has said how long elements are kept, it keeps none.
        """
        before = self._lengths or (0, 0)
        for side in (0, 1):
            if lengths[side] > before[side]:
                self.rows.take_side(side, rows)
        self._keep(*map(max, before, lengths))

    def size(self) -> int:
        return self.rows.size()


def _leave_after(delta: Delta, length: int) -> Delta:
    """Have rows leave as long after their instants as a window is."""
    return replace(delta, until=np.minimum(delta.at + length, END))


class JoinNode(Protocol):
    """What a shared join asks of the join in whose place it is."""

    @property
    def keep(self) -> tuple[int, ...]: ...

    @property
    def predicates(self) -> tuple[str, ...]: ...

    @property
    def detail(self) -> str: ...


@dataclass(frozen=True, eq=False)
class SharedJoin(Stub):
    """A join of two windows over kept rows; their elements enter as they come (`find_length`)."""

    several = "joins"

    def operator(self) -> Operator:
        return SharedJoining(self)


class SharedJoining(StubOperator):
    """Runs `SharedJoin`: finds the pairs of the elements that come; keeps none."""

    def __init__(self, node: SharedJoin) -> None:
        super().__init__(node)
        join = cast(JoinNode, node.origin.node)
        left, right = (below.schema for below in node.input.inputs)
        self._pairs = PairFinder(left, right, join.predicates, join.keep, join.detail)

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        parts: list[Delta] = []
        if len(delta):
            assert isinstance(delta, SidesDelta)
            assert delta.sides is not None
            left, right = delta.sides
            # Pairs of two new elements are found once.
            parts += self._find_pairs(left, right, right.before, False, scalars)
            parts += self._find_pairs(right, left, len(left.held), True, scalars)
        return Delta.together(parts) if parts else Delta.empty(self._pairs.schema)

    def _find_pairs(
        self, own: KeptSide, other: KeptSide, before: int, held_is_left: bool, scalars: Scalars
    ) -> list[Delta]:
        """Find the partners of one side's new elements among those at places below `before`."""
        if not len(own.new) or not before:
            return []
        length, held_length = self.lengths[::-1] if held_is_left else self.lengths
        new = _leave_after(own.new, length)
        lengths = length, held_length
        found = other.held.probe_windows_in_parts(new, own.numbers, lengths, before, PAIRS_AT_ONCE)
        pairs = self._pairs.find_pairs
        return list(pairs(new, found, other.held, held_is_left, scalars, held_length))
