"""Re-evaluation: the answer computed anew at every instant at which its inputs change.

It serves queries that have no incremental operator. It keeps the bags of its inputs. At each
instant at which one of the bags changes, DuckDB answers the query over them, and negative tuples
take back the answer before. It is exact like every other operator, but slow: EXPLAIN shows where a
plan has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.model.functions import shows_order
from millpond.model.patterns import STRICT
from millpond.model.time import BEGINNING
from millpond.operators.protocol.cost_model import KEPT, EdgeEstimate, StreamStatistics
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.protocol.node import Node, Operator, Scalars, is_of_one_stream
from millpond.operators.structures.bag import Bag


@dataclass(frozen=True, eq=False)
class Recompute(Node):
    """A query over its inputs' bags.

    Attributes:
        over: The inputs.
        tables: For each input, its name in `sql` and the names of its columns.
        sql: The query, in DuckDB's SQL.
        types: Types of the answer's columns.
        reason: Why the query has no incremental operator, for EXPLAIN.
    """

    over: tuple[Node, ...]
    tables: tuple[tuple[str, tuple[str, ...]], ...]
    sql: str
    types: tuple[pa.DataType, ...]
    reason: str = ""

    name = "re-evaluate"
    state = "its inputs' rows"
    edge = STRICT
    carries_expirations = False
    announces = True

    @property
    def schema(self) -> pa.Schema:
        return positional_schema(self.types)

    @property
    def detail(self) -> str:
        return f"at every change: {self.reason}" if self.reason else "at every change"

    @property
    def shows_order(self) -> bool:
        """Whether its answer may show in which order its rows came."""
        return shows_order(self.sql)

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.tables, self.sql)

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        # The whole answer at every instant at which something changes.
        changes = sum(i.changes for i in inputs)
        return KEPT * sum(i.rows for i in inputs) * changes

    def operator(self) -> Operator:
        bags = [
            Bag(i.schema, in_arrival_order=self.shows_order and is_of_one_stream(i))
            for i in self.over
        ]
        return Recomputation(self.tables, self.sql, self.schema, bags)


class Recomputation:
    """Runs `Recompute`: keeps the inputs' bags and the last answer."""

    def __init__(
        self,
        tables: tuple[tuple[str, tuple[str, ...]], ...],
        sql: str,
        schema: pa.Schema,
        bags: list[Bag],
    ) -> None:
        self._tables = tables
        self._sql = sql
        self._schema = schema
        self._bags = bags
        self._answer: pa.RecordBatch | None = None

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        instants: set[int] = set() if self._answer is not None else {BEGINNING}
        for bag, delta in zip(self._bags, inputs, strict=True):
            instants.update(bag.take_in(delta, upto))
        parts = []
        before = [instant for instant in instants if instant <= scalars.since]
        if before:
            instants = instants.difference(before) | {max(before)}
        for instant in sorted(instants):
            parts += self._step(instant, scalars)
        for bag in self._bags:
            bag.forget(upto)
        return Delta.together(parts) if parts else Delta.empty(self._schema)

    def _step(self, instant: int, scalars: Scalars) -> list[Delta]:
        """Answer at an instant; if the answer differs, take back the one before and give it."""
        tables = {
            name: pa.Table.from_batches([bag.at(instant)]).rename_columns(list(columns))
            for (name, columns), bag in zip(self._tables, self._bags, strict=True)
        }
        found = scalars.query(self._sql, tables).rename_columns(self._schema.names)
        answer = _one_batch(found.cast(self._schema))
        before, self._answer = self._answer, answer
        if before is not None and before.equals(answer):
            return []
        parts = [self._rows(answer, instant, 1)]
        return parts if before is None else [self._rows(before, instant, -1), *parts]

    @staticmethod
    def _rows(rows: pa.RecordBatch, instant: int, weight: int) -> Delta:
        at = np.full(rows.num_rows, instant, np.int64)
        return Delta.of(rows, at, None, np.full(rows.num_rows, weight, np.int64))

    def size(self) -> int:
        return sum(bag.size() for bag in self._bags)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return Delta.empty(table.schema).rows
