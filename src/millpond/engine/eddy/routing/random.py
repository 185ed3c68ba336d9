"""Any module, with equal chances: the comparison of CACQ's figure 8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millpond.engine.eddy.routing.policy import Account, Policy


class RandomPolicy(Policy):
    """A ready module at random."""

    name = "random"

    def choose(self, ready: Sequence[str], accounts: Mapping[str, Account]) -> str:
        return self.random.choice(ready)
