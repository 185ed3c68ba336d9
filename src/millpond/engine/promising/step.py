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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from millpond.engine.joins.keys import Numbers
from millpond.engine.promising.family_predicates import FamilyPredicates, Flags
from millpond.engine.promising.look import Look
from millpond.engine.promising.new_regions import list_join, list_selection
from millpond.engine.promising.probing import (
    PIECE,
    Found,
    RegionProber,
    join_found,
    read_stamps,
    read_worth,
)
from millpond.engine.promising.value_index import Elements, ValueIndex, take_elements
from millpond.engine.promising.waiting import ORDERS, REGION, WEIGHTED, Waiting, choose
from millpond.engine.scalars.residual_query import Residual
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.model.windows import interval
from millpond.synopses.summaries.protocol import Estimates
from millpond.synopses.summaries.stream_summary import StreamSummary
from millpond.synopses.summaries.zones import Zones

#: Probes of a turn of a query of weight 1, of a budget in time.
TURN = 256
#: Rows that are held until they are evaluated and written, about.
MOST_FOUND = PIECE
#: What an aggregate keeps before it has looked at anything.
_NO_PANES = pa.table({})
#: Regions of one query that wait at most; the least promising fall out.
MOST_WAITING = 16_384


@dataclass(eq=False)
class FamilyState:
    """What queries of a family carry from step to step.

    Attributes:
        waiting: The regions that wait.
        panes: By query, what an aggregate keeps of each pane; None before its first step.
        clocks: By query, the clock of WEIGHTED.
        carried: By query, the fraction of a probe that is left of its budget.
        fallen: By query, the probes that fell out: elements that nobody will look at.
    """

    waiting: Waiting
    clocks: Estimates
    carried: Estimates
    fallen: Numbers
    panes: list[pa.Table | None]

    @staticmethod
    def of(count: int) -> FamilyState:
        """The state of queries that have not looked at anything yet."""
        nothing = np.zeros(count)
        return FamilyState(
            np.empty(0, REGION), nothing, nothing.copy(), np.zeros(count, np.int64), [None] * count
        )


@dataclass(eq=False)
class Family:
    """Queries whose regions are listed together (`Look.family`)."""

    looks: Sequence[Look]
    residual: Residual
    failures: dict[int, MillpondError] = field(default_factory=dict)
    #: Of aggregates, in the last step: the timestamps of the elements that regions were made of,
    #: and (where a SUM of the column that ranks asks) their values.
    listed: dict[int, tuple[Numbers, Estimates]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first = self.looks[0]
        self._prober = RegionProber(self.looks, self.failures)
        self._allowed = FamilyPredicates(
            [look.streams[0].allowed for look in self.looks],
            first.streams[0].schema,
            self.failures,
        )
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

    # -- a step ------------------------------------------------------------------------------------

    def step(
        self,
        state: FamilyState,
        indexes: Sequence[ValueIndex],
        summaries: Mapping[int, StreamSummary],
        after: int,
        line: int,
        spill: Callable[[dict[int, Found]], None] | None = None,
    ) -> dict[int, Found]:
        """Look at the most promising regions; `state` is moved on.

        Args:
            state: What waits.
            indexes: The elements of each leaf, by the values of its key.
            summaries: The summary of each leaf that the preferences estimate, at `line`.
            after: The instant up to which elements were regions before.
            line: The line behind the step's last instant.
            spill: Called with what was found so far whenever that is `MOST_FOUND` rows; the rest,
                which comes behind it, is returned.
        """
        new = [index.list_between(after + 1, line) for index in indexes]
        arrived = np.full(len(self.looks), sum(len(rows) for _, rows in new))
        parts = [(self._classes, new, after)]
        if fresh := self._find_fresh(state):
            # For a new aggregate, what its window holds before its first step comes with that step.
            low, _ = interval(self.looks[0].streams[0].window, line - 1)
            since = min(BEGINNING if low is None else low, after + 1)
            held = [indexes[0].list_between(since, line)]
            arrived[list(fresh)] = len(held[0][1])
            parts = [
                ([[n for n in c if n in fresh] for c in self._classes], held, since - 1),
                ([[n for n in c if n not in fresh] for c in self._classes], new, after),
            ]
            for number in fresh:
                state.panes[number] = _NO_PANES
        zones = summaries[self.looks[0].zoned].zones
        self._clip(state, indexes, summaries, line)
        self.listed.clear()
        coming = [
            self._list_regions(members, state, indexes, summaries, elements, before, line)
            for classes, elements, before in parts
            for members in classes
        ]
        state.waiting = np.concatenate([state.waiting, *coming])
        found: dict[int, list[Found]] = defaultdict(list)
        begun, count = time.perf_counter(), 0
        budgets, timed, seconds = self._budgets(state, arrived)
        most = np.where(self._orders == WEIGHTED, max(PIECE // len(self.looks), 1), budgets)
        left = self._prober.count(indexes, state.waiting) - state.waiting["done"]
        faded = self._fade(state.waiting, zones)
        while budgets.any():
            turn = np.minimum(budgets, most)
            chosen = choose(state.waiting, left, faded, self._orders, turn, state.clocks)
            if not len(chosen.places):
                break
            state.clocks = chosen.clocks
            regions = state.waiting[chosen.places]
            regions["done"] += chosen.offset
            for piece in self._prober.look(indexes, regions, faded[chosen.places], chosen.probes):
                for number, rows in piece.items():
                    found[number].append(rows)
                    count += len(rows.priority)
                if spill is not None and count >= MOST_FOUND:
                    paused = time.perf_counter()
                    spill(self._join_all(found))
                    found.clear()
                    count = 0
                    begun += time.perf_counter() - paused
            np.add.at(state.waiting["done"], chosen.places, chosen.probes)
            np.subtract.at(left, chosen.places, chosen.probes)
            state.waiting, left, faded = (own[left > 0] for own in (state.waiting, left, faded))
            is_over = time.perf_counter() - begun >= seconds
            budgets = np.where(timed, 0 if is_over else budgets, budgets - turn)
        self._bound(state)
        return self._join_all(found)

    def _join_all(self, found: Mapping[int, Sequence[Found]]) -> dict[int, Found]:
        return {n: join_found(parts) for n, parts in found.items() if n not in self.failures}

    def _fade(self, waiting: Waiting, zones: Zones) -> Estimates:
        """The priorities of regions: less promising for every older granularity."""
        place = np.searchsorted(zones.edges, waiting["since"], side="right") - 1
        ages = zones.granularity[np.clip(place, 0, len(zones) - 1)] - 1.0
        fades = self._fades[waiting["query"]]
        asc = self._orders[waiting["query"]] == 1
        return np.asarray(waiting["priority"] * np.where(asc, 1 / fades, fades) ** ages)

    def _find_fresh(self, state: FamilyState) -> frozenset[int]:
        """The aggregates that have had no step yet."""
        if self.looks[0].kind != "aggregate":
            return frozenset()
        return frozenset(number for number, panes in enumerate(state.panes) if panes is None)

    def _budgets(self, state: FamilyState, arrived: Numbers) -> tuple[Numbers, Flags, float]:
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
                due = state.carried[number] + budget.probes * int(arrived[number])
                probes[number] = int(due + 1e-9)
                state.carried[number] = max(due - int(due + 1e-9), 0.0)
            else:
                timed[number] = True
                probes[number] = max(round(TURN * look.weight), 1)
                seconds = max(seconds, (budget.microseconds or 0) * int(arrived[number]) / 1e6)
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
        before = self._prober.count(indexes, own) - own["done"]
        own["since"] = np.maximum(own["since"], low[places])
        alive = own["since"] < own["upto"]
        if len(indexes) > 1:
            own["low"] = np.maximum(own["low"], their_low[places])
            alive &= own["low"] < own["high"]
        after = self._prober.count(indexes, own) - own["done"]
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
        if look.kind != "join" and not len(new[0][1]):
            return np.empty(0, REGION)
        try:
            if look.kind == "join":
                made = list_join(self.residual, look, indexes, summaries, new, after, line)
                allowed = np.ones((len(members), len(made)), np.bool_)
            else:
                made, chosen, place = list_selection(
                    self.residual, look, indexes[0], summaries, new[0], after + 1, line
                )
                table = take_elements(indexes[0].views, chosen, look.streams[0].schema.names)
                allowed = self._allowed.match(table)[members]
                if look.kind == "aggregate":
                    stamps = read_stamps(indexes[0], new[0])
                    for number, own in zip(members, allowed, strict=True):
                        some, worth = own[place], np.empty(0)
                        if self.looks[number].known:
                            worth = read_worth(table[look.streams[0].key])[place[some]]
                        self.listed[number] = stamps[some], worth
        except MillpondError as error:
            self.failures.update(dict.fromkeys(members, error))
            return np.empty(0, REGION)
        query, region = np.nonzero(allowed)
        out = made[region]
        out["query"] = np.array(members)[query]
        out["begun"] = state.clocks[out["query"]]
        return out
