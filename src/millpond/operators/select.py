"""Selection: the rows for which a predicate is true, as long as they live (Update patterns,
2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from millpond.operators.delta import Delta
from millpond.operators.evaluation import selected
from millpond.operators.flow import Flow, Known, guessed
from millpond.operators.node import Operator, Scalars, Unary


@dataclass(frozen=True, eq=False)
class Select(Unary):
    """The rows of its input for which every predicate (SQL over `c0`, `c1`, …) is true.

    Attributes:
        input: What is selected from.
        predicates: Conjuncts; their order means nothing.
        text: The predicates as the query wrote them, for EXPLAIN.
    """

    predicates: tuple[str, ...]
    text: str = ""

    name = "select"
    remembers = False

    @property
    def identity(self) -> tuple[Any, ...]:
        return tuple(sorted(set(self.predicates)))

    def estimated(self, inputs: Sequence[Flow], known: Known) -> Flow:
        (given,) = inputs
        if self.input.feed is not None and self.input.feed[0] == "stream":
            _, stream, columns = self.input.feed
            share = known.passing(stream, columns, self.schema, self.predicates)
        else:
            share = guessed(self.predicates)
        return replace(given, arrivals=given.arrivals * share, negatives=given.negatives * share)

    def operator(self) -> Operator:
        return Selection(self.predicates)


class Selection:
    """`Select` at work."""

    def __init__(self, predicates: tuple[str, ...]) -> None:
        self._predicates = predicates

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        if not len(delta):
            return delta
        return selected(delta, self._predicates, scalars)

    def size(self) -> int:
        return 0
