"""What a join releases because constraints say that nobody should need it (STREAM, CIDR 4.1).

A released row leaves memory and not the store. A filter of fixed size remembers which keys were
released. When a row comes on the other side whose key may be among them, the key's rows are
recalled: read back from the stream's segments. So constraints are trusted for cost and never for
meaning:

INV-RELEASE-1: when a key is looked up on a side, all rows of the key that are alive are in memory.
    So the output does not depend on what was released.

A join that had to read back many more rows than it was given stops releasing until more came. So a
constraint that is always broken costs a constant factor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from millpond.model.time import END
from millpond.operators.protocol.delta import Bools, Delta, Ints
from millpond.operators.protocol.node import Node, Scalars
from millpond.operators.protocol.releasing import ReleaseFigures, ReleaseRule
from millpond.operators.structures.adherence import Adherence, SideRows, watch
from millpond.operators.structures.join_side import Side
from millpond.operators.structures.key_hashes import find_words, hash_keys
from millpond.operators.structures.key_numbers import KeyNumbers
from millpond.operators.structures.release_rules import is_ordered_number
from millpond.synopses.key_filter import KeyFilter
from millpond.synopses.mapped_memory import grow_array

#: A side of fewer rows is not looked through for rows to release.
_LEAST_ROWS = 64
#: Rows that may be read back for each row that came; and before any came.
_READ_EACH, _READ_FIRST = 4, 10_000
#: Into how many stretches of time released rows are counted.
_STRETCHES = 256


class Releases:
    """What a join releases and recalls, of both of its sides.

    Args:
        nodes: The nodes of the left and the right input.
        places: For each side, the places of the columns that must be equal.
        lengths: For each side, how long after its instant a row leaves; None: when the node says.
    """

    def __init__(
        self,
        nodes: tuple[Node, Node],
        places: tuple[Sequence[int], ...],
        lengths: tuple[int, int] | None = None,
    ) -> None:
        self._sides = [_Released(node, tuple(p)) for node, p in zip(nodes, places, strict=True)]
        self._lengths = lengths
        self._places = places
        self._watched: dict[ReleaseRule, Adherence] = {}
        self._counts = [0, 0]
        self._read = 0
        #: The last instant of the last step.
        self._upto: int | None = None

    def set_rules(self, rules: Sequence[ReleaseRule]) -> None:
        """Release by these rules from now on. What was released is still recalled."""
        self._watched = {r: self._watched.get(r) or watch(r) for r in rules}

    def set_lengths(self, lengths: tuple[int, int] | None) -> None:
        """Have rows leave so long after their instants from now on."""
        self._lengths = lengths

    def set_nodes(self, nodes: tuple[Node, Node]) -> None:
        """Read back rows from these inputs from now on."""
        for released, node in zip(self._sides, nodes, strict=True):
            released.node = node

    def take_side(self, side: int, other: Releases) -> None:
        """Take over what another join released of the rows of a side, which it kept for longer."""
        node, self._sides[side] = self._sides[side].node, other._sides[side]
        self._sides[side].node = node
        self._sides[side].look_again()
        if self._upto is None:
            self._upto = other._upto

    def forget_side(self, side: int) -> None:
        """Forget what was released of a side: all of its rows are in memory."""
        before = self._sides[side]
        self._sides[side] = _Released(before.node, before.places)

    def begin_step(
        self,
        deltas: tuple[Delta, Delta],
        numbers: tuple[Ints, Ints],
        sides: tuple[Side, Side],
        keys: KeyNumbers,
        scalars: Scalars,
    ) -> None:
        """Recall what a step's rows may need, and watch how they adhere to the constraints.

        Args:
            deltas: The rows of both inputs.
            numbers: The numbers of their keys.
            sides: The rows that are held.
            keys: The numbering of the keys.
            scalars: Reads back rows.
        """
        for side in (0, 1):
            missing = self._sides[side].find_missing(
                self._take_keys(deltas[1 - side], 1 - side), numbers[1 - side], len(keys)
            )
            if len(missing):
                self._recall(side, missing, sides[side], keys, scalars)
        rows = [
            SideRows(
                numbers[side],
                deltas[side].at,
                tuple(
                    find_words(c) if is_ordered_number(c.type) else None
                    for c in self._take_keys(deltas[side], side)
                ),
                self._counts[side],
                sides[side],
            )
            for side in (0, 1)
        ]
        for adherence in self._watched.values():
            adherence.note((rows[0], rows[1]), len(keys))
        for side in (0, 1):
            self._counts[side] += len(numbers[side])

    def release(self, sides: tuple[Side, Side], upto: int, due: bool) -> bool:
        """Release what nobody should need after a step; return whether rows were released.

        Args:
            sides: The rows that are held.
            upto: The last instant of the step.
            due: Whether to look however few rows are held.
        """
        self._upto = upto
        found = False
        for side, released in enumerate(self._sides):
            released.forget(upto)
            watched = [
                (r, a)
                for r, a in self._watched.items()
                if r.side == side and is_used(r, a.violations + released.recalled)
            ]
            if (
                not watched
                or self._read > may_read(sum(self._counts))
                or not released.is_worth_a_look(sides[side], due)
            ):
                continue
            held, other = sides[side], sides[1 - side]
            over = np.zeros(len(held), bool)
            for rule, adherence in watched:
                place = self._places[side][rule.place]
                words = find_words(held.rows.everything().column(place)) if len(held) else None
                over |= adherence.find_over(held, other, words, upto)
            found |= released.release(held, over & (held.until[: len(held)] > upto))
        return found

    def renumber(self, moved: Ints, most: int) -> None:
        """Take over new numbers of the keys: `moved[number]`, -1 for a key without rows."""
        for adherence in self._watched.values():
            adherence.renumber(moved, most)
        for released in self._sides:
            released.renumber(moved, most)

    def list_figures(self, sides: tuple[Side, Side]) -> list[ReleaseFigures]:
        """List what each rule did."""
        return [
            ReleaseFigures(
                rule,
                adherence.observed,
                adherence.violations,
                len(sides[rule.side]),
                self._sides[rule.side].gone,
                self._sides[rule.side].recalled,
            )
            for rule, adherence in self._watched.items()
        ]

    def _take_keys(self, delta: Delta, side: int) -> list[pa.Array]:
        return [delta.rows.column(place) for place in self._places[side]]

    def _recall(
        self, side: int, missing: Ints, held: Side, keys: KeyNumbers, scalars: Scalars
    ) -> None:
        """Read back all rows of some keys; they replace what is held of these keys."""
        released, upto = self._sides[side], self._upto
        assert upto is not None
        wanted = np.zeros(len(keys), bool)
        wanted[missing] = True
        if len(held):
            held.keep(~wanted[held.numbers()])
        for delta in scalars.recall(released.node):
            self._read += len(delta)
            if self._lengths is not None:
                ends = np.minimum(delta.at + self._lengths[side], END)
                delta = replace(delta, until=ends)
            delta = delta.where(delta.until > upto)
            if not len(delta):
                continue
            numbers = keys.find(self._take_keys(delta, side))
            chosen = (numbers >= 0) & wanted[numbers]
            if chosen.any():
                held.build(delta.where(chosen), numbers[chosen], len(keys))
                released.note_recalled(int(chosen.sum()))


def may_read(came: int) -> int:
    """How many rows may be read back if so many came."""
    return _READ_FIRST + _READ_EACH * came


def is_used(rule: ReleaseRule, broken: int) -> bool:
    """Whether rows are released by a rule: what was only observed counts until it is broken."""
    return not (rule.constraint.observed and broken)


class _Released:
    """What was released of one side."""

    def __init__(self, node: Node, places: tuple[int, ...]) -> None:
        self.node = node
        self.places = places
        self._filter = KeyFilter()
        #: By key: 1 if all its rows are in memory, 0 if that has to be found out.
        self._whole = np.empty(0, np.int64)
        #: Released rows that are alive: until when at most, and how many.
        self._gone: deque[tuple[int, int]] = deque()
        self.recalled = 0
        self._look_at = _LEAST_ROWS

    @property
    def gone(self) -> int:
        """How many released rows may be alive."""
        return sum(count for _, count in self._gone)

    def find_missing(self, columns: Sequence[pa.Array], numbers: Ints, keys: int) -> Ints:
        """Find the keys, by number, of which rows may have been released.

        Args:
            columns: The keys of rows that look up this side.
            numbers: The numbers of these keys.
            keys: How many keys there are.
        """
        if not len(self._filter) or not len(numbers):
            return np.empty(0, np.int64)
        self._whole = grow_array(self._whole, keys, 0)
        distinct, first = np.unique(numbers, return_index=True)
        first = first[self._whole[distinct] == 0]
        taken = pa.array(first)
        missing = self._filter.find(hash_keys([c.take(taken) for c in columns]))
        self._whole[numbers[first]] = 1
        return np.asarray(numbers[first][missing])

    def is_worth_a_look(self, held: Side, due: bool) -> bool:
        """Whether enough rows came since the last look; each row is looked at a few times."""
        return due or len(held) >= self._look_at

    def release(self, held: Side, over: Bools) -> bool:
        """Release rows, as long as their keys fit into the filter; return whether any were."""
        places = np.flatnonzero(over)
        numbers = held.numbers()[places]
        distinct, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
        if len(distinct) and len(distinct) <= self._filter.room:
            until = np.zeros(len(distinct), np.int64)
            np.maximum.at(until, inverse, held.until[places])
            rows = held.rows.pick(places[first])
            self._filter.put(hash_keys([rows.column(p) for p in self.places]), until)
            self._whole = grow_array(self._whole, int(distinct.max()) + 1, 0)
            self._whole[distinct] = 0
            self._gone.append((int(until.max()), len(places)))
            if len(self._gone) > _STRETCHES:
                (until_1, rows_1), (until_2, rows_2) = self._gone.popleft(), self._gone.popleft()
                self._gone.appendleft((max(until_1, until_2), rows_1 + rows_2))
            held.keep(~over)
        self._look_at = max(_LEAST_ROWS, 2 * len(held))
        return bool(len(distinct))

    def look_again(self) -> None:
        """Find out anew of every key whether all its rows are in memory: it has another number."""
        self._whole = np.empty(0, np.int64)

    def note_recalled(self, count: int) -> None:
        """Count rows that were read back; they are not gone any more."""
        self.recalled += count
        while count and self._gone:
            until, rows = self._gone.pop()
            if rows > count:
                self._gone.append((until, rows - count))
            count = max(0, count - rows)

    def forget(self, upto: int) -> None:
        """Forget what was released and has expired."""
        self._filter.forget(upto)
        while self._gone and self._gone[0][0] <= upto:
            self._gone.popleft()

    def renumber(self, moved: Ints, most: int) -> None:
        """Take over new numbers of the keys."""
        self._whole = grow_array(self._whole, len(moved), 0)
        stays = moved >= 0
        fresh = np.zeros(max(most, 64), np.int64)
        fresh[moved[stays]] = self._whole[: len(moved)][stays]
        self._whole = fresh
