"""Union: the sum of its inputs' bags; with signs, their difference where it is known to be a
bag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millpond.model.patterns import RULES, STRICT, Edge, Pattern
from millpond.operators.delta import Delta
from millpond.operators.flow import GIVEN, Flow, Known
from millpond.operators.node import Node, Operator, Scalars


@dataclass(frozen=True, eq=False)
class Union(Node):
    """UNION ALL (Update patterns, 2.1: merge union).

    Attributes:
        over: The inputs, of one schema.
        minus: Inputs whose rows are taken away instead: each is a part of the others at every
            instant, as the matched rows are of all rows.
    """

    over: tuple[Node, ...]
    minus: tuple[Node, ...] = ()

    remembers = False

    @property
    def schema(self) -> pa.Schema:
        return self.over[0].schema

    @property
    def name(self) -> str:
        return "difference" if self.minus else "union all"

    @property
    def edge(self) -> Edge:
        return STRICT if self.minus else RULES["union all"]([i.edge for i in self.over])

    @property
    def announces(self) -> bool:
        return bool(self.minus) or any(i.announces for i in self.inputs)

    @property
    def identity(self) -> tuple[Any, ...]:
        return (len(self.minus),)

    def estimated(self, inputs: Sequence[Flow], known: Known) -> Flow:
        found = super().estimated(inputs, known)
        pairs = zip(*(i.columns for i in inputs), strict=True)
        merged = (max(same, key=lambda column: column.distinct) for same in pairs)
        return replace(found, columns=tuple(merged))

    def work(self, inputs: Sequence[Flow], own: Flow, known: Known) -> float:
        return GIVEN * own.changes

    def operator(self) -> Operator:
        return Uniting(len(self.over), self.pattern is Pattern.WEAKEST)


class Uniting:
    """`Union` at work."""

    def __init__(self, positive: int, in_turn: bool) -> None:
        self._positive = positive
        self._in_turn = in_turn

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        signed = [d if i < self._positive else d.negated() for i, d in enumerate(inputs)]
        schema = signed[0].rows.schema
        united = Delta.together(
            [
                d if d.rows.schema.equals(schema) else d.with_rows(d.rows.cast(schema))
                for d in signed
            ]
        )
        # Two that leave first in, first out, and live equally long, do so together.
        return united.in_order_of_leaving() if self._in_turn else united

    def size(self) -> int:
        return 0
