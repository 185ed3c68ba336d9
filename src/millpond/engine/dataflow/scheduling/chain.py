"""Chain: of the steepest chains, the oldest slice."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.engine.dataflow.scheduling.progress_chart import find_steepness
from millpond.engine.dataflow.scheduling.protocol import OperatorRates, Ready, find_oldest


class Chain:
    """Runs chains of operators in the order of their steepness (CIDR 4.2, Bulletin section 3).

    INV-CHAIN-1: over a path with constant rates, at every moment at most one unit per chain more
    waits than any schedule could have left.
    """

    def __init__(self) -> None:
        self._steepness: list[float] = []

    def learn(self, operators: Sequence[OperatorRates]) -> None:
        self._steepness = find_steepness(operators)

    def choose(self, ready: Sequence[Ready], now: float) -> Ready:
        best = max(self._steepness[one.place] for one in ready)
        return find_oldest([one for one in ready if self._steepness[one.place] == best])
