"""Union: the sum of its inputs' bags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from millpond.model.patterns import RULES, Edge, Pattern
from millpond.operators.protocol.cost_model import GIVEN, EdgeEstimate, StreamStatistics
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.node import Node, Operator, Scalars
from millpond.operators.protocol.precision import Precision, unite_rows
from millpond.operators.protocol.sharding import Sharding, shard_equals


@dataclass(frozen=True, eq=False)
class Union(Node):
    """UNION ALL (Update patterns, 2.1: merge union).

    Attributes:
        over: The inputs, of one schema.
    """

    over: tuple[Node, ...]

    name = "union all"
    remembers = False
    identity = ()

    @property
    def schema(self) -> pa.Schema:
        return self.over[0].schema

    @property
    def edge(self) -> Edge:
        return RULES["union all"]([i.edge for i in self.over])

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        found = super().estimate(inputs, known)
        pairs = zip(*(i.columns for i in inputs), strict=True)
        merged = (max(same, key=lambda column: column.distinct) for same in pairs)
        return replace(found, columns=tuple(merged))

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        return GIVEN * own.changes

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        return unite_rows(inputs, [edge.rows for edge in edges])

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        known, every = inputs[0] or {}, [(place, place) for place in range(len(self.schema))]
        for other in inputs[1:]:
            known = shard_equals(known, other, every)
        return known

    def operator(self) -> Operator:
        return Uniting(self.pattern is Pattern.WEAKEST)


class Uniting:
    """Runs `Union`."""

    def __init__(self, in_turn: bool) -> None:
        self._in_turn = in_turn

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        schema = inputs[0].rows.schema
        united = Delta.together(
            [
                d if d.rows.schema.equals(schema) else d.with_rows(d.rows.cast(schema))
                for d in inputs
            ]
        )
        # Inputs whose rows leave first in, first out and live equally long do so together too.
        return united.in_order_of_leaving() if self._in_turn else united

    def size(self) -> int:
        return 0
