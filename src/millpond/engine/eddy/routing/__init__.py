"""Routing policies: which of the modules that are ready a morsel visits next.

Each policy is a file with one class; the policies are interchangeable, and none changes an answer
(SEMANTICS, section 7, law 4). `policy` finds a policy by its name.
"""

from __future__ import annotations

from millpond.engine.eddy.routing.fixed import Fixed
from millpond.engine.eddy.routing.policy import Account, Policy
from millpond.engine.eddy.routing.random import Random
from millpond.engine.eddy.routing.ticket import Ticket
from millpond.engine.eddy.routing.worst import Worst

__all__ = ["POLICIES", "Account", "Fixed", "Policy", "Random", "Ticket", "Worst", "policy"]

#: The policies by name.
POLICIES: dict[str, type[Policy]] = {
    "ticket": Ticket,
    "fixed": Fixed,
    "random": Random,
    "worst": Worst,
}


def policy(name: str, seed: int = 0) -> Policy:
    """Make the policy of this name.

    Raises:
        ValueError: there is no such policy.
    """
    try:
        return POLICIES[name](seed)
    except KeyError:
        raise ValueError(f"no routing policy {name!r}: {', '.join(POLICIES)}") from None
