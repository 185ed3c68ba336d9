"""Joins over one synopsis: rows are kept by key once, whatever windows join them (Bulletin 2.2).

As in `windows/shared_window.py` there is a store with a stub for each reader. `KeptSides` is the
store: the elements of two streams by the keys that are compared, each as long as the longest of the
windows over its stream may hold it. A `SharedJoin` is a stub, a join of two windows over them. It
keeps no row. In each step it is told which elements came, and looks for their partners in the
store. Two elements with the timestamps s and t are a pair of windows of the lengths m and n

    from max(s, t) until min(s + m, t + n), if that is not empty.

The elements of a key are looked at from the last to the first, so a short window does not look at
what only a longer one holds. Nor does it lay out a pair that it does not give: a query that joins
too many rows fails alone.

A join that runs alone is an ordinary one. What it keeps goes to the store when others come, and
back when they have gone (`engine/dataflow/arrangement.py`).

INV-SIDES-1: of each side every element is kept that is in one of its readers' windows, or was
released because of constraints (`structures/releases.py`). Rows that are taken over are those that
the windows hold for which they were kept (`take_over`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from millpond.model.patterns import RULES, Edge
from millpond.model.time import BEGINNING, END
from millpond.model.windows import Now, Range, Unbounded, Window
from millpond.operators.protocol.delta import Delta, Ints, positional_schema
from millpond.operators.protocol.node import Node, Operator, Scalars, Unary
from millpond.operators.protocol.purging import Purging
from millpond.operators.protocol.releasing import Constraints, ReleaseFigures, ReleaseRule
from millpond.operators.structures.join_side import PAIRS_AT_ONCE, Side
from millpond.operators.structures.pairs import PairFinder
from millpond.operators.structures.release_rules import find_rules
from millpond.operators.structures.rows_by_key import RowsByKey


def find_length(window: Window) -> int | None:
    """How long an element is in a window that it enters as it comes; None: it is another window.

    >>> find_length(Range(10)), find_length(Now()), find_length(Range(10, slide=60))
    (10, 1, None)
    """
    match window:
        case Range(size, None):
            return min(size, END)
        case Now():
            return 1
        case Unbounded():
            return END
    return None


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
            self._keep(max(left for left, _ in found), max(right for _, right in found))

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

    def take_over(self, rows: RowsByKey, lengths: tuple[int, int]) -> None:
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
    def key(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def detail(self) -> str: ...

    @property
    def edge(self) -> Edge: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def carries_expirations(self) -> bool: ...


@dataclass(frozen=True)
class Origin:
    """The join in whose place a shared join is; it is not an input of it."""

    join: JoinNode


@dataclass(frozen=True, eq=False)
class SharedJoin(Unary):
    """A join of two windows over kept rows.

    It stands in a dataflow for a join of a plan, under the same key; plans do not have it.

    Attributes:
        input: The rows, `KeptSides`.
        windows: The windows over the left and the right elements; their elements enter as they
            come (`find_length`).
        origin: The join of the plan.
    """

    windows: tuple[Window, Window]
    origin: Origin

    @property
    def key(self) -> str:
        return self.origin.join.key

    @property
    def name(self) -> str:
        return self.origin.join.name

    @property
    def lengths(self) -> tuple[int, int]:
        """How long elements are in its windows."""
        left, right = map(find_length, self.windows)
        return left or 0, right or 0

    @property
    def schema(self) -> pa.Schema:
        return self.origin.join.schema

    @property
    def edge(self) -> Edge:
        return self.origin.join.edge

    @property
    def carries_expirations(self) -> bool:
        return self.origin.join.carries_expirations

    @property
    def timed_inputs(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def identity(self) -> tuple[Any, ...]:
        return (repr(self.windows),)

    def operator(self) -> Operator:
        return SharedJoining(self)


class SharedJoining:
    """Runs `SharedJoin`: finds the pairs of the elements that come; keeps none.

    Attributes:
        store: The key of the node whose operator keeps the elements.
        lengths: How long they are in its windows.
    """

    def __init__(self, node: SharedJoin) -> None:
        kept, join = node.input, node.origin.join
        self.store, self.lengths = kept.key, node.lengths
        left, right = (below.schema for below in kept.inputs)
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

    def size(self) -> int:
        return 0
