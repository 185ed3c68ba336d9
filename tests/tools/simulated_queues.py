"""A plan of one stream on a simulated clock: what waits in its queues by policy and by optimum.

Time goes by units. Batches of size 1 arrive at given times; in each unit one operator works on the
oldest batch in its queue. A batch keeps its size until the operator has worked on it for its cost,
counted per batch of the operator's own input; then it has the operator's selectivity times the size
and waits for the next operator. What the last operator puts out is the result and waits nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from millpond.engine.dataflow.scheduling.protocol import OperatorRates, Ready, SchedulingPolicy


@dataclass(frozen=True)
class Stage:
    """An operator: units of time for a batch as large as it gets it, and its selectivity."""

    time: int
    selectivity: Fraction


@dataclass
class SimulatedRun:
    """What happened: the total size of the queues at each time, and each batch's latency."""

    sizes: list[Fraction] = field(default_factory=list)
    latencies: list[int] = field(default_factory=list)


def list_sizes(stages: Sequence[Stage]) -> list[Fraction]:
    """The size of a batch in front of each operator, and behind the last one: 0."""
    sizes = [Fraction(1)]
    for stage in stages:
        sizes.append(sizes[-1] * stage.selectivity)
    return [*sizes[:-1], Fraction(0)]


def to_rates(stages: Sequence[Stage]) -> list[OperatorRates]:
    """The operators as a policy is told of them; the result leaves the queues."""
    sizes = list_sizes(stages)
    last = len(stages) - 1
    return [
        OperatorRates(
            () if place == last else (place + 1,),
            float(stage.time / sizes[place]) if sizes[place] else 0.0,
            0.0 if place == last else float(stage.selectivity),
        )
        for place, stage in enumerate(stages)
    ]


def simulate(
    policy: SchedulingPolicy, stages: Sequence[Stage], arrivals: Sequence[int], until: int
) -> SimulatedRun:
    """Run a plan by a policy.

    Args:
        policy: The policy.
        stages: The operators, in their order.
        arrivals: When batches arrive, ascending; several may arrive at once.
        until: The last time to look at.
    """
    policy.learn(to_rates(stages))
    sizes, run = list_sizes(stages), SimulatedRun()
    #: Of each batch that arrived: the stage it waits for, and how long that worked on it.
    batches: list[list[int]] = []
    for now in range(until + 1):
        batches += [[0, 0] for at in arrivals if at == now]
        run.sizes.append(sum((sizes[stage] for stage, _ in batches), Fraction(0)))
        waiting: dict[int, list[int]] = {}
        for number, (stage, _) in enumerate(batches):
            if stage < len(stages):
                waiting.setdefault(stage, []).append(number)
        if not waiting:
            continue
        ready = [
            Ready(
                stage, some[0], arrivals[some[0]], float(_count_left(batches, some, stages, sizes))
            )
            for stage, some in sorted(waiting.items())
        ]
        batch = batches[waiting[policy.choose(ready, now).place][0]]
        batch[1] += 1
        if batch[1] == stages[batch[0]].time:
            batch[:] = [batch[0] + 1, 0]
            if batch[0] == len(stages):
                number = next(n for n, one in enumerate(batches) if one is batch)
                run.latencies.append(now + 1 - arrivals[number])
    return run


def _count_left(
    batches: list[list[int]], some: list[int], stages: Sequence[Stage], sizes: list[Fraction]
) -> Fraction:
    """The size of what waits for an operator; a whole batch although a part of it is done."""
    return sum((sizes[batches[number][0]] for number in some), Fraction(0))


def find_least_sizes(
    stages: Sequence[Stage], arrivals: Sequence[int], until: int
) -> list[Fraction]:
    """Find by trying all schedules the least total size that is possible at each time.

    Each time has a minimum of its own: no single schedule need reach all of them.
    """
    sizes, done = list_sizes(stages), sum(stage.time for stage in stages)
    #: The size of a batch by the units of time that were spent on it.
    by_work = [sizes[place] for place, stage in enumerate(stages) for _ in range(stage.time)]
    by_work.append(Fraction(0))
    states: set[tuple[int, ...]] = {()}
    least = []
    for now in range(until + 1):
        come = (0,) * sum(at == now for at in arrivals)
        states = {tuple(sorted((*state, *come))) for state in states}
        least.append(min(sum((by_work[work] for work in state), Fraction(0)) for state in states))
        following: set[tuple[int, ...]] = set()
        for state in states:
            unfinished = [place for place, work in enumerate(state) if work < done]
            for place in unfinished:
                if place and state[place] == state[place - 1]:
                    continue
                moved = (*state[:place], state[place] + 1, *state[place + 1 :])
                following.add(tuple(sorted(moved)))
            if not unfinished:
                following.add(state)
        states = following
    return least
