"""Rows that several queries want, once for each of them (planner/dataflow/shared_log.py).

A window of rows counts every element, whichever queries select it. So above such a window, each
row still has the list of its queries' change logs; here it becomes a row for each of these.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.protocol.node import Operator, Scalars, Unary


@dataclass(frozen=True, eq=False)
class PerQuery(Unary):
    """Each row once for every entry of its list, with the entry in the list's place.

    Attributes:
        input: The rows.
        logs: The place of the column with the lists.
    """

    logs: int

    name = "per query"
    remembers = False

    @property
    def schema(self) -> pa.Schema:
        types = self.input.schema.types
        types[self.logs] = types[self.logs].value_type
        return positional_schema(types)

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.logs,)

    def reads(self, places: Set[int]) -> tuple[Set[int], ...]:
        return (places | {self.logs},)

    def trace_column(self, place: int) -> int | None:
        return None if place == self.logs else place

    def operator(self) -> Operator:
        return _Multiplying(self.logs, self.schema)


class _Multiplying:
    """Runs `PerQuery`."""

    def __init__(self, logs: int, schema: pa.Schema) -> None:
        self._logs, self._schema = logs, schema

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        lists = delta.rows.column(self._logs)
        counts = np.diff(lists.offsets.to_numpy(zero_copy_only=False))
        places = np.repeat(np.arange(len(delta)), counts)
        chosen = pa.array(places)
        columns = [
            lists.flatten() if number == self._logs else column.take(chosen)
            for number, column in enumerate(delta.rows.columns)
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return Delta(rows, delta.at[places], delta.until[places], delta.weight[places])

    def size(self) -> int:
        return 0
