"""Estimates of the changes on an edge and of the cost of handling them (Update patterns, 5.4.1).

The paper's cost model is per unit of time: an operator's input rates λ1 and λ2, its output rate λo,
the sizes N1, N2 and No of its inputs and output, and for each operator a formula of these. Here a
`EdgeEstimate` has an edge's rate and size, and each node estimates its output from those of its
inputs, and its work in nanoseconds per second of stream time. Where the paper's operators scan
lists, ours look up tables. So for a join, where the paper counts λ1·N2, we count λ1 probes and
the pairs that are found.

The constants are nanoseconds on one core, as `benchmarks/operator_costs.py` measures them. Only
their ratios matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

#: Rows that never leave are counted over this many seconds.
HORIZON = 86_400.0

#: One call of an operator, once a step; a call with changes; a call with changes that it keeps.
CALLED, WOKEN, STEPPED = 12_000.0, 30_000.0, 30_000.0
#: One row through a selection or a computed projection; through a window.
SELECTED, WINDOWED = 10.0, 10.0
#: A row into a queue and out of it; into partitions and out; into a buffer in arrival order and
#: out; each row of such a buffer that a step looks at.
QUEUED, PARTITIONED, ARRIVED, LOOKED_AT = 17.0, 200.0, 250.0, 0.6
#: Distributing some thousand rows over the partitions, for each partition.
DEALT = 20_000.0
#: A row put into a join's table; a row looked up in the other table; a pair; a negative tuple
#: that is later added to the row it takes back.
BUILT, PROBED, PAIRED, ADDED_UP = 190.0, 100.0, 80.0, 250.0
#: A row added to a join's sums by key.
SUMMED = 570.0
#: A row through δ*; each row of δ*'s state that is looked at; a row through counts; an output row
#: of either.
STARRED, WATCHED, COUNTED, GIVEN = 22.0, 0.7, 26.0, 150.0
#: A row through a grouping; through aggregates; through a negation by attributes; each row of a
#: bag that is kept whole, at every step with changes.
GROUPED, REPLACED, REMOVED, KEPT = 25.0, 25.0, 300.0, 5.0
#: A change that is delivered: sorted among the changes of its instant, and added up.
DELIVERED = 50.0


@dataclass(frozen=True)
class ColumnEstimate:
    """Statistics of a column's values.

    Attributes:
        distinct: The number of distinct values.
        repeat: The chance that two rows have the same value, Σp²; 1/distinct if all values are
            equally frequent.
    """

    distinct: float
    repeat: float


#: A column of which nothing is known.
UNKNOWN = ColumnEstimate(1_000.0, 1e-3)


@dataclass(frozen=True)
class EdgeEstimate:
    """The changes expected on an edge.

    Attributes:
        arrivals: Rows that come, a second.
        negatives: Negative tuples a second.
        life: Seconds a row lives, on average.
        columns: The statistics of its columns.
    """

    arrivals: float
    negatives: float
    life: float
    columns: tuple[ColumnEstimate, ...]

    @property
    def changes(self) -> float:
        """Rows a second of either sign."""
        return self.arrivals + self.negatives

    @property
    def rows(self) -> float:
        """How many rows are alive (the paper's N)."""
        return self.arrivals * (HORIZON if math.isinf(self.life) else self.life)

    def of(self, places: Sequence[int]) -> ColumnEstimate:
        """The statistics of some columns together, taken as independent."""
        distinct = math.prod((self.columns[p].distinct for p in places), start=1.0)
        repeat = math.prod((self.columns[p].repeat for p in places), start=1.0)
        return ColumnEstimate(distinct, repeat)

    def count_distinct(self, places: Sequence[int]) -> float:
        """Estimate how many distinct values of some columns are alive."""
        distinct = max(self.of(places).distinct, 1.0)
        return distinct * -math.expm1(-self.rows / distinct)


class StreamStatistics(Protocol):
    """A pond's statistics of its streams."""

    @property
    def steps(self) -> float:
        """How many steps a dataflow is advanced by, a second of stream time."""
        ...

    def rate(self, stream: str) -> float:
        """Elements a second of stream time."""
        ...

    def column(self, stream: str, column: str) -> ColumnEstimate:
        """The statistics of a stream's column."""
        ...

    def estimate_selectivity(
        self, stream: str, columns: Sequence[str], types: pa.Schema, predicates: Sequence[str]
    ) -> float:
        """Estimate the share of a stream's elements for which predicates (over `c0`, …) hold."""
        ...


def estimate_wakeups(changes: float, known: StreamStatistics) -> float:
    """Estimate how many steps a second have changes, if changes come at random times."""
    return known.steps * -math.expm1(-changes / known.steps)


def guess_selectivity(predicates: Sequence[str]) -> float:
    """Guess the share of rows that satisfy predicates, when nothing is known."""
    return math.prod(0.1 if " = " in p else 0.3 for p in predicates)


def estimate_key_match(
    left: EdgeEstimate, left_keys: Sequence[int], right: EdgeEstimate, right_keys: Sequence[int]
) -> float:
    """Estimate the chance that a row of one edge has the key of a row of the other."""
    return min(left.of(left_keys).repeat, right.of(right_keys).repeat)
