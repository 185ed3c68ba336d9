"""What is expected to run on an edge, and what handling it costs (Update patterns, 5.4.1).

The paper's cost model is per unit of time: an operator's input rates λ1 and λ2, its output rate λo,
the sizes N1, N2 and No of its inputs and output, and for each operator a formula of these. Here a
`EdgeEstimate` has an edge's rate and size, and each node estimates its output from those of its
inputs, and its work in nanoseconds per second of stream time. Where the paper's operators scan
lists, ours look up tables, so what the paper counts as λ1·N2 for a join is λ1 probes and as many
pairs as are found.

The constants are nanoseconds on one core, as `benchmarks/operator_costs.py` measures them. Only
their ratios matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

#: Rows that never leave are counted over so many seconds.
HORIZON = 86_400.0

#: An operator being called at all, once a step; being given something; keeping rows then.
CALLED, WOKEN, STEPPED = 12_000.0, 30_000.0, 30_000.0
#: A row through a selection or a computed projection; through a window.
SELECTED, WINDOWED = 10.0, 10.0
#: A row into a queue and out of it; into partitions and out; the same where rows are looked through
#: at every step, and each row looked at.
QUEUED, PARTITIONED, ARRIVED, LOOKED_AT = 17.0, 200.0, 250.0, 0.6
#: Some thousand rows being dealt out, for each partition.
DEALT = 20_000.0
#: A row into a join's table, looked up in the other, a pair; a negative tuple being added up later.
BUILT, PROBED, PAIRED, ADDED_UP = 190.0, 100.0, 80.0, 250.0
#: A row through δ*, each row of its state looked at; through counts; a row either gives.
STARRED, WATCHED, COUNTED, GIVEN = 22.0, 0.7, 26.0, 150.0
#: A row through a grouping or aggregates; through a negation by attributes; a row of a bag that is
#: kept whole, at every step with changes.
GROUPED, REPLACED, REMOVED, KEPT = 25.0, 25.0, 300.0, 5.0
#: A change that is delivered: sorted among those of its instant, and added up.
DELIVERED = 50.0


@dataclass(frozen=True)
class ColumnEstimate:
    """What is known of a column's values.

    Attributes:
        distinct: How many there are.
        repeat: The chance that two rows have the same, Σp²: 1/distinct if all are as frequent.
    """

    distinct: float
    repeat: float


#: A column of which nothing is known.
UNKNOWN = ColumnEstimate(1_000.0, 1e-3)


@dataclass(frozen=True)
class EdgeEstimate:
    """What runs on an edge.

    Attributes:
        arrivals: Rows a second that come.
        negatives: Negative tuples a second.
        life: Seconds a row lives, on average.
        columns: Its columns' values.
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
        """Some columns together, taken as independent."""
        distinct = math.prod((self.columns[p].distinct for p in places), start=1.0)
        repeat = math.prod((self.columns[p].repeat for p in places), start=1.0)
        return ColumnEstimate(distinct, repeat)

    def count_distinct(self, places: Sequence[int]) -> float:
        """How many different values of some columns are alive."""
        distinct = max(self.of(places).distinct, 1.0)
        return distinct * -math.expm1(-self.rows / distinct)


class StreamStatistics(Protocol):
    """What a pond knows of its streams."""

    @property
    def steps(self) -> float:
        """Steps a second of stream time in which flows are advanced."""
        ...

    def rate(self, stream: str) -> float:
        """Elements a second of stream time."""
        ...

    def column(self, stream: str, column: str) -> ColumnEstimate:
        """The values of a stream's column."""
        ...

    def estimate_selectivity(
        self, stream: str, columns: Sequence[str], types: pa.Schema, predicates: Sequence[str]
    ) -> float:
        """The share of a stream's elements for which predicates over `c0`, … are true."""
        ...


def estimate_wakeups(changes: float, known: StreamStatistics) -> float:
    """In how many steps a second there is something, if changes come as they like."""
    return known.steps * -math.expm1(-changes / known.steps)


def guess_selectivity(predicates: Sequence[str]) -> float:
    """The share of rows predicates leave, when nothing is known."""
    return math.prod(0.1 if " = " in p else 0.3 for p in predicates)


def estimate_key_match(
    left: EdgeEstimate, left_keys: Sequence[int], right: EdgeEstimate, right_keys: Sequence[int]
) -> float:
    """The chance that a row of one has the key of a row of the other."""
    return min(left.of(left_keys).repeat, right.of(right_keys).repeat)
