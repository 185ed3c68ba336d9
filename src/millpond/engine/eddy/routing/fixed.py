"""A static plan: modules in the order they were set up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millpond.engine.eddy.routing.policy import Account, Policy


class FixedPolicy(Policy):
    """Always the first ready module, as a plan made once would have it."""

    name = "fixed"

    def choose(self, ready: Sequence[str], accounts: Mapping[str, Account]) -> str:
        return ready[0]
