"""Projection: other columns of the same rows (Update patterns, 2.1). Duplicates stay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millpond.operators.protocol.cost_model import SELECTED, UNKNOWN, EdgeEstimate, StreamStatistics
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.protocol.node import Operator, Scalars, Unary
from millpond.operators.protocol.precision import Precision
from millpond.operators.structures.evaluation import evaluate_expressions

_COLUMN = re.compile(r"c(\d+)")


@dataclass(frozen=True, eq=False)
class Project(Unary):
    """Expressions (SQL over `c0`, `c1`, …) of its input's rows.

    Attributes:
        input: The rows.
        expressions: One for each column; an int is the input's column at that place.
        types: The columns' types.
        text: The expressions as the query wrote them, for EXPLAIN.
    """

    expressions: tuple[str | int, ...]
    types: tuple[pa.DataType, ...]
    text: str = ""

    name = "project"
    remembers = False

    @property
    def schema(self) -> pa.Schema:
        return positional_schema(self.types)

    @property
    def identity(self) -> tuple[Any, ...]:
        return self.expressions

    def trace_column(self, place: int) -> int | None:
        expression = self.expressions[place]
        return expression if isinstance(expression, int) else None

    def _find_copied(self, place: int) -> int | None:
        """The place of the input's column whose value an expression is; None if it is none."""
        expression = self.expressions[place]
        if isinstance(expression, int):
            return expression
        alone = _COLUMN.fullmatch(expression.strip())
        return int(alone[1]) if alone is not None else None

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        (given,) = inputs
        copied = [self._find_copied(place) for place in range(len(self.expressions))]
        columns = (UNKNOWN if place is None else given.columns[place] for place in copied)
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

    def __init__(self, expressions: tuple[str | int, ...], schema: pa.Schema) -> None:
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
            delta.rows.column(e) if isinstance(e, int) else next(values) for e in self._expressions
        ]
        fitted = [
            c if c.type == f.type else c.cast(f.type)
            for c, f in zip(columns, self._schema, strict=True)
        ]
        return delta.with_rows(pa.RecordBatch.from_arrays(fitted, schema=self._schema))

    def size(self) -> int:
        return 0
