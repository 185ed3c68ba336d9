"""What the planner knows about streams: guesses, or estimates from a sample of each stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from millpond.errors import MillpondError
from millpond.operators.protocol.cost_model import UNKNOWN, ColumnEstimate, guess_selectivity
from millpond.operators.protocol.delta import places_in
from millpond.operators.protocol.node import Scalars
from millpond.operators.protocol.releasing import Constraints
from millpond.operators.source import SEQUENCE, TIMESTAMP

#: Columns that a sample of a stream does not have.
_UNSEEN = {SEQUENCE, TIMESTAMP}


class GuessedStatistics:
    """`planner.optimize.cost.PlanStatistics` of a pond in which nothing has happened yet."""

    steps = 1.0
    running: Set[str] = frozenset()
    constraints: Constraints = MappingProxyType({})
    corrections: Mapping[str, float] = MappingProxyType({})

    def basis(self, stream: str) -> str:
        """Say what a stream's figures rest on, for EXPLAIN."""
        return "guessed"

    def rate(self, stream: str) -> float:
        return 10.0

    def column(self, stream: str, column: str) -> ColumnEstimate:
        return UNKNOWN

    def estimate_selectivity(
        self, stream: str, columns: Sequence[str], types: pa.Schema, predicates: Sequence[str]
    ) -> float:
        return guess_selectivity(predicates)


@dataclass(frozen=True)
class StreamSample:
    """Some of a stream's elements.

    Attributes:
        rate: How many elements come in a second of stream time.
        rows: The sampled elements, by the stream's column names.
        total: How many elements the stream has.
    """

    rate: float
    rows: pa.Table
    total: int


class ObservedStatistics(GuessedStatistics):
    """`planner.optimize.cost.PlanStatistics` from samples; guesses for streams without a sample.

    A column's Σp² is how often two rows of the sample agree. Its number of values is Chao's
    estimate: the values in the sample, and unseen values, as many as the counts of values seen once
    and seen twice suggest. A predicate's selectivity is measured on the sample, or guessed where
    `scalars` is missing. Rates that were measured as plans ran come before those of samples.
    """

    def __init__(
        self,
        samples: Mapping[str, StreamSample],
        scalars: Scalars | None,
        steps: float = 1.0,
        running: Set[str] = frozenset(),
        constraints: Constraints = MappingProxyType({}),
        rates: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.steps = steps
        self.running = running
        self.constraints = constraints
        self._rates = rates
        self._samples, self._scalars = samples, scalars
        self._columns: dict[tuple[str, str], ColumnEstimate] = {}
        self._shares: dict[tuple[str, tuple[str, ...], tuple[str, ...]], float] = {}

    def beside(self, running: Set[str]) -> ObservedStatistics:
        """The same where other nodes run already."""
        found = copy(self)
        found.running = running
        return found

    def correct(self, corrections: Mapping[str, float]) -> ObservedStatistics:
        """The same with other corrections."""
        found = copy(self)
        found.corrections = corrections
        return found

    def basis(self, stream: str) -> str:
        sample = self._samples.get(stream)
        if sample is None:
            return super().basis(stream)
        return f"{self.rate(stream):,.3g} elements/s, {sample.rows.num_rows:,} of them looked at"

    def rate(self, stream: str) -> float:
        if stream in self._rates:
            return self._rates[stream]
        sample = self._samples.get(stream)
        return super().rate(stream) if sample is None else sample.rate

    def column(self, stream: str, column: str) -> ColumnEstimate:
        sample = self._samples.get(stream)
        if sample is None:
            return super().column(stream, column)
        if column in (SEQUENCE, TIMESTAMP):
            return ColumnEstimate(float(sample.total), 1 / sample.total)
        found = self._columns.get((stream, column))
        if found is None:
            found = self._columns[stream, column] = _measure_column(sample, column)
        return found

    def estimate_selectivity(
        self, stream: str, columns: Sequence[str], types: pa.Schema, predicates: Sequence[str]
    ) -> float:
        key = (stream, tuple(columns), tuple(predicates))
        if key not in self._shares:
            self._shares[key] = self._measure_selectivity(*key, types)
        return self._shares[key]

    def _measure_selectivity(
        self, stream: str, columns: tuple[str, ...], predicates: tuple[str, ...], types: pa.Schema
    ) -> float:
        sample = self._samples.get(stream)
        read = {columns[place] for place in places_in(predicates, len(columns))}
        if sample is None or self._scalars is None or read & _UNSEEN:
            return guess_selectivity(predicates)
        size = sample.rows.num_rows
        arrays = [
            sample.rows.column(c).combine_chunks().cast(f.type)
            if c not in _UNSEEN
            else pa.nulls(size, f.type)
            for c, f in zip(columns, types, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=types)
        sql = " AND ".join(f"({p}\n)" for p in predicates)
        try:
            (true,) = self._scalars.compute(rows, [f"CAST(({sql}) AS BOOLEAN)"])
        except MillpondError:
            return guess_selectivity(predicates)  # it fails on a row; running the query reports it
        # Count half a passing row more, in one row more: a predicate that no sampled row passes may
        # still be true for other rows.
        return (true.true_count + 0.5) / (len(true) + 1)


def _measure_column(sample: StreamSample, column: str) -> ColumnEstimate:
    values = sample.rows.column(column)
    if pa.types.is_nested(values.type) or not len(values):
        return UNKNOWN
    counts = np.asarray(values.value_counts().field("counts").to_numpy(), np.float64)
    seen, once, twice = len(counts), int((counts == 1).sum()), int((counts == 2).sum())
    distinct = min(seen + once * (once - 1) / (2 * (twice + 1)), float(sample.total))
    pairs = len(values) * (len(values) - 1)
    repeat = float((counts * (counts - 1)).sum()) / pairs if pairs else 1.0
    return ColumnEstimate(max(distinct, 1.0), max(repeat, 1 / max(distinct, 1.0)))
