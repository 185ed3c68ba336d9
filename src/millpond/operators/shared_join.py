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

INV-SIDES-1: of each side every element is kept that is in one of its readers' windows, or was
released because of constraints (`structures/releases.py`). A store of a dataflow that is taken over
has the elements that the windows of its own readers hold (`absorb`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa

from millpond.model.patterns import RULES, Edge
from millpond.model.time import BEGINNING, END
from millpond.model.windows import Now, Range, Unbounded, Window, interval
from millpond.operators.protocol.cost_model import (
    BUILT,
    STEPPED,
    EdgeEstimate,
    StreamStatistics,
    estimate_wakeups,
)
from millpond.operators.protocol.delta import Delta, Ints, positional_schema
from millpond.operators.protocol.node import Node, Operator, Scalars, Unary
from millpond.operators.protocol.precision import Precision, join_rows
from millpond.operators.protocol.purging import Purging
from millpond.operators.protocol.releasing import Constraints, ReleaseFigures, ReleaseRule
from millpond.operators.protocol.sharding import Sharding, shard_pairs
from millpond.operators.structures.join_side import PAIRS_AT_ONCE, Side, compact_both
from millpond.operators.structures.key_numbers import KeyNumbers
from millpond.operators.structures.pairs import PairFinder, number_rows
from millpond.operators.structures.release_rules import find_rules
from millpond.operators.structures.releases import Releases


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


@dataclass(frozen=True)
class SidesEstimate(EdgeEstimate):
    """What is estimated of the elements of both sides."""

    sides: tuple[EdgeEstimate, EdgeEstimate]


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
    state = "rows by key, both sides, for the longest windows"
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

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        left, right = inputs
        arrivals = left.arrivals + right.arrivals
        columns = (*left.columns, *right.columns)
        return SidesEstimate(arrivals, 0.0, left.life, columns, (left, right))

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        return BUILT * own.changes + STEPPED * estimate_wakeups(own.changes, known)

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        return join_rows(inputs[0], inputs[1])

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        left, right = inputs
        pairs = list(zip(self.left_keys, self.right_keys, strict=True))
        return shard_pairs(left, right, pairs, len(self.left.schema))

    def find_release_rules(self, constraints: Constraints) -> tuple[ReleaseRule, ...]:
        if self.nulls_match:
            return ()
        return find_rules((self.left, self.right), (self.left_keys, self.right_keys), constraints)

    def operator(self) -> Operator:
        return KeepingSides(self)


class KeepingSides:
    """Runs `KeptSides`.

    What it lends is read before it runs again, so rows leave it when the next step begins.
    """

    def __init__(self, node: KeptSides) -> None:
        self.purging = Purging()
        self._nodes = node.left, node.right
        self._places = node.left_keys, node.right_keys
        self._nulls_match = node.nulls_match
        self._empty = Delta.empty(node.schema)
        self._keys = KeyNumbers([node.left.schema.field(p).type for p in node.left_keys])
        self._sides = [Side(below.schema) for below in self._nodes]
        #: How long an element is kept, of each side: for ever, as long as nobody has said.
        self._lengths = (int(END), int(END))
        #: What constraints release; None as long as no constraint ever held.
        self._releases: Releases | None = None
        self._upto = BEGINNING - 1

    def set_release_rules(self, rules: Sequence[ReleaseRule]) -> None:
        if rules:
            self._begin_releasing()
        if self._releases is not None:
            self._releases.set_rules(rules)

    def _begin_releasing(self) -> Releases:
        if self._releases is None:
            self._releases = Releases(self._nodes, self._places, self._lengths)
        return self._releases

    def list_release_figures(self) -> list[ReleaseFigures]:
        if self._releases is None:
            return []
        return self._releases.list_figures(self._both)

    @property
    def _both(self) -> tuple[Side, Side]:
        return self._sides[0], self._sides[1]

    def serve(self, needed: Set[int], readers: Sequence[Node]) -> None:
        """Keep from now on what the windows of these readers hold."""
        found = [reader.lengths for reader in readers if isinstance(reader, SharedJoin)]
        if found:
            self._keep(max(left for left, _ in found), max(right for _, right in found))

    def _keep(self, *lengths: int) -> None:
        if lengths == self._lengths:
            return
        self._lengths = lengths[0], lengths[1]
        for side, length in zip(self._sides, lengths, strict=True):
            side.set_length(length)
        if self._releases is not None:
            self._releases.set_lengths(self._lengths)

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        is_empty = not any(map(len, inputs))
        self._compact(upto if is_empty else self._upto)
        self._upto = upto
        if is_empty:
            return self._empty
        (left, left_numbers), (right, right_numbers) = (
            number_rows(delta, places, self._keys, self._nulls_match)
            for delta, places in zip(inputs, self._places, strict=True)
        )
        new, numbers = (left, right), (left_numbers, right_numbers)
        if self._releases is not None:
            self._releases.begin_step(new, numbers, self._both, self._keys, scalars)
        lent = []
        for own, number, side, length in zip(new, numbers, self._sides, self._lengths, strict=True):
            before = len(side)
            if len(own):
                side.build(_leave_after(own, length), number, len(self._keys))
            lent.append(KeptSide(own, number, side, before))
        none = self._empty
        both = lent[0], lent[1]
        return SidesDelta(none.rows, none.at, none.until, none.weight, sides=both)

    def _compact(self, upto: int) -> None:
        keys = self._keys if self._places[0] else None
        sides, releases = self._both, self._releases
        if releases is None:
            compact_both(*sides, keys, upto, self.purging)
            return
        moved = compact_both(
            *sides, keys, upto, self.purging, lambda due: releases.release(sides, upto, due)
        )
        if moved is not None:
            releases.renumber(*moved)

    def absorb(self, other: KeepingSides) -> None:
        """Take over the elements that only an operator of an equal node keeps: the older ones.

        Of each side all is taken from the operator that keeps elements longer: what it released,
        too.
        """
        lengths = list(self._lengths)
        for number, own in enumerate(other._lengths):
            if own <= lengths[number]:
                continue
            lengths[number] = own
            side = self._sides[number] = other._sides[number]
            self._number_anew(side, self._places[number])
            if other._releases is not None:
                self._begin_releasing().take_side(number, other._releases)
            elif self._releases is not None:
                self._releases.forget_side(number)
        self._lengths = lengths[0], lengths[1]
        if self._releases is not None:
            self._releases.set_lengths(self._lengths)

    def _number_anew(self, side: Side, places: Sequence[int]) -> None:
        """Give the keys of another operator's rows their numbers here."""
        before = side.numbers()
        moved = np.zeros(int(before.max()) + 1 if len(before) else 0, np.int64)
        for start, rows in side.rows.list_batches() if places else ():
            numbers = self._keys.number([rows.column(place) for place in places])
            moved[before[start : start + rows.num_rows]] = numbers
        if not places:
            self._keys.number_empty_rows()
        side.renumber(moved, len(self._keys))

    def size(self) -> int:
        return sum(map(len, self._sides))


def _leave_after(delta: Delta, length: int) -> Delta:
    """Have rows leave as long after their instants as a window is."""
    return replace(delta, until=np.minimum(delta.at + length, END))


class JoinNode(Protocol):
    """What a shared join asks of the join in whose place it is."""

    keep: tuple[int, ...]
    predicates: tuple[str, ...]
    text: str

    @property
    def inputs(self) -> tuple[Node, ...]: ...

    @property
    def edge(self) -> Edge: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def identity(self) -> tuple[Any, ...]: ...

    @property
    def carries_expirations(self) -> bool: ...

    @property
    def logical_key(self) -> str: ...

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate: ...

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float: ...


@dataclass(frozen=True)
class Origin:
    """The join in whose place a shared join is; it is not an input of it."""

    join: JoinNode


@dataclass(frozen=True, eq=False)
class SharedJoin(Unary):
    """A join of two windows over kept rows.

    Attributes:
        input: The rows, `KeptSides`.
        windows: The windows over the left and the right elements; their elements enter as they
            come (`find_length`).
        origin: The join that the query has without sharing.
        text: The condition and the windows, for EXPLAIN.
    """

    windows: tuple[Window, Window]
    origin: Origin
    text: str = ""

    name = "join"

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
        return (repr(self.windows), self.origin.join.identity)

    @property
    def logical_key(self) -> str:  # type: ignore[override]
        # It is the same operator in another form: what was chosen of one holds for the other.
        return self.origin.join.logical_key

    def list_reached(self, at: int) -> list[tuple[Node, int | None]]:
        lows = (interval(window, at)[0] for window in self.windows)
        return list(zip(self.input.inputs, lows, strict=True))

    def _estimate_windows(self, inputs: Sequence[EdgeEstimate]) -> list[EdgeEstimate]:
        (given,) = inputs
        sides = cast(SidesEstimate, given).sides
        lives = (float("inf") if one >= END else one / 1e6 for one in self.lengths)
        return [
            replace(side, life=min(side.life, life))
            for side, life in zip(sides, lives, strict=True)
        ]

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        return self.origin.join.estimate(self._estimate_windows(inputs), known)

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        sides = self._estimate_windows(inputs)
        changes = sum(side.changes for side in sides)
        kept = BUILT * changes + STEPPED * estimate_wakeups(changes, known)
        return self.origin.join.estimate_work(sides, own, known) - kept

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        return inputs[0]

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        known = inputs[0] or {}
        keep = self.origin.join.keep
        return {n: known[place] for n, place in enumerate(keep) if place in known}

    def operator(self) -> Operator:
        return SharedJoining(self)


class SharedJoining:
    """Runs `SharedJoin`: finds the pairs of the elements that come; keeps none."""

    def __init__(self, node: SharedJoin) -> None:
        self._lengths = node.lengths
        kept, join = node.input, node.origin.join
        left, right = (below.schema for below in kept.inputs)
        self._pairs = PairFinder(left, right, join.predicates, join.keep, join.text)

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
        length, held_length = self._lengths[::-1] if held_is_left else self._lengths
        new = _leave_after(own.new, length)
        lengths = length, held_length
        found = other.held.probe_windows_in_parts(new, own.numbers, lengths, before, PAIRS_AT_ONCE)
        pairs = self._pairs.find_pairs
        return list(pairs(new, found, other.held, held_is_left, scalars, held_length))

    def size(self) -> int:
        return 0
