"""What a scheduling policy is told, and what it answers.

A policy is pure: it has no clock and no operators, and the same calls get the same answers. It
never alters a change, only how much waits in the queues meanwhile, and for how long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class OperatorRates:
    """An operator as a policy sees it.

    Attributes:
        readers: The places of the operators that read its output.
        cost: The seconds it takes for one unit of its input.
        selectivity: How many units it puts out for one unit of its input.
    """

    readers: tuple[int, ...]
    cost: float
    selectivity: float


@dataclass(frozen=True)
class Ready:
    """An operator that can run: a slice waits in each of its queues.

    Attributes:
        place: Its place among the operators; operators come after those they read.
        oldest: The number of the oldest slice that waits for it; slices are numbered in the order
            of their instants.
        arrived: When that slice came into the dataflow.
        size: How much waits for it in all, in units of its input.
    """

    place: int
    oldest: int
    arrived: float
    size: float


class SchedulingPolicy(Protocol):
    """Says which operator runs next."""

    def learn(self, operators: Sequence[OperatorRates]) -> None:
        """Take note of the operators, by place; called before `choose`, and again later on."""
        ...

    def choose(self, ready: Sequence[Ready], now: float) -> Ready:
        """Choose one of the operators that can run, at least one, in the order of their places."""
        ...


def find_oldest(ready: Sequence[Ready]) -> Ready:
    """The operator of the oldest slice; of several, the first in the order of the places.

    Places are in depth-first order, so this runs a slice to completion before the next.
    """
    return min(ready, key=lambda one: (one.oldest, one.place))
