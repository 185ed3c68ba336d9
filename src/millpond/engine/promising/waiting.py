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


@dataclass(frozen=True, eq=False)
class Chosen:
    """What a budget allows.

    Attributes:
        places: The regions that are looked at, query by query, the most promising first.
        probes: How many probes each of them gets now.
        clocks: The queries' clocks after that.
    """

    places: Numbers
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
    priorities, as a fair queue does: a region of weight w that came at the clock c has its j-th
    probe at c + (j − u) / w, with u a hash of the region. Regions of which nothing is expected come
    last; among equals the newest, then the least key.

    Args:
        waiting: The regions.
        left: How many probes each region has left.
        priority: What each is worth now: its priority, faded.
        orders: By query, a place in `ORDERS`.
        budgets: By query, how many probes it has.
        clocks: By query, the clock of WEIGHTED.
    """
    query = waiting["query"]
    asc, weighted = orders[query] == 1, orders[query] == 2
    last = (waiting["results"] <= 0) | (weighted & ~(priority > 0))
    signed = np.where(asc, priority, np.where(weighted & ~last, 0.0, -priority))
    rank = np.lexsort((waiting["key"], -waiting["since"], signed, last, query))
    taken = np.zeros(len(waiting), np.int64)
    fair = np.flatnonzero(weighted & ~last)
    clocks = clocks.copy()
    if len(fair):
        taken[fair] = _share(waiting[fair], left[fair], priority[fair], budgets, clocks)
    rest = np.where(weighted & ~last, 0, left)[rank]
    owner = query[rank]
    ends = np.cumsum(rest)
    firsts = np.searchsorted(owner, np.arange(len(budgets)))
    before = ends - rest
    base = np.append(before, ends[-1:] if len(ends) else 0)[firsts]
    free = budgets - np.bincount(query, taken, minlength=len(budgets)).astype(np.int64)
    taken[rank] += np.clip(free[owner] - (before - base[owner]), 0, rest)
    places = rank[taken[rank] > 0]
    return Chosen(places, taken[places], clocks)


def _share(
    waiting: Waiting, left: Numbers, weights: Estimates, budgets: Numbers, clocks: Estimates
) -> Numbers:
    """Divide each query's budget in proportion to the weights; `clocks` are moved on in place."""
    query, count = waiting["query"], len(budgets)
    u = (mix_numbers(_hash(waiting)) >> np.uint64(11)) / float(1 << 53)

    def made(at: Estimates) -> Numbers:
        due = np.floor((at[query] - waiting["begun"]) * weights + u) - waiting["done"]
        return np.clip(due, 0, left).astype(np.int64)

    total = np.bincount(query, left, minlength=count)
    end = waiting["begun"] + (waiting["done"] + left + 1) / weights
    low, high = clocks.copy(), clocks.copy()
    np.maximum.at(high, query, end)
    short = total > budgets
    for _ in range(80):
        middle = (low + high) / 2
        fits = np.bincount(query, made(middle), minlength=count) <= budgets
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    own = np.where(short[query], made(low), left)
    # Probes that come at one moment: of the first regions as many as there is room for.
    room = budgets - np.bincount(query, own, minlength=count).astype(np.int64)
    ties = np.flatnonzero(short[query] & (made(high) > own))
    ties = ties[np.argsort(query[ties], kind="stable")]
    starts = np.searchsorted(query[ties], np.arange(count))
    own[ties[np.arange(len(ties)) - starts[query[ties]] < room[query[ties]]]] += 1
    clocks[:] = np.where(short, low, clocks)
    return own


def _hash(waiting: Waiting) -> Keys:
    spans = waiting["since"].astype(np.uint64) ^ mix_numbers(waiting["low"].astype(np.int64))
    return np.asarray(waiting["key"] ^ spans)
