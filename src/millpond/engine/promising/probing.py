"""Probes of regions: how many each has, and what the next ones find, for many queries at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engine.joins.keys import Numbers, mix_numbers
from millpond.engine.promising.family_predicates import FamilyPredicates, Flags
from millpond.engine.promising.look import Look
from millpond.engine.promising.value_index import Elements, ValueIndex, take_elements
from millpond.engine.promising.waiting import Waiting
from millpond.errors import MillpondError
from millpond.model.windows import Window, interval
from millpond.synopses.summaries.protocol import Estimates


@dataclass(frozen=True, eq=False)
class Found:
    """What a step found for one query: element pairs, or elements, in the order found.

    Attributes:
        tables: The rows of each leaf; row i of all of them is one result.
        priority: The priority of each result's region.
        stamps: The timestamps of the first leaf's rows.
        looked: The timestamps of all elements that were looked at.
        least: The priority of the region that was looked at last.
    """

    tables: tuple[pa.Table, ...]
    priority: Estimates
    stamps: Numbers
    looked: Numbers
    least: float


class RegionProber:
    """Looks at regions of the queries of one family.

    Args:
        looks: The queries.
        failures: By query, why its predicate could not be evaluated; shared with the family.
    """

    def __init__(self, looks: Sequence[Look], failures: dict[int, MillpondError]) -> None:
        self._looks = looks
        self._predicates = [
            FamilyPredicates([look.streams[leaf].factors for look in looks], own.schema, failures)
            for leaf, own in enumerate(looks[0].streams)
        ]
        #: By leaf, how long before the later element of a pair each query's window reaches.
        self._sizes = [
            np.array([_size_of(look.streams[leaf].window) for look in looks], np.int64)
            for leaf in range(len(looks[0].streams))
        ]

    def count(self, indexes: Sequence[ValueIndex], waiting: Waiting) -> Numbers:
        """How many probes each region has; equal regions of many queries are counted once."""
        zoned = self._looks[0].zoned
        index = indexes[0] if len(indexes) == 1 else indexes[1 - zoned]
        since, upto = ("since", "upto") if len(indexes) == 1 else ("low", "high")
        some, place = find_distinct(waiting, since, upto)
        return index.count(some["key"], some[since], some[upto])[place]

    def look(
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
            zoned = self._looks[0].zoned
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
        query = every = regions["query"][owner]
        stamps = [
            read_stamps(index, some)[place]
            for index, (some, place) in zip(indexes, sides, strict=True)
        ]
        good = np.ones(len(query), np.bool_)
        tables = []
        for leaf, (some, place) in enumerate(sides):
            schema = self._looks[0].streams[leaf].schema
            table = take_elements(indexes[leaf].views, some, schema.names)
            tables.append(table)
            good &= self._predicates[leaf].match(table)[query, place]
        if len(sides) == 2:
            good &= self._meet(stamps, query)
        query, owner = query[good], owner[good]
        rows = [place[good] for _, place in sides]
        numbers = np.arange(len(self._looks) + 1)
        bounds, looked = np.searchsorted(query, numbers), np.searchsorted(every, numbers)
        last = np.searchsorted(regions["query"], numbers[1:]) - 1
        own_stamps = stamps[0][good]
        found = {}
        for number in np.unique(regions["query"]).tolist():
            own_rows = slice(bounds[number], bounds[number + 1])
            parts = tuple(
                table.select(list(leaf.columns)).take(pa.array(place[own_rows]))
                for table, place, leaf in zip(
                    tables, rows, self._looks[number].streams, strict=True
                )
            )
            found[number] = Found(
                parts,
                priority[owner[own_rows]],
                own_stamps[own_rows],
                stamps[0][looked[number] : looked[number + 1]],
                float(priority[last[number]]),
            )
        return found

    def _meet(self, stamps: Sequence[Numbers], query: Numbers) -> Flags:
        """Whether both elements of each pair are in their windows when the later one comes."""
        at = np.maximum(*stamps)
        good = np.ones(len(at), np.bool_)
        for leaf, own in enumerate(stamps):
            good &= at - own <= self._sizes[leaf][query]
        return good


def _size_of(window: Window) -> int:
    low, _ = interval(window, 0)
    return np.iinfo(np.int64).max if low is None else -low


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


def read_stamps(index: ValueIndex, elements: Elements) -> Numbers:
    """The timestamps of elements, in their order."""
    numbers, rows = elements
    out = np.empty(len(rows), np.int64)
    for number in np.unique(numbers).tolist():
        own = numbers == number
        out[own] = index.views[number].ts[rows[own]]
    return out


def join_found(parts: Sequence[Found]) -> Found:
    """What the turns of one step found, in their order."""
    tables = [pa.concat_tables(some) for some in zip(*(p.tables for p in parts), strict=True)]
    return Found(
        tuple(tables),
        np.concatenate([p.priority for p in parts]),
        np.concatenate([p.stamps for p in parts]),
        np.concatenate([p.looked for p in parts]),
        parts[-1].least,
    )
