"""Round robin: the operators in turn."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.engine.dataflow.scheduling.protocol import OperatorRates, Ready


class RoundRobin:
    """Runs the operators in turn, one slice each (STREAM's first scheduler, CIDR 4.2)."""

    def __init__(self) -> None:
        self._last = -1

    def learn(self, operators: Sequence[OperatorRates]) -> None:
        pass

    def choose(self, ready: Sequence[Ready], now: float) -> Ready:
        chosen = next((one for one in ready if one.place > self._last), ready[0])
        self._last = chosen.place
        return chosen
