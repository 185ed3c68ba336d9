"""Probes of regions: how many each has, and what the next ones find, for many queries at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.engine.joins.keys import Numbers, mix_numbers
from millpond.engine.promising.family_predicates import FamilyPredicates, Flags
from millpond.engine.promising.look import Look
from millpond.engine.promising.value_index import Elements, ValueIndex, take_elements
from millpond.engine.promising.waiting import Waiting
from millpond.errors import MillpondError
from millpond.model.windows import Window, interval
from millpond.synopses.summaries.protocol import Estimates

#: Pairs of a join, or elements, that are held at once while they are looked at.
PIECE = 1 << 18


@dataclass(frozen=True, eq=False)
class Found:
    """What a step found for one query: element pairs, or elements, in the order found.

    Attributes:
        tables: The rows of each leaf; row i of all of them is one result.
        priority: The priority of each result's region.
        stamps: The timestamps of the first leaf's rows.
        looked: The timestamps of all elements that were looked at; of a join none.
        worth: Of an aggregate with a SUM of the column that ranks, the values of these elements.
        least: The priority of the region that was looked at last.
    """

    tables: tuple[pa.Table, ...]
    priority: Estimates
    stamps: Numbers
    looked: Numbers
    worth: Estimates
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
    ) -> Iterator[dict[int, Found]]:
        """Look at the next probes of some regions; give what each piece of them found, by query.

        At most `PIECE` pairs (or elements) are held at once.
        """
        if not len(regions):
            return
        zoned, whole = self._looks[0].zoned, np.zeros(len(regions), np.int64)
        if len(indexes) == 1:
            listed = [_list_elements(indexes[0], regions, "since", "upto", regions["done"])]
            count = whole + 1
        else:
            own = _list_elements(indexes[1 - zoned], regions, "low", "high", regions["done"])
            others = _list_elements(indexes[zoned], regions, "since", "upto", whole)
            listed = [own, others] if zoned == 1 else [others, own]
            count = indexes[zoned].count(regions["key"], regions["since"], regions["upto"])
        # Each probe meets every element of its region: pairs are numbered probe after probe.
        ends = np.cumsum(probes * count)
        for begin in range(0, max(int(ends[-1]), 1), PIECE):
            pair = np.arange(begin, min(begin + PIECE, int(ends[-1])))
            owner = np.searchsorted(ends, pair, side="right")
            pair -= (ends - probes * count)[owner]
            probe, target = np.divmod(pair, count[owner])
            if len(indexes) == 1:
                offsets = [probe]
            else:
                offsets = [probe, target] if zoned == 1 else [target, probe]
            sides = [
                _use(elements, starts[owner] + offset)
                for (elements, starts), offset in zip(listed, offsets, strict=True)
            ]
            found: dict[int, Found] = {}
            self._look_at(indexes, regions, priority, owner, sides, found, begin == 0)
            yield found

    def _look_at(
        self,
        indexes: Sequence[ValueIndex],
        regions: Waiting,
        priority: Estimates,
        owner: Numbers,
        sides: Sequence[tuple[Elements, Numbers]],
        found: dict[int, Found],
        is_first: bool,
    ) -> None:
        """Look at a piece: row i of all sides is a pair (or an element) of the region owner[i]."""
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
        own_stamps, alone, nothing = stamps[0][good], len(sides) == 1, np.empty(0, np.int64)
        key = self._looks[0].streams[0].key
        worth = np.empty(0)
        if any(look.known for look in self._looks):
            worth = read_worth(tables[0][key])[sides[0][1]]
        # An aggregate is told of all that it looked at, also of nothing; other queries of results.
        there = query
        if self._looks[0].kind == "aggregate":
            there = regions["query"] if is_first else every
        for number in np.unique(there).tolist():
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
                # Only an aggregate of one stream asks what was looked at.
                stamps[0][looked[number] : looked[number + 1]] if alone else nothing,
                worth[looked[number] : looked[number + 1]]
                if self._looks[number].known
                else np.empty(0),
                float(priority[last[number]]),
            )

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


def _list_elements(
    index: ValueIndex, regions: Waiting, since: str, upto: str, done: Numbers
) -> tuple[Elements, Numbers]:
    """The elements of some regions, the newest of a region first; equal regions are listed once.

    Returns:
        The elements, and for each region the place of the first one behind `done` of them.
    """
    some, place = find_distinct(regions, since, upto)
    owner, elements = index.list_elements(some["key"], some[since], some[upto])
    return elements, np.searchsorted(owner, np.arange(len(some)))[place] + done


def _use(elements: Elements, places: Numbers) -> tuple[Elements, Numbers]:
    """The elements at some places, each once, and for each place which of them it is."""
    used, which = np.unique(places, return_inverse=True)
    return (elements[0][used], elements[1][used]), which.reshape(-1)


def read_stamps(index: ValueIndex, elements: Elements) -> Numbers:
    """The timestamps of elements, in their order."""
    numbers, rows = elements
    out = np.empty(len(rows), np.int64)
    for number in np.unique(numbers).tolist():
        own = numbers == number
        out[own] = index.views[number].ts[rows[own]]
    return out


def read_worth(column: pa.ChunkedArray) -> Estimates:
    """The values of a column of numbers as they add up: NULL is 0."""
    return np.asarray(pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(), np.float64)


def join_found(parts: Sequence[Found]) -> Found:
    """What the turns of one step found, in their order."""
    if len(parts) == 1:
        return parts[0]
    tables = [pa.concat_tables(some) for some in zip(*(p.tables for p in parts), strict=True)]
    return Found(
        tuple(tables),
        np.concatenate([p.priority for p in parts]),
        np.concatenate([p.stamps for p in parts]),
        np.concatenate([p.looked for p in parts]),
        np.concatenate([p.worth for p in parts]),
        parts[-1].least,
    )
