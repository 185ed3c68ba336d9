"""The scheduling policies by name, as the setting `scheduler` names them."""

from __future__ import annotations

from millpond.engine.dataflow.scheduling.chain import Chain
from millpond.engine.dataflow.scheduling.fifo import Fifo
from millpond.engine.dataflow.scheduling.greedy import Greedy
from millpond.engine.dataflow.scheduling.latency_bound import LatencyBound
from millpond.engine.dataflow.scheduling.protocol import SchedulingPolicy
from millpond.engine.dataflow.scheduling.round_robin import RoundRobin

_POLICIES: dict[str, type[Fifo] | type[RoundRobin] | type[Greedy] | type[Chain]] = {
    "fifo": Fifo,
    "round robin": RoundRobin,
    "greedy": Greedy,
    "chain": Chain,
}

#: The names of the policies; the first is the default.
NAMES = tuple(_POLICIES)


def make_policy(name: str, latency: float | None = None) -> SchedulingPolicy:
    """Make a policy.

    Args:
        name: One of `NAMES`.
        latency: The seconds after which a slice goes before all others; None: never.
    """
    policy = _POLICIES[name]()
    return policy if latency is None else LatencyBound(policy, latency)
