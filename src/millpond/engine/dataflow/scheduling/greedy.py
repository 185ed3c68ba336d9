"""Greedy: the operator that takes most out of the queues for its time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from millpond.engine.dataflow.scheduling.protocol import OperatorRates, Ready


class Greedy:
    """Runs the operator that removes most per second, looking at single operators (CIDR 4.2).

    An operator of great benefit waits behind one of little benefit that feeds it; `Chain` differs.
    """

    def __init__(self) -> None:
        self._benefits: list[float] = []

    def learn(self, operators: Sequence[OperatorRates]) -> None:
        self._benefits = [
            (1.0 - one.selectivity) / one.cost if one.cost > 0 else math.inf for one in operators
        ]

    def choose(self, ready: Sequence[Ready], now: float) -> Ready:
        return min(ready, key=lambda one: (-self._benefits[one.place], one.oldest, one.place))
