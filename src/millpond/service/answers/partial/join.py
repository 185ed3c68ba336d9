"""Joins of two streams in parts (promising tuples, section 4.1).

A probe is one element of the first stream that is looked up in one zone of the other (figure 7).
Which of the two streams is looked up in by zones is said by the preference: the last one that it
estimates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engine.joins.keys import Keys, Numbers, axis_of
from millpond.engine.promising.promise import estimate_regions, merge_zones, prioritize
from millpond.engine.promising.regions import Looked, Probes, Regions, rank_regions
from millpond.engine.promising.value_index import Elements, ValueIndex
from millpond.engine.scalars.residual_query import Residual
from millpond.errors import MillpondError
from millpond.planner.bind.preference import BoundPreference
from millpond.service.answers.partial.looking import LookedLeaf
from millpond.synopses.summaries.protocol import Estimates
from millpond.synopses.summaries.stream_summary import StreamSummary

#: Probes, and pairs, that are held at once.
PIECE = 1 << 18


@dataclass(frozen=True, eq=False)
class Pairs:
    """Joined rows: the rows of each stream, and for each pair the row of either."""

    tables: tuple[pa.Table, pa.Table]
    places: tuple[Numbers, Numbers]

    def __len__(self) -> int:
        return len(self.places[0])


class JoinRun:
    """One answer in parts from two streams.

    Pairs are given to `receive`, at most `PIECE` at once, in the order found.

    Attributes:
        total: How many pairs of equal keys the windows have, counted and not looked at.
    """

    def __init__(
        self,
        leaves: Sequence[LookedLeaf],
        keys: tuple[str, str],
        residual: Residual,
        preference: BoundPreference,
        receive: Callable[[Pairs], None],
    ) -> None:
        self.leaves = leaves
        self._receive = receive
        fields = [looked.stream.schema.find(key) for looked, key in zip(leaves, keys, strict=True)]
        types = [field.type if field is not None else "" for field in fields]
        axis = axis_of(*types)
        own = [axis_of(type, type) for type in types]
        if axis is None or any(kind is not axis for kind in own):
            raise MillpondError(
                "CQL-224",
                f"{types[0]} and {types[1]} cannot be looked up in each other",
                hint="Declare the columns of the join with one type.",
            )
        self._indexes = [looked.index(key, axis) for looked, key in zip(leaves, keys, strict=True)]
        #: The leaf whose zones are ranked, and the one whose elements are looked up.
        self.zoned = 1 if preference.attributes[1] is not None else 0
        self._probes = self._rank(preference, residual)

    def _rank(self, preference: BoundPreference, residual: Residual) -> Probes:
        zoned, other = self.zoned, 1 - self.zoned
        looked = self.leaves[zoned]
        summary = looked.summary
        assert summary is not None
        here, there = self._indexes[zoned], self._indexes[other]
        keys, places, _ = np.intersect1d(
            here.keys, there.keys, assume_unique=True, return_indices=True
        )
        codes = here.codes()[places]
        self._lookups = self._count_all(there, self.leaves[other], keys)
        self.total = int((self._lookups * self._count_all(here, looked, keys)).sum())
        counts = summary.count_by_zone(codes)
        matrices = [
            self._estimate(r.leaf, r.estimate.kind, counts, codes) for r in preference.estimates
        ]
        values = {leaf: here.values(places) for leaf in (0, 1) if f"v{leaf}" in preference.sql}
        priority = prioritize(residual, preference, matrices, values, counts)
        regions, rest = rank_regions(
            keys,
            summary.zones.edges,
            summary.zones.granularity,
            priority,
            counts * self._lookups,
            preference.order,
            preference.fade,
            looked.low,
            looked.high,
        )
        return Probes(regions, rest, self._count)

    def _estimate(self, leaf: int, kind: str, counts: Estimates, codes: Numbers) -> Estimates:
        looked = self.leaves[leaf]
        summary = looked.summary
        assert summary is not None
        if leaf == self.zoned:
            return estimate_regions(summary, kind, counts, codes)
        whole: StreamSummary = merge_zones(summary, looked.low, looked.high)
        return estimate_regions(whole, kind, whole.kind.count(whole.cells, codes), codes)

    @staticmethod
    def _count_all(index: ValueIndex, looked: LookedLeaf, keys: Keys) -> Numbers:
        since = np.full(len(keys), looked.low)
        return index.count(keys, since, np.full(len(keys), looked.high + 1))

    def _count(self, regions: Regions) -> Numbers:
        """The look-ups of each region; none where nothing was expected and there is nothing."""
        lookups = self._lookups[regions.value]
        there = self._indexes[self.zoned].count(regions.keys, regions.since, regions.upto)
        return np.where((regions.results > 0) | (there > 0), lookups, 0)

    def look(self, done: int, more: int) -> int:
        """Make the probes from number `done` on; say how many there were."""
        made = 0
        while made < more:
            part = self._probes.part(done + made, min(more - made, PIECE))
            if not part.probes:
                break
            made += part.probes
            for pairs in self._find_pairs(part):
                self._receive(pairs)
        return made

    def count_passed(self, probes: int) -> int:
        """How many pairs of equal keys the first probes meet."""
        part = self._probes.part(0, probes)
        regions = self._probes.regions.take(part.places)
        there = self._indexes[self.zoned].count(regions.keys, regions.since, regions.upto)
        return int((there * (part.last - part.first)).sum())

    def _find_pairs(self, part: Looked) -> Iterator[Pairs]:
        zoned, other = self.zoned, 1 - self.zoned
        regions = self._probes.regions.take(part.places)
        theirs = self.leaves[other]
        since = np.full(len(regions), theirs.low)
        upto = np.full(len(regions), theirs.high + 1)
        region, elements = self._indexes[other].list_elements(regions.keys, since, upto)
        starts = np.searchsorted(region, np.arange(len(regions)))
        rank = np.arange(len(region)) - starts[region]
        chosen = np.flatnonzero((rank >= part.first[region]) & (rank < part.last[region]))
        chosen = chosen[self._probes.sort(part)]
        probing = self._take(other, region[chosen], (elements[0][chosen], elements[1][chosen]))
        region, elements = self._indexes[zoned].list_elements(
            regions.keys, regions.since, regions.upto
        )
        probed = self._take(zoned, region, elements)
        for left, right in _cross(probing[1], probed[1], len(regions)):
            sides = [_use(probing[0], left), _use(probed[0], right)]
            first, second = sides if other == 0 else sides[::-1]
            yield Pairs((first[0], second[0]), (first[1], second[1]))

    def _take(self, leaf: int, region: Numbers, elements: Elements) -> tuple[pa.Table, Numbers]:
        """The rows that match the leaf's own predicate, and the region of each."""
        table, kept = self.leaves[leaf].take(elements)
        return table, region[kept]


def _cross(left: Numbers, right: Numbers, count: int) -> Iterator[tuple[Numbers, Numbers]]:
    """Pair each row with each row of the same region, at most `PIECE` pairs at once.

    Args:
        left: The regions of the rows on one side.
        right: Those of the other side; ascending.
        count: How many regions there are.
    """
    theirs = np.bincount(right, minlength=count)
    others = np.cumsum(theirs) - theirs
    ends = np.cumsum(theirs[left])
    begins = ends - theirs[left]
    total = int(ends[-1]) if len(left) else 0
    for begin in range(0, total, PIECE):
        pair = np.arange(begin, min(begin + PIECE, total))
        row = np.searchsorted(ends, pair, side="right")
        yield row, others[left[row]] + pair - begins[row]


def _use(table: pa.Table, places: Numbers) -> tuple[pa.Table, Numbers]:
    """The rows at some places, each once, and for each place which of them it is."""
    used, which = np.unique(places, return_inverse=True)
    if len(used) < table.num_rows:
        table = table.take(pa.array(used))
        places = which.reshape(-1)
    return table, places
