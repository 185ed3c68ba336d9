"""The opposite of what the tickets say: how bad routing can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millpond.engine.eddy.routing.policy import Account, Policy


class Worst(Policy):
    """The module with the fewest tickets, once each is known."""

    name = "worst"

    def choose(self, ready: Sequence[str], accounts: Mapping[str, Account]) -> str:
        for name in ready:
            if name not in accounts or accounts[name].came < 1.0:
                return name
        return min(ready, key=lambda name: accounts[name].tickets)
