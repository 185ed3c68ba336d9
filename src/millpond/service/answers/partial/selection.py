"""Selections and aggregates in parts (promising tuples, sections 4.2 and 4.3).

A probe is one element that is looked at: its predicate is applied.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from millpond.engine.joins.keys import Numbers, axis_of
from millpond.engine.matching.find_matches import find_matches
from millpond.engine.promising.look import factors_over
from millpond.engine.promising.promise import estimate_regions, prioritize
from millpond.engine.promising.regions import Probes, Regions, rank_regions
from millpond.engine.promising.value_index import Elements, ValueIndex, take_elements
from millpond.engine.scalars.residual_query import Residual
from millpond.planner.bind.preference import BoundPreference
from millpond.service.answers.partial.looking import LookedLeaf


@dataclass(eq=False)
class SelectionRun:
    """One answer in parts from one stream.

    Attributes:
        looked: The leaf.
        tables: The rows found so far, in the order found.
        seen: How many elements were looked at.
    """

    looked: LookedLeaf
    residual: Residual
    preference: BoundPreference | None
    tables: list[pa.Table] = field(default_factory=list)
    seen: int = 0

    def __post_init__(self) -> None:
        self._probes: Probes | None = None
        self._keys = np.empty(0, np.uint64)
        self._allowed = np.empty(0, np.int64)
        self._rest: Elements | None = None
        if self.preference is not None and self.looked.views:
            self._rank(self.preference)

    def _rank(self, preference: BoundPreference) -> None:
        looked, summary = self.looked, self.looked.summary
        column = preference.attributes[0]
        assert column is not None
        assert summary is not None
        field_ = looked.stream.schema.find(column)
        assert field_ is not None
        axis = axis_of(field_.type, field_.type)
        assert axis is not None
        self._index = looked.index(column, axis)
        allowed = self._find_allowed(column)
        codes = self._index.codes()[allowed]
        self._keys, self._allowed = self._index.keys[allowed], allowed
        counts = summary.count_by_zone(codes)
        matrices = [
            estimate_regions(summary, r.estimate.kind, counts, codes) for r in preference.estimates
        ]
        values = {0: self._index.values(allowed)} if "v0" in preference.sql else {}
        priority = prioritize(self.residual, preference, matrices, values, counts)
        zones = summary.zones
        regions, rest = rank_regions(
            self._keys,
            zones.edges,
            zones.granularity,
            priority,
            counts,
            preference.order,
            preference.fade,
            looked.low,
            looked.high,
        )
        self._probes = Probes(regions, rest, self._count)

    def _find_allowed(self, column: str) -> Numbers:
        """The places of the values that the conjuncts over the attribute alone let through.

        The selection predicate on top of the summary (figure 8): elements of no other values are
        looked at.
        """
        keys = self._index.keys
        factors = factors_over(self.looked.leaf.predicate, column, self.looked.stream.schema)
        if factors is None or not len(keys):
            return np.arange(len(keys))
        first = self._index.first_elements()
        table = take_elements(self.looked.views, first, self.looked.stream.schema.names)
        return find_matches(table, factors, self.looked.stream.schema)

    def _count(self, regions: Regions) -> Numbers:
        return self._index.count(regions.keys, regions.since, regions.upto)

    @property
    def total(self) -> int:
        """How many elements may be looked at."""
        if self._probes is None:
            return len(self._list_rest()[0])
        looked = self.looked
        if len(self._keys) == len(self._index.keys):  # no value was left out
            return self._index.count_all()
        since = np.full(len(self._keys), looked.low)
        upto = np.full(len(self._keys), looked.high + 1)
        return int(self._index.count(self._keys, since, upto).sum()) + len(self._list_rest()[0])

    def sum_rest(self, probes: int) -> float:
        """Sum the ranked column's values over all elements but those of the first probes."""
        if self._probes is None:
            return 0.0
        looked = self.looked
        since = np.full(len(self._keys), looked.low)
        upto = np.full(len(self._keys), looked.high + 1)
        left = self._index.count(self._keys, since, upto)
        part = self._probes.part(0, probes)
        value = self._probes.regions.value[part.places]
        np.subtract.at(left, value, part.last - part.first)
        places = self._allowed[left > 0]
        values = self._index.values(places).cast(pa.float64()).to_numpy()
        return float(values @ left[left > 0])

    def _list_rest(self) -> Elements:
        """What has no value to rank: all elements without a preference, else those with NULL."""
        if self._rest is None:
            looked = self.looked
            index = (
                self._index
                if self._probes is not None
                else ValueIndex(looked.views, "", None, looked.low, looked.high, looked.before)
            )
            nulls = self._probes is not None
            self._rest = index.list_between(looked.low, looked.high + 1, nulls_only=nulls)
        return self._rest

    def look(self, done: int, more: int) -> int:
        """Make the probes from number `done` on; say how many there were."""
        elements, made = self._elements(done, more)
        if made < more:
            ranked = self._probes.total if self._probes is not None else 0
            numbers, rows = self._list_rest()
            start = max(done + made - ranked, 0)
            own = slice(start, start + more - made)
            elements = (
                np.concatenate([elements[0], numbers[own]]),
                np.concatenate([elements[1], rows[own]]),
            )
            made += len(numbers[own])
        table, _ = self.looked.take(elements)
        self.tables.append(table)
        self.seen += made
        return made

    def _elements(self, done: int, more: int) -> tuple[Elements, int]:
        if self._probes is None:
            empty = np.empty(0, np.int64)
            return (empty, empty), 0
        part = self._probes.part(done, more)
        regions = self._probes.regions.take(part.places)
        region, elements = self._index.list_elements(regions.keys, regions.since, regions.upto)
        starts = np.searchsorted(region, np.arange(len(part.places)))
        rank = np.arange(len(region)) - starts[region]
        chosen = np.flatnonzero((rank >= part.first[region]) & (rank < part.last[region]))
        chosen = chosen[self._probes.sort(part)]
        return (elements[0][chosen], elements[1][chosen]), part.probes

    def rows(self) -> pa.Table:
        """The rows found, in the order found."""
        return pa.concat_tables(self.tables)
