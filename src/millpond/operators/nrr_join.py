"""Join with a non-retroactive relation: a row is joined with the relation's rows as it comes.

Update patterns, 4.1: later updates of the relation do not affect rows that exist. So the join need
not keep its input's rows, and it leaves the update pattern of its input as it is. The input's rows
must come at the timestamp of their youngest element and must never be taken back; a negative tuple
would have to find the relation's rows that its row was joined with (5.4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.model.patterns import Edge
from millpond.operators.protocol.cost_model import EdgeEstimate, StreamStatistics
from millpond.operators.protocol.delta import Delta, Ints, positional_schema
from millpond.operators.protocol.node import Node, Operator, Scalars
from millpond.operators.protocol.precision import Precision
from millpond.operators.protocol.sharding import Sharding
from millpond.operators.structures.bag import Bag
from millpond.operators.structures.key_numbers import KeyNumbers


@dataclass(frozen=True, eq=False)
class NrrJoin(Node):
    """Each row of an input with the rows a relation has at the instant the row comes.

    Attributes:
        input: The rows.
        relation: The relation, as its updates change it.
        left_keys, right_keys: Places of the columns that must be equal.
        predicates: Further conditions, as SQL over the columns of both.
        optional: Whether a row without a partner stays, with NULLs (LEFT JOIN).
        text: The condition as the query wrote it, for EXPLAIN.
    """

    input: Node
    relation: Node
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    predicates: tuple[str, ...] = ()
    optional: bool = False
    text: str = ""

    name = "join with a non-retroactive relation"
    state = "the relation's rows"
    remembers = False

    @property
    def timed_inputs(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def schema(self) -> pa.Schema:
        return positional_schema([*self.input.schema.types, *self.relation.schema.types])

    @property
    def edge(self) -> Edge:
        return self.input.edge

    @property
    def carries_expirations(self) -> bool:
        return self.input.carries_expirations

    @property
    def announces(self) -> bool:
        return self.input.announces

    @property
    def identity(self) -> tuple[Any, ...]:
        equal = tuple(zip(self.left_keys, self.right_keys, strict=True))
        return (equal, sorted(self.predicates), self.optional)

    @property
    def refuses_negatives(self) -> tuple[bool, ...]:
        return (True, False)

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        given, relation = inputs
        return replace(given, columns=(*given.columns, *relation.columns))

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        return inputs[0]

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        return inputs[0] if inputs[1] is None else {}

    def operator(self) -> Operator:
        return NrrJoining(self)


class NrrJoining:
    """Runs `NrrJoin`: keeps the relation's rows, and none of the input's."""

    def __init__(self, node: NrrJoin) -> None:
        self._bag = Bag(node.relation.schema)
        self._left_keys, self._right_keys = node.left_keys, node.right_keys
        self._predicates = node.predicates
        self._optional = node.optional
        self._schema = node.schema
        self._table: tuple[KeyNumbers, Ints, Ints] | None = None

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        delta, updates = inputs
        if len(updates):
            self._bag.take_in(updates, upto)
            self._table = None
        found = self._join_rows(delta, scalars) if len(delta) else Delta.empty(self._schema)
        if len(updates):
            self._bag.forget(upto)
            self._table = None
        return found

    def _join_rows(self, delta: Delta, scalars: Scalars) -> Delta:
        places, held = self._find_candidates(delta)
        begin, end = self._bag.lives()
        now = delta.at[places]
        there = (begin[held] <= now) & (now < end[held])
        places, held = places[there], held[there]
        rows = self._pair_rows(delta, places, self._bag.rows().take(pa.array(held)))
        if self._predicates and len(places):
            chosen = scalars.select(rows, self._predicates)
            places, rows = places[chosen], rows.filter(pa.array(chosen))
        if self._optional:
            alone = np.setdiff1d(np.arange(len(delta)), places)
            nothing = pa.RecordBatch.from_arrays(
                [pa.nulls(len(alone), t) for t in self._bag.rows().schema.types],
                schema=self._bag.rows().schema,
            )
            rows = pa.concat_batches([rows, self._pair_rows(delta, alone, nothing)])
            places = np.concatenate([places, alone])
            order = np.argsort(places, kind="stable")
            places, rows = places[order], rows.take(pa.array(order))
        return Delta(rows, delta.at[places], delta.until[places], delta.weight[places])

    def _find_candidates(self, delta: Delta) -> tuple[Ints, Ints]:
        """Find pairs with equal keys: places in the delta, ascending, and in the relation."""
        if self._table is None:
            self._table = self._index_relation()
        keys, order, starts = self._table
        if self._left_keys:
            columns = [delta.rows.column(p) for p in self._left_keys]
            numbers = keys.find(columns)
            for column in columns:
                if column.null_count:
                    numbers[column.is_null().to_numpy(zero_copy_only=False)] = -1
        else:
            numbers = np.zeros(len(delta), np.int64)
        known = numbers >= 0
        first = np.where(known, starts[np.maximum(numbers, 0)], 0)
        count = np.where(known, starts[np.maximum(numbers, 0) + 1] - first, 0)
        places = np.repeat(np.arange(len(delta)), count)
        within = np.arange(len(places)) - np.repeat(np.cumsum(count) - count, count)
        return places, order[np.repeat(first, count) + within]

    def _index_relation(self) -> tuple[KeyNumbers, Ints, Ints]:
        """Index the relation by key: a table of keys, places by key, and where each key starts."""
        rows = self._bag.rows()
        keys = KeyNumbers([rows.schema.field(p).type for p in self._right_keys])
        if self._right_keys:
            numbers = keys.number([rows.column(p) for p in self._right_keys])
        else:
            numbers = np.zeros(rows.num_rows, np.int64)
        order = np.argsort(numbers, kind="stable")
        starts = np.searchsorted(numbers[order], np.arange(max(len(keys), 1) + 1))
        return keys, order, starts

    def _pair_rows(self, delta: Delta, places: Ints, right: pa.RecordBatch) -> pa.RecordBatch:
        left = delta.rows.take(pa.array(places)).columns
        return pa.RecordBatch.from_arrays([*left, *right.columns], schema=self._schema)

    def size(self) -> int:
        return self._bag.size()
