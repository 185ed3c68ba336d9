"""The opposite of the ticket policy, to measure how much bad routing costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millpond.engine.eddy.routing.policy import Account, Policy


class WorstPolicy(Policy):
    """The module with the fewest tickets, once each module has been visited."""

    name = "worst"

    def choose(self, ready: Sequence[str], accounts: Mapping[str, Account]) -> str:
        for name in ready:
            if name not in accounts or accounts[name].came < 1.0:
                return name
        return min(ready, key=lambda name: accounts[name].tickets)
