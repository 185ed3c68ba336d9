"""Progress charts and their lower envelopes (Babcock et al., Chain, SIGMOD 2003, section 3).

A progress chart shows how large a unit of input still is after each operator of a path, by the time
spent on it. Its lower envelope goes from the beginning to the point that is reached by the steepest
descent, and on from there. The operators of one of its segments are a chain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from millpond.engine.dataflow.scheduling.protocol import OperatorRates


def find_steepness(operators: Sequence[OperatorRates]) -> list[float]:
    """Find for each operator how steep the chain is that it belongs to: units per second.

    A path ends where several operators read one output, because that leaves the queues only when
    the last of them has read it. An operator of several paths, such as those over a join, belongs
    to the steepest of its chains.
    """
    steepness = [-math.inf] * len(operators)
    read = {place for one in operators if len(one.readers) == 1 for place in one.readers}
    for start in range(len(operators)):
        if start in read:
            continue
        path = [start]
        while len(readers := operators[path[-1]].readers) == 1:
            path.append(readers[0])
        for chain, steep in find_chains([operators[place] for place in path]):
            for position in chain:
                place = path[position]
                steepness[place] = max(steepness[place], steep)
    return steepness


def find_chains(path: Sequence[OperatorRates]) -> list[tuple[range, float]]:
    """Cut a path into chains; return the positions of each chain and its steepness.

    >>> one = [OperatorRates((1,), 1.0, 1.0), OperatorRates((2,), 1.0, 0.1)]
    >>> find_chains([*one, OperatorRates((), 10.0, 0.0)])
    [(range(0, 2), 0.45), (range(2, 3), 0.1)]
    """
    times, sizes = [0.0], [1.0]
    for one in path:
        times.append(times[-1] + one.cost * sizes[-1])
        sizes.append(sizes[-1] * one.selectivity)
    found, start = [], 0
    while start < len(path):
        best, end = -math.inf, start + 1
        for stop in range(start + 1, len(path) + 1):
            spent, gone = times[stop] - times[start], sizes[start] - sizes[stop]
            steep = gone / spent if spent > 0 else math.copysign(math.inf, gone) if gone else 0.0
            if steep >= best:
                best, end = steep, stop
        found.append((range(start, end), best))
        start = end
    return found
