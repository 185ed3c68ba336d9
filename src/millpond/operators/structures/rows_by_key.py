"""What a join keeps: the rows of both inputs by key, less what constraints release of them.

A join of its own keeps them (`operators/join.py`), or a store for joins that run together
(`operators/shared_join.py`). As queries come and go, one takes them over from the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millpond.operators.protocol.delta import Delta, Ints
from millpond.operators.protocol.node import Node, Scalars
from millpond.operators.protocol.purging import Purging
from millpond.operators.protocol.releasing import ReleaseFigures, ReleaseRule
from millpond.operators.structures.join_side import Side, compact_both
from millpond.operators.structures.key_numbers import KeyNumbers
from millpond.operators.structures.pairs import number_rows
from millpond.operators.structures.releases import Releases


class RowsByKey:
    """The rows of two inputs, by the keys that a join compares.

    Args:
        nodes: The nodes of the left and the right input.
        places: For each side, the places of the columns that must be equal.
        nulls_match: Whether NULL keys are equal to each other.

    Attributes:
        keys: The numbering of the keys.
        sides: The rows of the left and the right input.
    """

    def __init__(
        self, nodes: tuple[Node, Node], places: tuple[tuple[int, ...], ...], nulls_match: bool
    ) -> None:
        self._nodes, self._places, self._nulls_match = nodes, places, nulls_match
        self.keys = KeyNumbers([nodes[0].schema.field(p).type for p in places[0]])
        self.sides = Side(nodes[0].schema), Side(nodes[1].schema)
        #: What constraints release; None as long as no constraint ever held.
        self._releases: Releases | None = None
        #: How long after its instant a row leaves, of each side; None: when it says itself.
        self._lengths: tuple[int, int] | None = None

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
        return [] if self._releases is None else self._releases.list_figures(self.sides)

    def begin_step(self, inputs: Sequence[Delta], scalars: Scalars) -> list[tuple[Delta, Ints]]:
        """Choose the rows of a step that can have partners, and read back what these may need.

        Returns:
            For each side, the rows and the numbers of their keys.
        """
        (left, left_numbers), (right, right_numbers) = (
            number_rows(delta, places, self.keys, self._nulls_match)
            for delta, places in zip(inputs, self._places, strict=True)
        )
        if self._releases is not None:
            new, numbers = (left, right), (left_numbers, right_numbers)
            self._releases.begin_step(new, numbers, self.sides, self.keys, scalars)
        return [(left, left_numbers), (right, right_numbers)]

    def compact(self, upto: int, purging: Purging) -> None:
        """Drop what has expired up to an instant where that is worth its cost."""
        keys = self.keys if self._places[0] else None
        sides, releases = self.sides, self._releases
        if releases is None:
            compact_both(*sides, keys, upto, purging)
            return
        moved = compact_both(
            *sides, keys, upto, purging, lambda due: releases.release(sides, upto, due)
        )
        if moved is not None:
            releases.renumber(*moved)

    def set_lengths(self, lengths: tuple[int, int]) -> None:
        """Have the rows of each side leave so long after their instants."""
        if lengths == self._lengths:
            return
        self._lengths = lengths
        for side, length in zip(self.sides, lengths, strict=True):
            side.set_length(length)
        if self._releases is not None:
            self._releases.set_lengths(lengths)

    def set_nodes(self, nodes: tuple[Node, Node]) -> None:
        """Have other inputs from now on, whose rows say themselves when they leave."""
        self._nodes, self._lengths = nodes, None
        if self._releases is not None:
            self._releases.set_nodes(nodes)
            self._releases.set_lengths(None)

    def take_side(self, side: int, other: RowsByKey) -> None:
        """Take over the rows of one side of others of the same two streams, and what it released.

        They are not used any more.
        """
        sides = list(self.sides)
        sides[side] = other.sides[side]
        self.sides = sides[0], sides[1]
        self._number_anew(sides[side], self._places[side])
        if other._releases is not None:
            self._begin_releasing().take_side(side, other._releases)
        elif self._releases is not None:
            self._releases.forget_side(side)

    def _number_anew(self, side: Side, places: Sequence[int]) -> None:
        """Give the keys of rows that were others' their numbers here."""
        before = side.numbers()
        moved = np.zeros(int(before.max()) + 1 if len(before) else 0, np.int64)
        for start, rows in side.rows.list_batches() if places else ():
            numbers = self.keys.number([rows.column(place) for place in places])
            moved[before[start : start + rows.num_rows]] = numbers
        if not places:
            self.keys.number_empty_rows()
        side.renumber(moved, len(self.keys))

    def size(self) -> int:
        return sum(map(len, self.sides))
