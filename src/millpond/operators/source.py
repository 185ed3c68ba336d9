"""Sources of deltas: the elements of a stream, the changes of a relation, one row for ever.

The operator of a stream or relation does nothing; the runner of the plan passes it the rows of its
feed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.model.kept_property import kept_property
from millpond.model.patterns import MONOTONIC, RELATION
from millpond.model.time import BEGINNING
from millpond.operators.protocol.cost_model import UNKNOWN, EdgeEstimate, StreamStatistics
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.protocol.node import Node, Operator, Scalars

#: The columns of a source that hold each element's arrival sequence and its timestamp.
SEQUENCE, TIMESTAMP = "__seq", "__ts"
#: In a shared log's plan, the column of the change log of the query that selects the element.
LOG = "__log"
#: Where the elements that nobody selects are counted, too: the change logs of all these queries.
LOGS = "__logs"


@dataclass(frozen=True, eq=False)
class _Source(Node):
    """A stream or a relation as a source.

    Attributes:
        source: The name of the stream or relation, as declared.
        columns: The columns to read; `__seq` and `__ts` among them where they are needed.
        types: The columns' types.
    """

    source: str
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]

    @kept_property
    def schema(self) -> pa.Schema:
        return positional_schema(self.types)

    @property
    def detail(self) -> str:
        return self.source

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.source, self.columns)

    @property
    def feed(self) -> tuple[str, str, tuple[str, ...]]:
        return (self.name, self.source, self.columns)

    def operator(self) -> Operator:
        return _PassThrough()


@dataclass(frozen=True, eq=False)
class StreamSource(_Source):
    """A stream's elements: each begins at its timestamp and never leaves.

    Attributes:
        timestamp: The column that holds the elements' timestamps; None if no column does.
    """

    timestamp: str | None = None

    name = "stream"
    edge = MONOTONIC
    is_stateless = True

    def find_times(self) -> frozenset[int]:
        return frozenset(p for p, c in enumerate(self.columns) if c in (self.timestamp, TIMESTAMP))

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        columns = tuple(known.column(self.source, c) for c in self.columns)
        return EdgeEstimate(known.rate(self.source), 0.0, math.inf, columns)


@dataclass(frozen=True, eq=False)
class RelationSource(_Source):
    """A relation's rows, as its updates change them."""

    name = "relation"
    edge = RELATION
    announces = True

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        # Some thousand rows, a few of which change in an hour.
        return EdgeEstimate(0.01, 0.01, 100_000.0, (UNKNOWN,) * len(self.types))


class _PassThrough:
    """Passes its input on."""

    needed: Set[int] | None = None

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        return delta

    def size(self) -> int:
        return 0


_ONE = positional_schema([pa.bool_()])


@dataclass(frozen=True, eq=False)
class OneRow(Node):
    """The row that a SELECT without FROM reads, from the beginning of time for ever."""

    schema = _ONE
    name = "one row"
    edge = MONOTONIC
    identity = ()

    def operator(self) -> Operator:
        return _GivesOneRow()


class _GivesOneRow:
    def __init__(self) -> None:
        self._given = False

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        if self._given:
            return Delta.empty(_ONE)
        self._given = True
        row = pa.RecordBatch.from_arrays([pa.array([True])], schema=_ONE)
        return Delta.of(row, np.full(1, BEGINNING, np.int64))

    def size(self) -> int:
        return 0
