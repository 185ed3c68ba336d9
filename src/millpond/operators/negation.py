"""Negation by attributes: EXCEPT ALL … BY (Update patterns, 2.1, equation 1).

For each value of the attributes, with v1 rows in the left input and v2 in the right, the youngest
max(v1 − v2, 0) of the left rows are in the output. A row that comes on the left may be output at
once. A row that comes on the right takes back the oldest output row, by a negative tuple; when the
right row leaves, that left row returns.

Left rows are kept by value of the attributes, in the order of their age and then of their values,
so that the output rows are the end of a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.nested_values import needs_keys, rank
from millpond.model.patterns import RULES, Edge
from millpond.operators.protocol.cost_model import (
    REMOVED,
    STEPPED,
    EdgeEstimate,
    StreamStatistics,
    estimate_wakeups,
)
from millpond.operators.protocol.delta import Delta, Ints, positional_schema
from millpond.operators.protocol.node import Node, Operator, Scalars
from millpond.operators.protocol.sharding import Sharding, shard_equals
from millpond.operators.structures.aged_lists import AgedLists
from millpond.operators.structures.group_rows import group_rows
from millpond.operators.structures.key_numbers import KeyNumbers
from millpond.operators.structures.row_store import RowStore
from millpond.synopses.mapped_memory import grow_array


@dataclass(frozen=True, eq=False)
class Negation(Node):
    """The left rows, less the oldest of each value: as many as the right has rows of the value.

    Attributes:
        left: The rows; their last column, which is not in the output, is their age (int64, greater
            is younger).
        right: The rows that take left rows away.
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
        return positional_schema(self.left.schema.types[:-1])

    @property
    def detail(self) -> str:
        return f"by {self.text}"

    @property
    def edge(self) -> Edge:
        return RULES["negation"]([i.edge for i in self.inputs])

    @property
    def identity(self) -> tuple[Any, ...]:
        return tuple(zip(self.left_by, self.right_by, strict=True))

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        left = inputs[0]
        arrivals = sum(i.changes for i in inputs) / 4
        return EdgeEstimate(arrivals, arrivals, left.life / 2, left.columns[:-1])

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        changes = sum(i.changes for i in inputs)
        return REMOVED * changes + STEPPED * estimate_wakeups(changes, known)

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        left, right = inputs
        return shard_equals(left, right, list(zip(self.left_by, self.right_by, strict=True)))

    def operator(self) -> Operator:
        return Negating(self)


class Negating:
    """Runs `Negation`: keeps the left rows by value, in the order of their age."""

    def __init__(self, node: Negation) -> None:
        self._left_by, self._right_by = list(node.left_by), list(node.right_by)
        self._schema = node.schema
        kinds = [node.left.schema.field(p).type for p in node.left_by]
        self._attributes = KeyNumbers(kinds)
        #: The distinct left rows, and each row's age and rank among rows of that age.
        self._numbers = KeyNumbers(node.left.schema.types)
        self._rows = RowStore(node.left.schema)
        self._age: Ints = np.zeros(0, np.int64)
        self._ranks = _Ranks(self._left_by, [*kinds, pa.int64()])
        self._lists = AgedLists()

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
        rows = np.concatenate([self._number_rows(left), np.full(len(right), -1, np.int64)])
        at = np.concatenate([left.at, right.at])
        weight = np.concatenate([left.weight, right.weight])
        by_time = np.argsort(at, kind="stable")
        groups = group_rows(keys[by_time], len(self._attributes))
        changes = (at[by_time], weight[by_time], rows[by_time])
        ranks = (self._age, self._ranks.ties)
        found, instants, signs = self._lists.follow(groups, len(self._attributes), changes, ranks)
        in_time = np.argsort(instants, kind="stable")
        picked = self._rows.pick(found[in_time]).columns[:-1]
        given = pa.RecordBatch.from_arrays(picked, schema=self._schema)
        self._forget()
        return Delta.of(given, instants[in_time], None, signs[in_time])

    def _number_rows(self, left: Delta) -> Ints:
        """Number each row; note the age and rank of the rows not seen before."""
        numbers = self._numbers.number(left.rows.columns)
        known = len(self._rows)
        if len(self._numbers) > known:
            fresh = np.flatnonzero(numbers >= known)
            _, first = np.unique(numbers[fresh], return_index=True)
            self._rows.add(left.rows.take(pa.array(fresh[first])))
            self._rank(known)
        return numbers

    def _rank(self, known: int) -> None:
        """Note the ages of the rows from number `known` on, and rank them."""
        count = len(self._rows)
        new = self._rows.pick(np.arange(known, count))
        self._age = grow_array(self._age, count, 0)
        self._age[known:count] = new.columns[-1].to_numpy(zero_copy_only=False)
        self._ranks.add(new, self._rows)

    def _forget(self) -> None:
        """Drop the numbers of rows and values that are gone, when most are gone."""
        known = len(self._numbers)
        alive = self._lists.copies[:known] > 0
        living = int(alive.sum())
        if living and not self._numbers.is_worth_compacting(living):
            return
        used = self._lists.find_used(len(self._attributes))
        self._rows.keep(alive)
        self._lists.renumber(used, self._numbers.compact(alive))
        self._attributes.compact(used)
        self._age = self._age[:known][alive]
        self._ranks.restart()
        if living:
            self._ranks.add(self._rows.everything(), self._rows)

    def size(self) -> int:
        return self._lists.size()


class _Ranks:
    """Orders rows of one value of the attributes and one age by the values of their columns.

    Most rows have an age of their own. Rows that share an age are sorted whenever one more comes.

    Attributes:
        ties: By row, its rank among the rows that share its age.
    """

    def __init__(self, by: Sequence[int], kinds: Sequence[pa.DataType]) -> None:
        self._by, self._kinds = list(by), kinds
        self.restart()

    def restart(self) -> None:
        """Forget all rows."""
        self._moments = KeyNumbers(self._kinds)
        self._moment: Ints = np.zeros(0, np.int64)
        self._many: Ints = np.zeros(0, np.int64)
        self.ties: Ints = np.zeros(0, np.int64)

    def add(self, new: pa.RecordBatch, rows: RowStore) -> None:
        """Rank rows that were added after the others.

        Args:
            new: The added rows.
            rows: All rows, with the added rows at the end.
        """
        moments = self._moments.number([*(new.column(p) for p in self._by), new.columns[-1]])
        low, high = len(rows) - len(new), len(rows)
        self._moment = grow_array(self._moment, high, 0)
        self._moment[low:high] = moments
        self._many = grow_array(self._many, len(self._moments), 0)
        np.add.at(self._many, moments, 1)
        self.ties = grow_array(self.ties, high, 0)
        if (self._many[moments] == 1).all():
            return
        shared = np.zeros(len(self._many), bool)
        shared[moments] = self._many[moments] > 1
        places = np.flatnonzero(shared[self._moment[:high]])
        columns = [_make_sortable(c) for c in rows.pick(places).columns[:-1]]
        names = [f"c{i}" for i in range(len(columns))]
        table = pa.table([pa.array(self._moment[places]), *columns], names=["moment", *names])
        order = pc.sort_indices(table, sort_keys=[(n, "ascending") for n in table.column_names])
        self.ties[places[order.to_numpy()]] = np.arange(len(places))


def _make_sortable(column: pa.Array) -> pa.Array:
    """Make a column sort canonically: NaN after numbers, NULL last, nested values by rank."""
    return rank(column) if needs_keys(column.type) else column
