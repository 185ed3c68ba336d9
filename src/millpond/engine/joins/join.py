"""Joining: composites of some streams probe the SteM of another, until all are together.

PSoup's hybrid structs (VLDB 2002, section 3.2.2) are tuples that found partners in some streams
and still look for others. A `Composites` holds many such tuples, as places in the Data SteMs of
the streams they are made of. Such a batch is the paper's composite tuple (section 5.4), and a
probe is one sort-merge (`engine/joins/probe.py`). The eddy chooses which SteM is probed next.

A morsel that grows by a probe is not cut again: only the limit of pairs bounds its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from millpond.engine.eddy.eddy import Eddy
from millpond.engine.eddy.routing import Policy
from millpond.engine.eddy.routing.fixed import FixedPolicy
from millpond.engine.joins.arrangement import SortedRun, build
from millpond.engine.joins.join_stem import JoinSteM, QuerySets, StemPart
from millpond.engine.joins.keys import CodedColumn, Mask, Numbers, combine_columns
from millpond.engine.joins.plan import JoinPlan, Link, Operand, ProbeStep
from millpond.engine.joins.probe import GREATEST, LEAST, Stretches, expand, probe

#: Tuples that set out together.
MORSEL = 65_536


class TooManyPairs(Exception):
    """A join found more pairs than its limit."""

    def __init__(self, pairs: int, most: int) -> None:
        super().__init__(f"{pairs} pairs, and at most {most} are allowed")
        self.pairs = pairs


@dataclass(frozen=True, eq=False)
class Reach:
    """How long an element can be joined with later ones, by stream: the largest windows.

    Elements of streams i and j are in their windows together at some instant exactly if
    ts_j − ts_i < T_i where i is older, and ts_i − ts_j < T_j where j is older. None means for ever.
    """

    spans: tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class Composites:
    """Tuples made of one element of each of some streams: a virtual source.

    Attributes:
        places: For each of the streams, the places of the elements in its Data SteM.
        count: How many tuples.
        sets: Their query sets, or None when all are full.
    """

    places: dict[int, Numbers]
    count: int
    sets: QuerySets | None = None

    def __len__(self) -> int:
        return self.count

    @property
    def source(self) -> frozenset[int]:
        """The numbers of the streams the tuples are made of."""
        return frozenset(self.places)

    def take(self, chosen: Numbers | Mask) -> Composites:
        places = {leaf: own[chosen] for leaf, own in self.places.items()}
        sets = None if self.sets is None else self.sets[chosen]
        return Composites(places, len(next(iter(places.values()))), sets)


@dataclass(eq=False)
class PairLimit:
    """How many pairs a join may still find."""

    most: int
    found: int = 0

    def spend(self, pairs: int) -> None:
        """Take `pairs` off the budget; raises TooManyPairs before the pairs are made."""
        self.found += pairs
        if self.found > self.most:
            raise TooManyPairs(self.found, self.most)


@dataclass(eq=False)
class SteMProbe:
    """The module that probes one stream's SteM."""

    plan: JoinPlan
    leaf: int
    stems: Sequence[JoinSteM]
    budget: PairLimit
    reach: Reach | None = None
    predicates: int = 1
    #: Elements with this arrival number or a greater one are not seen (build before probe).
    #: None: the probe sees all elements.
    before: int | None = None
    #: Which parts are probed; None: all.
    parts: Sequence[int] | None = None
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = f"SteM {self.leaf}: {self.plan.streams[self.leaf]}"

    def is_ready(self, morsel: Composites) -> bool:
        source = morsel.source
        return self.leaf not in source and self.plan.step(source, self.leaf) is not None

    def probe_stretches(
        self, morsel: Composites
    ) -> Iterator[tuple[StemPart, SortedRun, SortedRun, Stretches]]:
        """Yield (part, run, batch, stretches) for a morsel that needs nothing but this probe.

        Only for steps without filters over SteMs without query sets, and for parts all of which
        may be seen; there the pairs of the stretches are the pairs `process` would give.
        """
        step = self.plan.step(morsel.source, self.leaf)
        assert step is not None
        assert not step.filters
        return self._find_stretches(morsel, step)

    def process(self, morsel: Composites) -> Composites:
        step = self.plan.step(morsel.source, self.leaf)
        assert step is not None
        lefts: list[Numbers] = []
        rights: list[Numbers] = []
        for part, run, batch, found in self._find_stretches(morsel, step):
            left, right = expand(batch, found, run)
            lefts.append(left)
            rights.append(right if not part.offset else right + part.offset)
        none = np.zeros(0, np.int64)
        left = np.concatenate([none, *lefts]) if len(lefts) != 1 else lefts[0]
        right = np.concatenate([none, *rights]) if len(rights) != 1 else rights[0]
        joined = morsel.take(left)
        joined = Composites({**joined.places, self.leaf: right}, len(right), joined.sets)
        if self.before is not None and not all(part.is_old for part in self._choose_parts()):
            arrivals = self.stems[self.leaf].arrivals(joined.places[self.leaf])
            joined = joined.take(arrivals < self.before)
        joined = self._with_sets(joined)
        for link in step.filters:
            joined = joined.take(self._holds(link, joined))
        if self.reach is not None and step.key.order != self.plan.time_of(self.leaf):
            joined = joined.take(self._within(joined))
        return joined

    def _find_stretches(
        self, morsel: Composites, step: ProbeStep
    ) -> Iterator[tuple[StemPart, SortedRun, SortedRun, Stretches]]:
        """Yield (part, run, batch, stretches) for every run in which the morsel finds something."""
        batch, low, high = self._batch(morsel, step)
        if not len(batch):
            return
        for part in self._choose_parts():
            for run in part.runs(step.key):
                found = probe(batch, low, high, run)
                if found.pairs:
                    self.budget.spend(found.pairs)
                    yield part, run, batch, found

    def _choose_parts(self) -> Sequence[StemPart]:
        parts = self.stems[self.leaf].parts
        return parts if self.parts is None else [parts[number] for number in self.parts]

    def _with_sets(self, joined: Composites) -> Composites:
        """Keep the tuples some query may still want: query sets are ANDed (CACQ, section 3.2)."""
        own = self.stems[self.leaf].query_sets(joined.places[self.leaf])
        if own is None:
            return joined
        sets = own if joined.sets is None else own & joined.sets
        joined = Composites(joined.places, joined.count, sets)
        wanted: Mask = np.asarray(sets.any(axis=1))
        return joined if wanted.all() else joined.take(wanted)

    def _batch(
        self, morsel: Composites, step: ProbeStep
    ) -> tuple[SortedRun, Numbers | None, Numbers | None]:
        """Return the sorted batch that probes, and its rows' least and greatest order values."""
        absent: Mask | None = None
        keys = None
        if step.probes:
            keys, absent = combine_columns([self._gather(o, morsel) for o in step.probes])
        low: Numbers | None = None
        high: Numbers | None = None
        for op, operand, shift in step.bounds:
            own = self._gather(operand, morsel)
            if own.nulls is not None:
                absent = own.nulls if absent is None else absent | own.nulls
            if op in (">", ">="):
                bound = add_saturating(own.numbers, shift + (op == ">"))
                low = bound if low is None else np.maximum(low, bound)
            else:
                bound = add_saturating(own.numbers, shift - (op == "<"))
                high = bound if high is None else np.minimum(high, bound)
        if self.reach is not None and step.key.order == self.plan.time_of(self.leaf):
            for leaf, places in morsel.places.items():
                stamps = self.stems[leaf].gather(self.plan.time_of(leaf), places).numbers
                ours, theirs = self.reach.spans[self.leaf], self.reach.spans[leaf]
                if ours is not None:
                    bound = add_saturating(stamps, 1 - ours)
                    low = bound if low is None else np.maximum(low, bound)
                if theirs is not None:
                    bound = add_saturating(stamps, theirs - 1)
                    high = bound if high is None else np.minimum(high, bound)
        order = low if low is not None else high
        if order is None:
            order = np.zeros(len(morsel), np.int64)
        batch = build(keys, order, absent)
        at = batch.place
        return batch, None if low is None else low[at], None if high is None else high[at]

    def _gather(self, operand: Operand, morsel: Composites) -> CodedColumn:
        return self.stems[operand.leaf].gather(operand.value, morsel.places[operand.leaf])

    def _holds(self, link: Link, joined: Composites) -> Mask:
        left, right = self._gather(link.left, joined), self._gather(link.right, joined)
        # Shift one side by the difference, so that only one addition can overflow.
        difference = link.right.shift - link.left.shift
        other = add_saturating(right.numbers, difference) if difference else right.numbers
        holds: Mask
        match link.op:
            case "=":
                holds = left.numbers == other
            case "<":
                holds = left.numbers < other
            case "<=":
                holds = left.numbers <= other
            case ">":
                holds = left.numbers > other
            case _:
                holds = left.numbers >= other
        for side in (left, right):
            if side.nulls is not None:
                holds &= ~side.nulls
        return holds

    def _within(self, joined: Composites) -> Mask:
        """Return which composites were in their windows together."""
        assert self.reach is not None
        stamps = {
            leaf: self.stems[leaf].gather(self.plan.time_of(leaf), places).numbers
            for leaf, places in joined.places.items()
        }
        own, span = stamps.pop(self.leaf), self.reach.spans[self.leaf]
        holds = np.ones(len(joined), np.bool_)
        for leaf, other in stamps.items():
            if span is not None:
                holds &= own > other - span
            theirs = self.reach.spans[leaf]
            if theirs is not None:
                holds &= other > own - theirs
        return holds


def add_saturating(numbers: Numbers, shift: int) -> Numbers:
    """Return numbers + shift; a sum that would overflow becomes the end of the axis."""
    if shift == 0:
        return numbers
    if shift > 0:
        return np.minimum(numbers, GREATEST - shift) + shift if shift <= GREATEST else numbers
    return np.maximum(numbers, LEAST - shift) + shift if shift > LEAST else numbers


def join_slices(
    plan: JoinPlan,
    stems: Sequence[JoinSteM],
    most: int,
    policy: Policy | None = None,
) -> dict[int, Numbers]:
    """Return the places of the joined tuples, ordered by the first stream's, the second's, ….

    That order is a function of the slices alone. So whatever is computed from the joined slice is
    the same however the join was done.

    Raises:
        TooManyPairs: more than `most` pairs were found on the way.
    """
    budget = PairLimit(most)
    start = min(range(len(stems)), key=lambda leaf: stems[leaf].count)
    modules = [SteMProbe(plan, leaf, stems, budget) for leaf in range(len(stems)) if leaf != start]
    eddy: Eddy[Composites] = Eddy(policy or FixedPolicy())
    out = list(eddy.route(_morsels(start, stems[start].count), modules))
    places = {
        leaf: np.concatenate([np.zeros(0, np.int64), *(c.places[leaf] for c in out)])
        for leaf in range(len(stems))
    }
    return sort_tuples(places, [stem.count for stem in stems])


def _morsels(leaf: int, count: int) -> Iterator[Composites]:
    for first in range(0, count, MORSEL):
        places = np.arange(first, min(first + MORSEL, count), dtype=np.int64)
        yield Composites({leaf: places}, len(places))


def sort_tuples(places: dict[int, Numbers], counts: Sequence[int]) -> dict[int, Numbers]:
    """Sort joined tuples by their first stream's places, then by their second's, …."""
    if not len(places[0]):
        return places
    # One code of a fixed number of bits for each stream, so that shifting takes the code apart.
    bits = [max(count - 1, 1).bit_length() for count in counts]
    if sum(bits) >= 63:
        order = np.lexsort([places[leaf] for leaf in reversed(range(len(counts)))])
        return {leaf: own[order] for leaf, own in places.items()}
    code = places[0].copy()
    for leaf in range(1, len(counts)):
        code <<= bits[leaf]
        code |= places[leaf]
    if not bool((code[1:] >= code[:-1]).all()):
        code.sort()
    ordered: dict[int, Numbers] = {}
    for leaf in reversed(range(1, len(counts))):
        ordered[leaf] = code & ((1 << bits[leaf]) - 1)
        code = code >> bits[leaf]
    ordered[0] = code
    return ordered
