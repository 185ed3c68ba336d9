"""Routing policies: which of the modules that are ready a morsel visits next.

Each policy is a file with one class; the policies are interchangeable, and none changes an answer
(SEMANTICS, section 7, law 4). `policy` finds a policy by its name.
"""

from __future__ import annotations

from millpond.engine.eddy.routing.fixed import FixedPolicy
from millpond.engine.eddy.routing.policy import Account, Policy
from millpond.engine.eddy.routing.random import RandomPolicy
from millpond.engine.eddy.routing.ticket import TicketPolicy
from millpond.engine.eddy.routing.worst import WorstPolicy

__all__ = [
    "POLICIES",
    "Account",
    "FixedPolicy",
    "Policy",
    "RandomPolicy",
    "TicketPolicy",
    "WorstPolicy",
    "policy",
]

#: The policies by name.
POLICIES: dict[str, type[Policy]] = {
    "ticket": TicketPolicy,
    "fixed": FixedPolicy,
    "random": RandomPolicy,
    "worst": WorstPolicy,
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
