"""A sample: a fixed choice of a stream's elements, before any window (SEMANTICS, section 2)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from millpond.operators.protocol.cost_model import EdgeEstimate, StreamStatistics
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.node import Operator, Scalars, Unary
from millpond.synopses.sampling import choose_sample


@dataclass(frozen=True, eq=False)
class Sample(Unary):
    """The elements a sample keeps.

    Attributes:
        input: A stream's elements.
        seed: The number on which the choice depends, besides the element.
        percent: The percentage of the elements that it keeps, about.
        sequence: The place of the column that holds the arrival sequence.
    """

    seed: int
    percent: float
    sequence: int

    name = "sample"
    remembers = False
    is_stateless = True

    @property
    def sample_seed(self) -> int:
        return self.seed

    def reads(self, places: Set[int]) -> tuple[Set[int], ...]:
        return (places | {self.sequence},)

    @property
    def detail(self) -> str:
        return f"{self.percent:g} %"

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.seed, self.percent, self.sequence)

    def trace_column(self, place: int) -> int | None:
        return place

    def find_times(self) -> frozenset[int] | None:
        return self.trace_times()

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        (given,) = inputs
        return replace(given, arrivals=given.arrivals * self.percent / 100)

    def operator(self) -> Operator:
        return Sampling(self.seed, self.percent, self.sequence)


class Sampling:
    """Runs `Sample`."""

    def __init__(self, seed: int, percent: float, sequence: int) -> None:
        self._seed, self._percent, self._sequence = seed, percent, sequence
        self.needed: Set[int] | None = None

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        numbers = delta.rows.column(self._sequence).to_numpy(zero_copy_only=False)
        return delta.where(choose_sample(self._seed, numbers, self._percent), self.needed)

    def size(self) -> int:
        return 0
