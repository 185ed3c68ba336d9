"""CACQ's policy: a lottery among the modules, in which tickets are chances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millpond.engine.eddy.routing.policy import Account, Policy

#: How much more the better module is favoured than its tickets alone would.
_SHARPNESS = 3.0
#: The share of choices made by lottery instead of by the most tickets.
_EXPLORED = 0.03


class TicketPolicy(Policy):
    """The module with the most tickets; now and then a lottery chooses, to keep measuring the
    others (CACQ, section 4). The paper's lottery is always proportional; here a morsel is thousands
    of tuples, and one badly routed morsel costs as much as all of them, so the choice is greedy.

    A module nobody has visited is visited first: it may be the best.
    """

    name = "ticket"

    def choose(self, ready: Sequence[str], accounts: Mapping[str, Account]) -> str:
        for name in ready:
            if name not in accounts or accounts[name].came < 1.0:
                return name
        if len(ready) > 1 and self.random.random() < _EXPLORED:
            weights = [accounts[name].tickets ** (1 / _SHARPNESS) for name in ready]
            if any(weights):
                return self.random.choices(ready, weights)[0]
        return max(ready, key=lambda name: accounts[name].tickets)
