"""One step of followed queries that look at the most promising part first.

A step ends at a line of the summaries' grid. It lists the regions that the elements since the step
before bring, ranks them together with those that wait, and looks at as many as the budget of these
elements allows (promising tuples, figures 7 and 8). All queries of a family are served at once: the
regions are listed and estimated once, queries with equal preferences share their priorities, and
which elements match which queries is the work of one Query SteM.

INV-STEP-1: what a step finds is a function of the streams' elements, the step's instants, what
waited before and, of a budget in time, the probes it allowed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.engine.joins.keys import Axis, Keys, Numbers, code_column, mix_numbers
from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import StemSnapshot
from millpond.engine.matching.results_structure import MatchReader
from millpond.engine.predicates.factors import Factors
from millpond.engine.promising.look import Look
from millpond.engine.promising.promise import estimate_regions, merge_zones, prioritize
from millpond.engine.promising.regions import check_priorities
from millpond.engine.promising.value_index import Elements, ValueIndex, take_elements
from millpond.engine.promising.waiting import ORDERS, REGION, Waiting, choose
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.engine.scalars.residual_query import Residual
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.model.windows import interval
from millpond.synopses.summaries.protocol import Estimates
from millpond.synopses.summaries.stream_summary import StreamSummary

#: Probes of a turn of a query of weight 1, of a budget in time.
TURN = 256
#: Regions of one query that wait at most; the least promising fall out.
MOST_WAITING = 16_384

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Found:
    """What a step found for one query: element pairs, or elements, in the order found.

    Attributes:
        tables: The rows of each leaf; row i of all of them is one result.
        priority: The priority of each result's region.
    """

    tables: tuple[pa.Table, ...]
    priority: Estimates


@dataclass(eq=False)
class FamilyState:
    """What queries of a family carry from step to step.

    Attributes:
        waiting: The regions that wait.
        clocks: By query, the clock of WEIGHTED.
        carried: By query, the fraction of a probe that is left of its budget.
        fallen: By query, the probes that fell out: elements that nobody will look at.
    """

    waiting: Waiting
    clocks: Estimates
    carried: Estimates
    fallen: Numbers

    @staticmethod
    def of(count: int) -> FamilyState:
        """The state of queries that have not looked at anything yet."""
        nothing = np.zeros(count)
        return FamilyState(np.empty(0, REGION), nothing, nothing.copy(), np.zeros(count, np.int64))


@dataclass(eq=False)
class Family:
    """Queries whose regions are listed together (`Look.family`)."""

    looks: Sequence[Look]
    residual: Residual
    failures: dict[int, MillpondError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first = self.looks[0]
        self._stems = [
            self._stem([look.streams[leaf].factors for look in self.looks], leaf)
            for leaf in range(len(first.streams))
        ]
        self._allowed = self._stem([look.streams[0].allowed for look in self.looks], 0)
        self._orders = np.array([ORDERS.index(look.preference.order) for look in self.looks])
        self._fades = np.array([look.preference.fade for look in self.looks])
        #: Queries with one preference and windows of one size have one list of regions.
        classes: defaultdict[object, list[int]] = defaultdict(list)
        for number, look in enumerate(self.looks):
            wanted = look.preference
            asked = tuple((e.leaf, e.estimate.kind) for e in wanted.estimates)
            windows = tuple(leaf.window for leaf in look.streams)
            order = wanted.order == "weighted"
            classes[wanted.sql, asked, order, windows].append(number)
        self._classes = list(classes.values())

    def _stem(self, every: Sequence[Factors | None], leaf: int) -> tuple[StemSnapshot, Flags]:
        """The queries' predicates as one Query SteM, and which queries have none."""
        schema = self.looks[0].streams[leaf].schema
        given = [(n, factors) for n, factors in enumerate(every) if factors is not None]
        return StemSnapshot.of(given, schema), np.array([f is None for f in every])

    def _match(self, stem: tuple[StemSnapshot, Flags], table: pa.Table) -> Flags:
        """Which elements match which queries: bool[queries, elements]."""
        snapshot, everything = stem
        out = np.repeat(everything[:, None], table.num_rows, axis=1)
        if everything.all() or not table.num_rows:
            return out
        found = match(table, snapshot, ScalarEvaluator.of_this_thread())
        for number, reason in found.failed.items():
            self.failures[number] = MillpondError(
                "POND-404",
                "the query's predicate could not be evaluated",
                detail=reason,
                hint="Guard the expression, for example with CASE, TRY_CAST or NULLIF.",
            )
        reader = MatchReader(found.to_table())
        for number in reader.slots.tolist():
            out[number, reader.rows(number, 0, table.num_rows)] = True
        return out

    # -- a step ------------------------------------------------------------------------------------

    def step(
        self,
        state: FamilyState,
        indexes: Sequence[ValueIndex],
        summaries: Mapping[int, StreamSummary],
        after: int,
        line: int,
    ) -> dict[int, Found]:
        """Look at the most promising regions; `state` is moved on.

        Args:
            state: What waits.
            indexes: The elements of each leaf, by the values of its key.
            summaries: The summary of each leaf that the preferences estimate, at `line`.
            after: The instant up to which elements were regions before.
            line: The line behind the step's last instant.
        """
        new = [index.list_between(after + 1, line) for index in indexes]
        arrived = sum(len(rows) for _, rows in new)
        zones = summaries[self.looks[0].zoned].zones
        self._clip(state, indexes, summaries, line)
        coming = [self._list_regions(c, state, indexes, summaries, new, after, line)
                  for c in self._classes]  # fmt: skip
        state.waiting = np.concatenate([state.waiting, *coming])
        found: dict[int, list[Found]] = defaultdict(list)
        begun = time.perf_counter()
        budgets, timed, seconds = self._budgets(state, arrived)
        while True:
            left = self._count(indexes, state.waiting) - state.waiting["done"]
            place = np.searchsorted(zones.edges, state.waiting["since"], side="right") - 1
            ages = zones.granularity[np.clip(place, 0, len(zones) - 1)] - 1.0
            fades = self._fades[state.waiting["query"]]
            asc = self._orders[state.waiting["query"]] == 1
            faded = state.waiting["priority"] * np.where(asc, 1 / fades, fades) ** ages
            chosen = choose(state.waiting, left, faded, self._orders, budgets, state.clocks)
            state.clocks = chosen.clocks
            for number, rows in self._look(
                indexes, state.waiting[chosen.places], faded[chosen.places], chosen.probes
            ).items():
                found[number].append(rows)
            state.waiting["done"][chosen.places] += chosen.probes
            left[chosen.places] -= chosen.probes
            state.waiting = state.waiting[left > 0]
            if not timed.any() or not len(chosen.places):
                break
            if time.perf_counter() - begun >= seconds:
                break
            budgets = np.where(timed, budgets, 0)
        self._bound(state)
        return {n: _join_found(parts) for n, parts in found.items() if n not in self.failures}

    def _budgets(self, state: FamilyState, arrived: int) -> tuple[Numbers, Flags, float]:
        """The probes of each query; which have a budget in time; and their time together.

        A budget is for each element that arrived. Those in time are not added up: the queries share
        the longest of them, in turns whose lengths are their weights.
        """
        probes = np.zeros(len(self.looks), np.int64)
        timed = np.zeros(len(self.looks), np.bool_)
        seconds = 0.0
        for number, look in enumerate(self.looks):
            budget = look.preference.budget
            assert budget is not None
            if budget.probes is not None:
                due = state.carried[number] + budget.probes * arrived
                probes[number] = int(due + 1e-9)
                state.carried[number] = max(due - int(due + 1e-9), 0.0)
            else:
                timed[number] = True
                probes[number] = max(round(TURN * look.weight), 1)
                seconds = max(seconds, (budget.microseconds or 0) * arrived / 1e6)
        return probes, timed, seconds

    def _clip(
        self,
        state: FamilyState,
        indexes: Sequence[ValueIndex],
        summaries: Mapping[int, StreamSummary],
        line: int,
    ) -> None:
        """Cut what left the windows off the regions that wait: a result of it is none any more."""
        waiting = state.waiting
        if not len(waiting):
            return
        zoned = self.looks[0].zoned
        every = self._lows(summaries, line - 1)
        query = waiting["query"]
        low, their_low = every[zoned][query], every[(1 - zoned) % len(every)][query]
        cut = waiting["since"] < low
        if len(indexes) > 1:
            cut |= waiting["low"] < their_low
        places = np.flatnonzero(cut)
        own = waiting[places]
        before = self._count(indexes, own) - own["done"]
        own["since"] = np.maximum(own["since"], low[places])
        alive = own["since"] < own["upto"]
        if len(indexes) > 1:
            own["low"] = np.maximum(own["low"], their_low[places])
            alive &= own["low"] < own["high"]
        after = self._count(indexes, own) - own["done"]
        alive &= after > 0
        np.add.at(state.fallen, own["query"], np.maximum(before - np.where(alive, after, 0), 0))
        waiting[places] = own
        state.waiting = np.delete(waiting, places[~alive])

    def _lows(self, summaries: Mapping[int, StreamSummary], at: int) -> list[Numbers]:
        """By leaf, for each query the first instant that its window has at an instant.

        What is in a window without an end waits as long as the summary reaches.
        """
        reach = min(int(summary.edges[0]) for summary in summaries.values())
        every = []
        for leaf in range(len(self.looks[0].streams)):
            lows = [interval(look.streams[leaf].window, at)[0] for look in self.looks]
            every.append(np.array([reach if low is None else low for low in lows], np.int64))
        return every

    def _bound(self, state: FamilyState) -> None:
        """Let the least promising regions fall out where too many wait."""
        waiting = state.waiting
        crowded = np.bincount(waiting["query"], minlength=len(self.looks)) > MOST_WAITING
        keep = np.ones(len(waiting), np.bool_)
        for number in np.flatnonzero(crowded).tolist():
            own = np.flatnonzero(waiting["query"] == number)
            asc = self._orders[number] == 1
            promise = waiting["priority"][own] * (1 if asc else -1)
            order = np.lexsort((waiting["key"][own], promise, waiting["results"][own] <= 0))
            keep[own[order[MOST_WAITING:]]] = False
            state.fallen[number] += len(own) - MOST_WAITING
        state.waiting = waiting[keep]
        idle = np.bincount(state.waiting["query"], minlength=len(self.looks)) == 0
        # Who has nothing left begins anew: budgets are not saved up.
        state.clocks, state.carried = state.clocks * ~idle, state.carried * ~idle

    # -- regions -----------------------------------------------------------------------------------

    def _list_regions(
        self,
        members: list[int],
        state: FamilyState,
        indexes: Sequence[ValueIndex],
        summaries: Mapping[int, StreamSummary],
        new: Sequence[Elements],
        after: int,
        line: int,
    ) -> Waiting:
        """The regions that the new elements bring, for queries with one preference."""
        members = [number for number in members if number not in self.failures]
        if not members:
            return np.empty(0, REGION)
        look = self.looks[members[0]]
        try:
            if look.kind == "join":
                made = self._list_join(look, indexes, summaries, new, after, line)
                allowed = np.ones((len(members), len(made)), np.bool_)
            else:
                made, first = self._list_selection(look, indexes[0], summaries, new[0], after, line)
                table = take_elements(indexes[0].views, first, look.streams[0].schema.names)
                allowed = self._match(self._allowed, table)[members]
        except MillpondError as error:
            self.failures.update(dict.fromkeys(members, error))
            return np.empty(0, REGION)
        query, region = np.nonzero(allowed)
        out = made[region]
        out["query"] = np.array(members)[query]
        out["begun"] = state.clocks[out["query"]]
        return out

    def _list_selection(
        self,
        look: Look,
        index: ValueIndex,
        summaries: Mapping[int, StreamSummary],
        new: Elements,
        after: int,
        line: int,
    ) -> tuple[Waiting, Elements]:
        """A region for each value of the new elements, and an element that has each."""
        keys, codes, values, first = _distinct(index, new)
        counts = summaries[0].count_by_zone(codes)[-1:] * (keys > 0)
        matrices = [
            estimate_regions(summaries[0], e.estimate.kind, summaries[0].count_by_zone(codes),
                             codes)[-1:]
            for e in look.preference.estimates
        ]  # fmt: skip
        priority = prioritize(self.residual, look.preference, matrices, {0: values}, counts)
        check_priorities(priority, look.preference.order)
        made = np.zeros(len(keys), REGION)
        made["key"], made["since"], made["upto"] = keys, after + 1, line
        made["priority"], made["results"] = priority[0], counts[0]
        return made, first

    def _list_join(
        self,
        look: Look,
        indexes: Sequence[ValueIndex],
        summaries: Mapping[int, StreamSummary],
        new: Sequence[Elements],
        after: int,
        line: int,
    ) -> Waiting:
        """Regions of a join: new elements into each zone, and older elements into the new zone."""
        zoned, other = look.zoned, 1 - look.zoned
        summary, index = summaries[zoned], indexes[zoned]
        lows = [interval(leaf.window, after + 1)[0] for leaf in look.streams]
        low, their_low = (
            BEGINNING if found is None else found for found in (lows[zoned], lows[other])
        )
        parts = []
        # New elements of the other stream are looked up in every zone, also in the newest.
        keys, codes, values, _ = _distinct(indexes[other], new[other])
        edges = np.unique(np.concatenate([[low, line], np.clip(summary.zones.edges, low, line)]))
        parts.append(
            self._rank_join(look, summaries, keys, codes, values, edges, (after + 1, line), indexes)
        )
        # Older elements of the other stream are looked up among the new elements of this one.
        keys, codes, values, _ = _distinct(index, new[zoned])
        edges = np.array([after + 1, line], np.int64)
        if their_low <= after:
            parts.append(
                self._rank_join(
                    look, summaries, keys, codes, values, edges, (their_low, after + 1), indexes
                )
            )
        return np.concatenate(parts)

    def _rank_join(
        self,
        look: Look,
        summaries: Mapping[int, StreamSummary],
        keys: Keys,
        codes: Numbers,
        values: pa.ChunkedArray,
        edges: Numbers,
        span: tuple[int, int],
        indexes: Sequence[ValueIndex],
    ) -> Waiting:
        zoned, other = look.zoned, 1 - look.zoned
        summary, zones = summaries[zoned], summaries[zoned].zones
        whole = np.ones(len(keys), np.int64)
        lookups = indexes[other].count(keys, whole * span[0], whole * span[1])
        place = np.searchsorted(zones.edges, edges[:-1], side="right") - 1
        covered = (place >= 0) & (place < len(zones))
        place = np.clip(place, 0, max(len(zones) - 1, 0))
        every = summary.count_by_zone(codes)
        counts = np.where(covered[:, None], every[place], 0.0)
        matrices: list[Estimates] = []
        for estimate in look.preference.estimates:
            kind = estimate.estimate.kind
            if estimate.leaf == zoned:
                matrices.append(estimate_regions(summary, kind, every, codes)[place])
                continue
            theirs = summaries[estimate.leaf]
            first = interval(look.streams[other].window, span[1] - 1)[0]
            merged = merge_zones(theirs, BEGINNING if first is None else first, span[1] - 1)
            seen = merged.kind.count(merged.cells, codes)
            matrices.append(estimate_regions(merged, kind, seen, codes))
        priority = prioritize(
            self.residual, look.preference, matrices, dict.fromkeys((0, 1), values), counts
        )
        check_priorities(priority, look.preference.order)
        zone, value = np.nonzero(np.repeat(lookups[None, :] > 0, len(edges) - 1, axis=0))
        made = np.zeros(len(zone), REGION)
        made["key"], made["since"], made["upto"] = keys[value], edges[zone], edges[zone + 1]
        made["low"], made["high"] = span
        made["priority"] = priority[zone, value]
        made["results"] = (counts * lookups)[zone, value]
        there = indexes[zoned].count(made["key"], made["since"], made["upto"])
        return made[there > 0]

    # -- probes --------------------------------------------------------------------------------

    def _count(self, indexes: Sequence[ValueIndex], waiting: Waiting) -> Numbers:
        """How many probes each region has; equal regions of many queries are counted once."""
        zoned = self.looks[0].zoned
        index = indexes[0] if len(indexes) == 1 else indexes[1 - zoned]
        since, upto = ("since", "upto") if len(indexes) == 1 else ("low", "high")
        some, place = find_distinct(waiting, since, upto)
        return index.count(some["key"], some[since], some[upto])[place]

    def _look(
        self,
        indexes: Sequence[ValueIndex],
        regions: Waiting,
        priority: Estimates,
        probes: Numbers,
    ) -> dict[int, Found]:
        """Look at the next probes of some regions; give what was found, by query."""
        if not len(regions):
            return {}
        if len(indexes) == 1:
            elements, places = _list_probes(indexes[0], regions, "since", "upto", probes)
            owner = np.repeat(np.arange(len(regions)), probes)
            sides = [(elements, places)]
        else:
            zoned = self.looks[0].zoned
            elements, places = _list_probes(indexes[1 - zoned], regions, "low", "high", probes)
            count = indexes[zoned].count(regions["key"], regions["since"], regions["upto"])
            theirs, targets = _list_probes(
                indexes[zoned], regions, "since", "upto", count, whole=True
            )
            # Each probe meets every element of its region.
            probe = np.repeat(np.arange(len(regions)), probes)
            pairs = count[probe]
            owner = np.repeat(probe, pairs)
            starts = np.cumsum(count) - count
            offset = np.arange(len(owner)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
            own = (elements, np.repeat(places, pairs))
            others = (theirs, targets[starts[owner] + offset])
            sides = [own, others] if zoned == 1 else [others, own]
        query = regions["query"][owner]
        good = np.ones(len(query), np.bool_)
        tables = []
        for leaf, (some, place) in enumerate(sides):
            schema = self.looks[0].streams[leaf].schema
            table = take_elements(indexes[leaf].views, some, schema.names)
            tables.append(table)
            good &= self._match(self._stems[leaf], table)[query, place]
        if len(sides) == 2:
            good &= self._meet(indexes, sides, query)
        query, owner = query[good], owner[good]
        rows = [place[good] for _, place in sides]
        bounds = np.searchsorted(query, np.arange(len(self.looks) + 1))
        found = {}
        for number in np.unique(query).tolist():
            own_rows = slice(bounds[number], bounds[number + 1])
            parts = tuple(
                table.select(list(leaf.columns)).take(pa.array(place[own_rows]))
                for table, place, leaf in zip(tables, rows, self.looks[number].streams, strict=True)
            )
            found[number] = Found(parts, priority[owner[own_rows]])
        return found

    def _meet(
        self,
        indexes: Sequence[ValueIndex],
        sides: Sequence[tuple[Elements, Numbers]],
        query: Numbers,
    ) -> Flags:
        """Whether both elements of each pair are in their windows when the later one comes."""
        stamps = [
            _stamps(index, some)[place] for index, (some, place) in zip(indexes, sides, strict=True)
        ]
        at = np.maximum(*stamps)
        good = np.ones(len(at), np.bool_)
        for leaf, own in enumerate(stamps):
            sizes = []
            for look in self.looks:
                low, _ = interval(look.streams[leaf].window, 0)
                sizes.append(np.iinfo(np.int64).max if low is None else -low)
            good &= at - own <= np.array(sizes, np.int64)[query]
        return good


def _distinct(
    index: ValueIndex, elements: Elements
) -> tuple[Keys, Numbers, pa.ChunkedArray, Elements]:
    """The distinct values of some elements: keys (0 of NULL), codes, values, an element of each."""
    axis = index.axis
    assert axis is not None
    column = take_elements(index.views, elements, [index.column])[index.column]
    codes, keys = code_keys(column, axis)
    if not index.with_nulls:
        known = np.flatnonzero(keys > 0)
        elements = elements[0][known], elements[1][known]
        codes, keys, column = codes[known], keys[known], column.take(pa.array(known))
    found, first = np.unique(keys, return_index=True)
    chosen = elements[0][first], elements[1][first]
    return found, np.ascontiguousarray(codes[first]), column.take(pa.array(first)), chosen


def code_keys(column: pa.ChunkedArray, axis: Axis) -> tuple[Numbers, Keys]:
    """The codes and the keys of a column's values; the key of NULL is 0."""
    coded = code_column(column, axis)
    keys = mix_numbers(np.ascontiguousarray(coded.numbers))
    if coded.nulls is not None:
        keys[coded.nulls] = 0
    return coded.numbers, keys


def find_distinct(regions: Waiting, since: str, upto: str) -> tuple[Waiting, Numbers]:
    """Regions with distinct keys and spans, and for each region which of them it equals.

    Regions are told apart by a hash of 64 bits, which is sorted twenty times as fast as regions.
    """
    spans = mix_numbers(regions[since]) ^ (mix_numbers(regions[upto]) << np.uint64(1))
    hashed = mix_numbers((regions["key"] ^ spans).view(np.int64))
    _, first, place = np.unique(hashed, return_index=True, return_inverse=True)
    return regions[first], place.reshape(-1)


def _list_probes(
    index: ValueIndex,
    regions: Waiting,
    since: str,
    upto: str,
    probes: Numbers,
    whole: bool = False,
) -> tuple[Elements, Numbers]:
    """The elements that the next probes of regions look at, the newest of a region first.

    Returns:
        The elements, and for each probe, region after region, the place of its element.
    """
    some, place = find_distinct(regions, since, upto)
    owner, elements = index.list_elements(some["key"], some[since], some[upto])
    starts = np.searchsorted(owner, np.arange(len(some)))[place]
    done = np.zeros(len(regions), np.int64) if whole else regions["done"]
    offset = np.arange(int(probes.sum())) - np.repeat(np.cumsum(probes) - probes, probes)
    every = np.repeat(starts + done, probes) + offset
    used, places = np.unique(every, return_inverse=True)
    return (elements[0][used], elements[1][used]), places.reshape(-1)


def _stamps(index: ValueIndex, elements: Elements) -> Numbers:
    numbers, rows = elements
    out = np.empty(len(rows), np.int64)
    for number in np.unique(numbers).tolist():
        own = numbers == number
        out[own] = index.views[number].ts[rows[own]]
    return out


def _join_found(parts: Sequence[Found]) -> Found:
    tables = [pa.concat_tables(some) for some in zip(*(p.tables for p in parts), strict=True)]
    return Found(tuple(tables), np.concatenate([p.priority for p in parts]))
