"""Regions in the order of their promise (promising tuples, sections 2, 4.1.1 and 4.1.2).

A region is a value in a zone of time. Its priority is the preference's value, times the fade factor
for every older granularity (with ASC divided by it). Where the summary expects nothing, and what no
zone covers, is of least promise. All regions are ranked at once, from matrices of estimates, and
looked at in three ways:

- DESC and ASC: one region after the other, from the greatest or the least priority on;
- WEIGHTED: all at once, in proportion to their priorities, so that any beginning of the sequence is
  a faithful sample.

The sequence of probes follows from the regions alone, so what comes behind the n-th probe can be
asked for later (`Probes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from millpond.engine.joins.keys import Keys, Numbers
from millpond.engine.promising.fair_order import FairQueue
from millpond.errors import MillpondError
from millpond.synopses.summaries.protocol import Estimates

#: Regions whose probes are counted at first; then twice as many each time.
_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Regions:
    """Regions, ranked: the most promising first.

    Attributes:
        keys: The value's key.
        value: The value's place among all values.
        since: The first instant of the zone.
        upto: The instant behind the zone.
        priority: The priority; −inf where nothing is expected.
        results: How many results the summaries expect of it.
        order: 'asc', 'desc' or 'weighted'.
    """

    keys: Keys
    value: Numbers
    since: Numbers
    upto: Numbers
    priority: Estimates
    results: Estimates
    order: str

    def __len__(self) -> int:
        return len(self.keys)

    def join(self, others: Regions) -> Regions:
        """These regions and others behind them."""
        return Regions(
            np.concatenate([self.keys, others.keys]),
            np.concatenate([self.value, others.value]),
            np.concatenate([self.since, others.since]),
            np.concatenate([self.upto, others.upto]),
            np.concatenate([self.priority, others.priority]),
            np.concatenate([self.results, others.results]),
            self.order,
        )

    def take(self, places: Numbers) -> Regions:
        """The regions at some places."""
        return Regions(
            self.keys[places],
            self.value[places],
            self.since[places],
            self.upto[places],
            self.priority[places],
            self.results[places],
            self.order,
        )


def rank_regions(
    keys: Keys,
    edges: Numbers,
    granularity: Numbers,
    priority: Estimates,
    results: Estimates,
    order: str,
    fade: float,
    low: int,
    high: int,
) -> tuple[Regions, Callable[[], Regions]]:
    """Rank the regions of a window; return those of which something is expected, and the others.

    The others, of least promise, are listed when they are asked for.

    Args:
        keys: The values.
        edges: The zones' ends, ascending: int64[zones + 1].
        granularity: The zones' granularities, 1 for the newest.
        priority: The preference: float64[zones, values].
        results: The results expected: float64[zones, values].
        order: 'asc', 'desc' or 'weighted'.
        fade: The fade factor.
        low: The window's first instant.
        high: Its last instant.

    Raises:
        MillpondError: POND-404, a priority is no number, or a weight is negative.
    """
    check_priorities(priority, order)
    # What is old is less promising, whichever end of the order that is.
    faded = priority * (1 / fade if order == "asc" else fade) ** (granularity - 1.0)[:, None]
    starts, ends = edges[:-1], edges[1:]
    inside = np.flatnonzero((ends > low) & (starts <= high))[::-1]
    # What no zone covers: from the last line on, and before the first zone.
    more = [(int(edges[-1]), high + 1), (low, int(edges[0]))]
    more = [(start, end) for start, end in more if start < end and end > low and start <= high]
    since = np.concatenate([starts[inside], np.array([start for start, _ in more], np.int64)])
    upto = np.concatenate([ends[inside], np.array([end for _, end in more], np.int64)])
    zone, value = np.nonzero(results[inside] > 0)
    promise, expected = faded[inside][zone, value], results[inside][zone, value]
    # Equal priorities: the newest zone first, then the least key; so no run differs from another.
    ranked = np.argsort(promise if order == "asc" else -promise, kind="stable")
    zone, value = zone[ranked], value[ranked]

    def list_rest() -> Regions:
        unlikely = np.ones((len(since), len(keys)), np.bool_)
        unlikely[: len(inside)] = results[inside] <= 0
        zone, value = np.nonzero(unlikely)
        nothing = np.zeros(len(zone))
        return Regions(
            keys[value], value, since[zone], upto[zone], nothing - np.inf, nothing, order
        )

    likely = Regions(
        keys[value], value, since[zone], upto[zone], promise[ranked], expected[ranked], order
    )
    return likely, list_rest


def check_priorities(priority: Estimates, order: str) -> None:
    """Check that priorities are numbers, and that weights are weights. Raises POND-404."""
    if np.isnan(priority).any():
        raise MillpondError(
            "POND-404",
            "a priority of the preference is no number",
            hint="Guard the expression, for example with COALESCE or NULLIF.",
        )
    if order == "weighted" and ((priority < 0).any() or np.isinf(priority).any()):
        raise MillpondError(
            "POND-404",
            "a weight of the preference is negative or infinite",
            detail="Time is divided in proportion to the weights.",
            hint="Write an expression that is at least 0, for example with greatest(x, 0).",
        )


#: Counts the probes of some regions.
Count = Callable[[Regions], Numbers]


@dataclass(frozen=True, eq=False)
class Looked:
    """A part of the sequence of probes: for each region of the part, which of its probes.

    Attributes:
        places: The regions, by their places in the ranking; ascending.
        first: The first probe of each region that is in the part.
        last: The probe behind the last one.
    """

    places: Numbers
    first: Numbers
    last: Numbers

    @property
    def probes(self) -> int:
        """How many probes the part has."""
        return int((self.last - self.first).sum())


class Probes:
    """The sequence of probes over ranked regions."""

    def __init__(self, regions: Regions, rest: Callable[[], Regions], count: Count) -> None:
        self.regions = regions
        self._rest: Callable[[], Regions] | None = rest
        self._count = count
        self._counts: Numbers = np.empty(0, np.int64)

    @property
    def total(self) -> int:
        """How many probes there are."""
        while self._count_more():
            pass
        return int(self._counts.sum())

    def _count_more(self) -> bool:
        """Count the probes of some more regions; False if there are no more."""
        start = len(self._counts)
        if start == len(self.regions):
            if self._rest is None:
                return False
            self.regions, self._rest = self.regions.join(self._rest()), None
        stop = min(max(2 * start, _AT_ONCE), len(self.regions))
        found = self._count(self.regions.take(np.arange(start, stop)))
        self._counts = np.concatenate([self._counts, found])
        return True

    def part(self, done: int, more: int) -> Looked:
        """The probes from number `done` to before `done + more`."""
        if self.regions.order == "weighted":
            return self._weighted_part(done, done + more)
        while self._counts.sum() < done + more and self._count_more():
            pass
        ends = np.cumsum(self._counts)
        starts = ends - self._counts
        first, last = np.clip(done - starts, 0, None), np.clip(done + more - starts, 0, None)
        first, last = np.minimum(first, self._counts), np.minimum(last, self._counts)
        places = np.flatnonzero(last > first)
        return Looked(places, first[places], last[places])

    def _weighted_part(self, done: int, upto: int) -> Looked:
        weighed = np.count_nonzero(self.regions.priority > 0)
        while len(self._counts) < weighed and self._count_more():
            pass
        while self._counts.sum() < upto and self._count_more():
            pass
        counts = self._counts
        first, last = self._share(counts, done), self._share(counts, upto)
        places = np.flatnonzero(last > first)
        return Looked(places, first[places], last[places])

    def _share(self, counts: Numbers, probes: int) -> Numbers:
        """How many of the first `probes` probes each region has, in proportion to the weights.

        Regions without a weight come after all others, one after the other.
        """
        weighted = np.flatnonzero(self._weights[: len(counts)] > 0)
        rest = np.flatnonzero(self._weights[: len(counts)] <= 0)
        own = counts[weighted]
        nothing, budget = np.zeros(len(own), np.int64), np.array([probes], np.int64)
        taken = np.zeros(len(counts), np.int64)
        taken[weighted], _ = self._queue(weighted).divide(nothing, nothing, own, budget)
        starts = np.cumsum(counts[rest]) - counts[rest]
        taken[rest] = np.clip(probes - int(own.sum()) - starts, 0, counts[rest])
        return taken

    @property
    def _weights(self) -> Estimates:
        priority = self.regions.priority
        return np.where(np.isfinite(priority), priority, 0.0)

    def _queue(self, places: Numbers) -> FairQueue:
        hashed = self.regions.keys[places] ^ self.regions.since[places].view(np.uint64)
        return FairQueue.of(self._weights[places], hashed.view(np.int64))

    def sort(self, part: Looked) -> Numbers:
        """The order in which a part's probes are made, as places in their list region by region."""
        counts = part.last - part.first
        every = np.arange(part.probes)
        if self.regions.order != "weighted":
            return every
        region = np.repeat(np.arange(len(counts)), counts)
        number = every - (np.cumsum(counts) - counts - part.first)[region] + 1
        times = self._queue(part.places).find_times(region, number)
        times[self._weights[part.places][region] <= 0] = np.inf
        return np.argsort(times, kind="stable")
