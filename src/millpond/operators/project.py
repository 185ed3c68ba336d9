"""Projection: other columns of the same rows (Update patterns, 2.1). Duplicates stay.

A call such as `unnest(tags)` in a SELECT list makes several rows of one. It looks at this row
alone, as a projection does: what is made of a row comes and leaves with it, with its weight and its
interval, and a negative tuple of the row takes back all of them. So nothing is kept. Rows of a list
that is empty or NULL are none, and lists of one SELECT are gone through side by side, as in DuckDB,
which evaluates the whole list of a SELECT at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.operators.protocol.cost_model import (
    SELECTED,
    UNKNOWN,
    ColumnEstimate,
    EdgeEstimate,
    StreamStatistics,
)
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.protocol.node import Operator, Scalars, Unary
from millpond.operators.protocol.precision import Precision
from millpond.operators.structures.evaluation import evaluate_expressions, expand_rows

_COLUMN = re.compile(r"c(\d+)")
#: A column of one value.
_CONSTANT = ColumnEstimate(1.0, 1.0)
#: How many rows are expected to be made of one.
_EXPECTED = 3.0


@dataclass(frozen=True, eq=False)
class Project(Unary):
    """Expressions (SQL over `c0`, `c1`, …) of its input's rows.

    Attributes:
        input: The rows.
        expressions: One for each column; an int is the input's column at that place, a scalar a
            constant.
        types: The columns' types.
        text: The expressions as the query wrote them, for EXPLAIN.
    """

    expressions: tuple[str | int | pa.Scalar, ...]
    types: tuple[pa.DataType, ...]
    text: str = ""

    name = "project"
    remembers = False

    @property
    def schema(self) -> pa.Schema:
        return positional_schema(self.types)

    @property
    def identity(self) -> tuple[Any, ...]:
        # The schema of the input has the types of the other columns.
        return tuple(
            (str(e.type), e.as_py()) if isinstance(e, pa.Scalar) else e for e in self.expressions
        )

    def reads(self, places: Set[int]) -> tuple[Set[int], ...]:
        if all(isinstance(e, int) for e in self.expressions):
            return (frozenset(e for p in places if isinstance(e := self.expressions[p], int)),)
        return super().reads(places)

    def trace_column(self, place: int) -> int | None:
        expression = self.expressions[place]
        return expression if isinstance(expression, int) else None

    def find_times(self) -> frozenset[int] | None:
        return self.trace_times()

    def _find_copied(self, place: int) -> int | None:
        """The place of the input's column whose value an expression is; None if it is none."""
        expression = self.expressions[place]
        if not isinstance(expression, str):
            return expression if isinstance(expression, int) else None
        alone = _COLUMN.fullmatch(expression.strip())
        return int(alone[1]) if alone is not None else None

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        (given,) = inputs
        copied = [self._find_copied(place) for place in range(len(self.expressions))]
        columns = (
            _CONSTANT if isinstance(e, pa.Scalar) else UNKNOWN if p is None else given.columns[p]
            for e, p in zip(self.expressions, copied, strict=True)
        )
        return replace(given, columns=tuple(columns))

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        computed = any(isinstance(e, str) for e in self.expressions)
        return SELECTED * own.changes if computed else 0.0

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        return inputs[0]

    def operator(self) -> Operator:
        return Projection(self.expressions, self.schema)


class Projection:
    """Runs `Project`."""

    def __init__(self, expressions: tuple[str | int | pa.Scalar, ...], schema: pa.Schema) -> None:
        self._expressions = expressions
        self._computed = [e for e in expressions if isinstance(e, str)]
        self._schema = schema

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        if not len(delta):
            return Delta.empty(self._schema)
        delta, computed = evaluate_expressions(delta, self._computed, scalars)
        values = iter(computed)
        columns = [
            delta.rows.column(e)
            if isinstance(e, int)
            else next(values)
            if isinstance(e, str)
            else pa.repeat(e, len(delta))
            for e in self._expressions
        ]
        return delta.with_rows(_fit(columns, self._schema))

    def size(self) -> int:
        return 0


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
        rows = _fit(columns, self._schema)
        places = np.asarray(made_of, np.int64)
        return Delta(rows, delta.at[places], delta.until[places], delta.weight[places])

    def size(self) -> int:
        return 0


def _fit(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Make rows of columns, cast to the schema's types where they have others."""
    fitted = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(fitted, schema=schema)
