"""First in, first out: each slice is processed to completion before the next."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.engine.dataflow.scheduling.protocol import OperatorRates, Ready, find_oldest


class Fifo:
    """Runs the operators in the order of the slices (strategy 1 of CIDR 4.2)."""

    def learn(self, operators: Sequence[OperatorRates]) -> None:
        pass

    def choose(self, ready: Sequence[Ready], now: float) -> Ready:
        return find_oldest(ready)
