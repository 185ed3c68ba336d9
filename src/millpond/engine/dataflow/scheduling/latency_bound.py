"""A bound on how long a slice waits, over another policy (Bulletin section 5)."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.engine.dataflow.scheduling.protocol import (
    OperatorRates,
    Ready,
    SchedulingPolicy,
    find_oldest,
)


class LatencyBound:
    """Obeys another policy as long as there is time to finish all that waits.

    When finishing all that waits would take as long as the oldest slice may still wait, the oldest
    slice goes first.

    INV-LATENCY-1: with constant rates, a slice is late only if it would be late by `Fifo` as well.
    """

    def __init__(self, policy: SchedulingPolicy, seconds: float) -> None:
        """Obey `policy` as long as every slice can leave within `seconds`."""
        self._policy = policy
        self._seconds = seconds
        #: By place, the time that a unit takes from there on.
        self._rest: list[float] = []

    def learn(self, operators: Sequence[OperatorRates]) -> None:
        self._policy.learn(operators)
        self._rest = [0.0] * len(operators)
        for place in reversed(range(len(operators))):
            one = operators[place]
            after = sum(self._rest[reader] for reader in one.readers)
            self._rest[place] = one.cost + one.selectivity * after

    def choose(self, ready: Sequence[Ready], now: float) -> Ready:
        oldest = min(one.arrived for one in ready)
        if now + sum(one.size * self._rest[one.place] for one in ready) >= oldest + self._seconds:
            return find_oldest(ready)
        return self._policy.choose(ready, now)
