"""Regions that wait to be looked at, of many queries: which probes a budget allows, and in which
order (promising tuples, sections 4.1.1 and 4.1.2).

The regions of all queries are one array, so they are ranked by one sort and not query by query. A
region names a value, a span of time that is looked through and, of a join, the span of the elements
that are looked up in it. `done` of its probes are made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millpond.engine.joins.keys import Keys, Numbers, mix_numbers
from millpond.engine.promising.fair_order import FairQueue
from millpond.synopses.summaries.protocol import Estimates

#: A region that waits: the query's place in its family; the value's key; the span [since, upto)
#: that is looked through; of a join the span [low, high) of the elements looked up; the priority
#: when it came; the results expected of it; the probes made; the query's clock when it came.
REGION = np.dtype(
    [
        ("query", np.int64),
        ("key", np.uint64),
        ("since", np.int64),
        ("upto", np.int64),
        ("low", np.int64),
        ("high", np.int64),
        ("priority", np.float64),
        ("results", np.float64),
        ("done", np.int64),
        ("begun", np.float64),
    ]
)
Waiting = npt.NDArray[np.void]

ORDERS = ("desc", "asc", "weighted")
WEIGHTED = ORDERS.index("weighted")


@dataclass(frozen=True, eq=False)
class Chosen:
    """What a budget allows.

    Attributes:
        places: The regions that are looked at, query by query, the most promising first; with
            WEIGHTED a region comes once for each of its probes.
        offset: How many of a region's probes come before, in this choice.
        probes: How many probes each of them gets now.
        clocks: The queries' clocks after that.
    """

    places: Numbers
    offset: Numbers
    probes: Numbers
    clocks: Estimates


def choose(
    waiting: Waiting,
    left: Numbers,
    priority: Estimates,
    orders: Numbers,
    budgets: Numbers,
    clocks: Estimates,
) -> Chosen:
    """Choose the probes that are made next.

    DESC and ASC take region after region. WEIGHTED divides the probes in proportion to the
    priorities (`fair_order.py`). Regions of which nothing is expected come last; among equals the
    newest, then the least key.

    Args:
        waiting: The regions.
        left: How many probes each region has left.
        priority: What each is worth now: its priority, faded.
        orders: By query, a place in `ORDERS`.
        budgets: By query, how many probes it has.
        clocks: By query, the clock of WEIGHTED.
    """
    query = waiting["query"]
    asc, weighted = orders[query] == 1, orders[query] == WEIGHTED
    last = (waiting["results"] <= 0) | (weighted & ~(priority > 0))
    signed = np.where(asc, priority, np.where(weighted & ~last, 0.0, -priority))
    rank = np.lexsort((waiting["key"], -waiting["since"], signed, last, query))
    taken = np.zeros(len(waiting), np.int64)
    fair = np.flatnonzero(weighted & ~last)
    shared = offset = np.empty(0, np.int64)
    if len(fair):
        own, weights = waiting[fair], priority[fair]
        queue = FairQueue.of(weights, _hash(own), own["begun"])
        taken[fair], reached = queue.divide(own["query"], own["done"], left[fair], budgets)
        short = np.bincount(own["query"], left[fair], minlength=len(budgets)) > budgets
        clocks = np.where(short, np.maximum(clocks, reached), clocks)
        which, offset = _list_probes(queue, own, taken[fair])
        shared = fair[which]
    rest = np.where(weighted & ~last, 0, left)[rank]
    owner = query[rank]
    ends = np.cumsum(rest)
    firsts = np.searchsorted(owner, np.arange(len(budgets)))
    before = ends - rest
    base = np.append(before, ends[-1:] if len(ends) else 0)[firsts]
    free = budgets - np.bincount(query, taken, minlength=len(budgets)).astype(np.int64)
    probes = np.clip(free[owner] - (before - base[owner]), 0, rest)
    others = np.flatnonzero(probes)
    places = np.concatenate([shared, rank[others]])
    offset = np.concatenate([offset, np.zeros(len(others), np.int64)])
    probes = np.concatenate([np.ones(len(shared), np.int64), probes[others]])
    order = np.argsort(query[places], kind="stable")
    return Chosen(places[order], offset[order], probes[order], clocks)


def _list_probes(queue: FairQueue, waiting: Waiting, taken: Numbers) -> tuple[Numbers, Numbers]:
    """List the next probes of regions, as the queue has them: the region, and which of its next."""
    region = np.repeat(np.arange(len(waiting)), taken)
    offset = np.arange(len(region)) - (np.cumsum(taken) - taken)[region]
    times = queue.find_times(region, waiting["done"][region] + offset + 1)
    order = np.argsort(times, kind="stable")
    return region[order], offset[order]


def _hash(waiting: Waiting) -> Keys:
    spans = waiting["since"].astype(np.uint64) ^ mix_numbers(waiting["low"].astype(np.int64))
    return np.asarray(waiting["key"] ^ spans)
