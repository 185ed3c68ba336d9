"""UNNEST: each row becomes as many rows as DuckDB makes of it, with its weight and its interval.

A call such as `unnest(tags)` in a SELECT list looks at one row alone, as a projection does. So the
rows that are made of a row come and leave with it, and a negative tuple of it takes back all of
them: nothing is kept. Rows of a list that is empty or NULL are none, and lists of one SELECT are
gone through side by side, as in DuckDB, which evaluates the whole list of a SELECT at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.operators.protocol.cost_model import SELECTED, UNKNOWN, EdgeEstimate, StreamStatistics
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.protocol.node import Operator, Scalars, Unary
from millpond.operators.protocol.precision import Precision
from millpond.operators.structures.evaluation import expand_rows

#: How many rows are expected to be made of one.
_EXPECTED = 3.0


@dataclass(frozen=True, eq=False)
class Unnest(Unary):
    """Expressions (SQL over `c0`, `c1`, …), some of which give several values for a row.

    Attributes:
        input: The rows.
        expressions: One for each column.
        types: The columns' types.
        text: The expressions as the query wrote them, for EXPLAIN.
    """

    expressions: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    text: str = ""

    name = "unnest"
    remembers = False

    @property
    def schema(self) -> pa.Schema:
        return positional_schema(self.types)

    @property
    def identity(self) -> tuple[Any, ...]:
        return self.expressions

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        (given,) = inputs
        return replace(
            given,
            arrivals=_EXPECTED * given.arrivals,
            negatives=_EXPECTED * given.negatives,
            columns=(UNKNOWN,) * len(self.types),
        )

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        return SELECTED * (inputs[0].changes + own.changes)

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        return inputs[0]

    def operator(self) -> Operator:
        return Unnesting(self.expressions, self.schema)


class Unnesting:
    """Runs `Unnest`."""

    def __init__(self, expressions: tuple[str, ...], schema: pa.Schema) -> None:
        self._expressions, self._schema = expressions, schema

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        if not len(delta):
            return Delta.empty(self._schema)
        delta, made_of, columns = expand_rows(delta, self._expressions, scalars)
        fitted = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(fitted, schema=self._schema)
        places = np.asarray(made_of, np.int64)
        return Delta(rows, delta.at[places], delta.until[places], delta.weight[places])

    def size(self) -> int:
        return 0
