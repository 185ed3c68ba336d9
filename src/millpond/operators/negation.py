"""Negation by attributes: EXCEPT ALL … BY (Update patterns, 2.1, equation 1).

For each value of the attributes, with v1 rows in the left input and v2 in the right, the youngest
max(v1 − v2, 0) of the left's rows are given. An arrival on the left may be given at once; one on
the right takes back the oldest row given, by a negative tuple, and when it leaves again that row
returns.

The left's rows are kept by value of the attributes, in the order of their age and then of their
values, so that what is given is the end of a list.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.model.patterns import RULES, Edge
from millpond.operators.delta import Delta, positional
from millpond.operators.flow import REMOVED, STEPPED, Flow, Known
from millpond.operators.grouping import grouped
from millpond.operators.keys import Keys
from millpond.operators.node import Node, Operator, Scalars
from millpond.operators.row_store import RowStore


@dataclass(frozen=True, eq=False)
class Negation(Node):
    """The left's rows without as many of each value's oldest as the right has.

    Attributes:
        left: The rows; their last column, which is not given, is their age (int64, greater is
            younger).
        right: What takes away.
        left_by, right_by: Places of the attributes.
        text: The attributes, for EXPLAIN.
    """

    left: Node
    right: Node
    left_by: tuple[int, ...]
    right_by: tuple[int, ...]
    text: str = ""

    takes_expirations = False
    name = "negation"
    state = "rows by attributes and age, and how many of the right"
    announces = True

    @property
    def schema(self) -> pa.Schema:
        return positional(self.left.schema.types[:-1])

    @property
    def detail(self) -> str:
        return f"by {self.text}"

    @property
    def edge(self) -> Edge:
        return RULES["negation"]([i.edge for i in self.inputs])

    @property
    def identity(self) -> tuple[Any, ...]:
        return tuple(zip(self.left_by, self.right_by, strict=True))

    def estimated(self, inputs: Sequence[Flow], known: Known) -> Flow:
        left = inputs[0]
        arrivals = sum(i.changes for i in inputs) / 4
        return Flow(arrivals, arrivals, left.life / 2, left.columns[:-1])

    def work(self, inputs: Sequence[Flow], own: Flow, known: Known) -> float:
        return REMOVED * sum(i.changes for i in inputs) + STEPPED * known.steps

    def operator(self) -> Operator:
        return Negating(self)


#: A row of the left as it is ordered: its age, its values, its number.
_Place = tuple[int, tuple[Any, ...], int]


@dataclass
class _Value:
    """What is kept of one value of the attributes: the left's rows, oldest first, and v2."""

    rows: list[_Place] = field(default_factory=list)
    fewer: int = 0

    def given(self) -> list[_Place]:
        return self.rows[max(self.fewer, 0) :]


class Negating:
    """`Negation` at work."""

    def __init__(self, node: Negation) -> None:
        self._left_by, self._right_by = list(node.left_by), list(node.right_by)
        self._schema = node.schema
        self._attributes = Keys([node.left.schema.field(p).type for p in node.left_by])
        self._numbers = Keys(node.left.schema.types)
        self._rows = RowStore(node.left.schema)
        self._order: list[tuple[int, tuple[Any, ...]]] = []
        self._values: dict[int, _Value] = {}

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        left, right = inputs
        if not len(left) and not len(right):
            return Delta.empty(self._schema)
        keys = np.concatenate(
            [
                self._attributes.number([left.rows.column(p) for p in self._left_by]),
                self._attributes.number([right.rows.column(p) for p in self._right_by]),
            ]
        )
        numbers = self._numbered(left)
        at = np.concatenate([left.at, right.at])
        weight = np.concatenate([left.weight, right.weight])
        by_time = np.argsort(at, kind="stable")
        order, starts, which = grouped(keys[by_time], len(self._attributes))
        out: list[tuple[int, int, int]] = []
        for group, key in enumerate(which.tolist()):
            places = by_time[order[starts[group] : starts[group + 1]]]
            value = self._values.setdefault(key, _Value())
            self._follow(value, places.tolist(), at, weight, numbers, out)
            if not value.rows and not value.fewer:
                del self._values[key]
        instants, rows, signs = (
            np.array(c, np.int64) for c in (zip(*out, strict=True) if out else ([], [], []))
        )
        in_time = np.argsort(instants, kind="stable")
        picked = self._rows.pick(rows[in_time]).columns[:-1]
        found = pa.RecordBatch.from_arrays(picked, schema=self._schema)
        self._forget()
        return Delta.of(found, instants[in_time], None, signs[in_time])

    def _follow(
        self,
        value: _Value,
        places: list[int],
        at: np.ndarray,
        weight: np.ndarray,
        numbers: list[int],
        out: list[tuple[int, int, int]],
    ) -> None:
        """Runs one value of the attributes through its changes, instant by instant."""
        i = 0
        while i < len(places):
            now = int(at[places[i]])
            before = value.given()
            changes: Counter[int] = Counter()
            while i < len(places) and at[places[i]] == now:
                place, many = places[i], int(weight[places[i]])
                if place >= len(numbers):
                    value.fewer += many
                else:
                    changes[numbers[place]] += many
                i += 1
            # What comes first: a row may come and go at one instant.
            for number, many in sorted(changes.items(), key=lambda change: -change[1]):
                self._put(value, number, many)
            moved = Counter(p[2] for p in value.given())
            moved.subtract(p[2] for p in before)
            out += [(now, number, count) for number, count in moved.items() if count]

    def _put(self, value: _Value, number: int, many: int) -> None:
        """Adds or takes away copies of a row."""
        place: _Place = (*self._order[number], number)
        for _ in range(many):
            insort(value.rows, place)
        for _ in range(-many):
            del value.rows[bisect_left(value.rows, place)]

    def _numbered(self, left: Delta) -> list[int]:
        numbers = self._numbers.number(left.rows.columns)
        known = len(self._rows)
        if len(self._numbers) > known:
            fresh = np.flatnonzero(numbers >= known)
            _, first = np.unique(numbers[fresh], return_index=True)
            new = left.rows.take(pa.array(fresh[first]))
            self._rows.add(new)
            columns = [column.to_pylist() for column in new.columns]
            self._order += [
                (age, tuple(map(_ordered, row))) for *row, age in zip(*columns, strict=True)
            ]
        return numbers.tolist()

    def _forget(self) -> None:
        """Drops the numbers of rows and values that are not there any more, when most are not."""
        living = len({p[2] for value in self._values.values() for p in value.rows})
        if living and not self._numbers.is_worth_compacting(living):
            return
        alive = np.zeros(len(self._numbers), bool)
        alive[[p[2] for value in self._values.values() for p in value.rows]] = True
        moved = self._numbers.compact(alive)
        self._rows.keep(alive)
        self._order = [place for place, stays in zip(self._order, alive, strict=True) if stays]
        used = np.zeros(len(self._attributes), bool)
        used[list(self._values)] = True
        renumbered = self._attributes.compact(used)
        self._values = {
            int(renumbered[key]): _Value(
                [(age, row, int(moved[number])) for age, row, number in value.rows], value.fewer
            )
            for key, value in self._values.items()
        }

    def size(self) -> int:
        return sum(len(value.rows) + (value.fewer != 0) for value in self._values.values())


def _ordered(value: Any) -> tuple[int, Any]:
    """A value in canonical order: numbers before NaN, NULL last."""
    if value is None:
        return (2, 0)
    if isinstance(value, float):
        return (1, 0) if value != value else (0, value)
    if isinstance(value, str):
        return (0, value.encode())
    return (0, repr(value) if isinstance(value, list | dict) else value)
