"""Selection: the rows for which a predicate is true (Update patterns, 2.1)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from millpond.operators.protocol.cost_model import EdgeEstimate, StreamStatistics, guess_selectivity
from millpond.operators.protocol.delta import Delta, places_in
from millpond.operators.protocol.node import Operator, Scalars, Unary
from millpond.operators.protocol.precision import Precision
from millpond.operators.structures.evaluation import select_rows


@dataclass(frozen=True, eq=False)
class Select(Unary):
    """The rows of its input for which every predicate (SQL over `c0`, `c1`, …) is true.

    Attributes:
        input: The rows to select from.
        predicates: Conjuncts; their order means nothing.
        text: The predicates as the query wrote them, for EXPLAIN.
    """

    predicates: tuple[str, ...]
    text: str = ""

    name = "select"
    remembers = False
    is_stateless = True

    def reads(self, places: Set[int]) -> tuple[Set[int], ...]:
        return (places | self.read,)

    @property
    def read(self) -> Set[int]:
        """The places of the columns that the predicates may read."""
        return places_in(self.predicates, len(self.input.schema))

    @property
    def identity(self) -> tuple[Any, ...]:
        return tuple(sorted(set(self.predicates)))

    def trace_column(self, place: int) -> int | None:
        return place

    def find_times(self) -> frozenset[int] | None:
        return self.trace_times()

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        (given,) = inputs
        if self.input.feed is not None and self.input.feed[0] == "stream":
            _, stream, columns = self.input.feed
            share = known.estimate_selectivity(stream, columns, self.schema, self.predicates)
        else:
            share = guess_selectivity(self.predicates)
        return replace(given, arrivals=given.arrivals * share, negatives=given.negatives * share)

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        return inputs[0]

    def operator(self) -> Operator:
        return Selection(self.predicates, self.read)


class Selection:
    """Runs `Select`."""

    def __init__(self, predicates: tuple[str, ...], read: Set[int]) -> None:
        self._predicates = predicates
        self._read = sorted(read)
        self.needed: Set[int] | None = None

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        if not len(delta):
            return delta
        # Evaluating predicates costs time for every column that is passed.
        return select_rows(delta, self._predicates, scalars, self.needed, self._read)

    def size(self) -> int:
        return 0
