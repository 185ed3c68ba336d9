"""The join by regions and the exact shared join, each given the same CPU time (PRESSURE 10).

Both are charged for what they keep: the exact join for the sorted run of one window, the join by
regions for the summary, for the runs of both windows and for the ranking. Then each finds pairs in
pieces until its time is over. A time is CPU time of this process for an arriving element.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from _harness import console, picture, show
from millpond.engine.joins.arrangement import SortedRun, build
from millpond.engine.joins.keys import Axis, mix_numbers
from millpond.engine.promising.regions import Probes, Regions, rank_regions
from millpond.engine.promising.value_index import ValueIndex
from millpond.service.answers.partial.join import _cross
from promising.windows import Window, read_flights, read_windows

#: CPU time for each arriving element, in microseconds.
BUDGETS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
#: Elements that the exact join looks up between two looks at the clock.
_AT_ONCE = 64
#: Probes of the first step by regions; each further one has twice as many.
_FIRST = 256


class _View:
    """A window as a segment that a value index looks through."""

    def __init__(self, window: Window) -> None:
        self.ts, self.arrived = window.ts, (0, len(window.ts) - 1)
        self.table = pa.table({"item": window.items})
        self._run: SortedRun | None = None

    def get_run(self, key: str, arrange: Callable[[], SortedRun]) -> SortedRun:
        del key
        self._run = self._run or arrange()
        return self._run

    def sequence(self, rows: np.ndarray) -> np.ndarray:
        return rows


def join_exactly(one: Window, two: Window) -> Iterator[int]:
    """The exact join by a sorted run, the newest elements first: the pairs of each piece."""
    run = build(mix_numbers(two.items), two.ts)
    keys = mix_numbers(one.items)
    for end in range(len(keys), 0, -_AT_ONCE):
        own = keys[max(end - _AT_ONCE, 0) : end]
        low = np.searchsorted(run.keys, own)
        counts = np.searchsorted(run.keys, own, side="right") - low
        left = np.repeat(np.arange(len(own)), counts)
        offset = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
        yield len(run.place[low[left] + offset])


def join_by_regions(one: Window, two: Window) -> Iterator[int]:
    """The join by regions, the most promising first: the pairs of each step."""
    summary = two.summarize()
    low, high = int(two.ts[0]), int(two.ts[-1])
    low_one, high_one = int(one.ts[0]), int(one.ts[-1])
    there = ValueIndex([_View(one)], "item", Axis.INTEGER, low_one, high_one, len(one.ts))
    here = ValueIndex([_View(two)], "item", Axis.INTEGER, low, high, len(two.ts))
    keys, places, _ = np.intersect1d(here.keys, there.keys, assume_unique=True, return_indices=True)
    whole = np.ones(len(keys), np.int64)
    lookups = there.count(keys, whole * low_one, whole * (high_one + 1))
    results = summary.count_by_zone(here.codes()[places]) * lookups
    zones = summary.zones
    regions, rest = rank_regions(
        keys, zones.edges, zones.granularity, results, results, "desc", 1.0, low, high
    )

    def count(some: Regions) -> np.ndarray:
        found = here.count(some.keys, some.since, some.upto)
        return np.where((some.results > 0) | (found > 0), lookups[some.value], 0)

    probes, done, step = Probes(regions, rest, count), 0, _FIRST
    while True:
        part = probes.part(done, step)
        if not part.probes:
            return
        done, step = done + part.probes, 2 * step
        own = probes.regions.take(part.places)
        whole = np.ones(len(own), np.int64)
        region, _ = there.list_elements(own.keys, whole * low_one, whole * (high_one + 1))
        rank = np.arange(len(region)) - np.searchsorted(region, np.arange(len(own)))[region]
        chosen = (rank >= part.first[region]) & (rank < part.last[region])
        probed, _ = here.list_elements(own.keys, own.since, own.upto)
        yield sum(len(left) for left, _ in _cross(region[chosen], probed, len(own)))


WAYS = {"exact shared join": join_exactly, "PT-Join desc": join_by_regions}


def measure(join: Iterator[int], budgets: np.ndarray) -> tuple[np.ndarray, int, float]:
    """Run a join to its end; the pairs it had at each time, all its pairs, and its CPU seconds.

    Args:
        join: The join.
        budgets: CPU seconds, ascending.
    """
    begun = time.process_time()
    at, found = [0.0], [0]
    for pairs in join:
        found.append(found[-1] + pairs)
        at.append(time.process_time() - begun)
    seconds = time.process_time() - begun
    # What was found when a step was over; a step that was not over in time has found nothing.
    places = np.searchsorted(np.array(at), budgets, side="right") - 1
    return np.array(found)[places], found[-1], seconds


def run(elements: int, count: int, data: str) -> None:
    """Measure both over some windows, show and draw them."""
    read = read_windows if data == "retail" else read_flights
    windows = list(read(elements, count))
    for join in WAYS.values():
        measure(join(*windows[0]), np.zeros(1))  # compiled
    shares: dict[str, list[np.ndarray]] = {name: [] for name in WAYS}
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for one, two in windows:
        wholes = set()
        for name, join in WAYS.items():
            budgets = np.array(BUDGETS) * 1e-6 * 2 * elements
            found, whole, took = measure(join(one, two), budgets)
            shares[name].append(100 * found / whole)
            seconds[name].append(took)
            wholes.add(whole)
        assert len(wholes) == 1  # to its end, each finds the exact output
    title = "share of the exact output by CPU time, percent"
    labels = ("CPU us an element", *map(str, BUDGETS))
    lines = {name: np.mean(own, axis=0) for name, own in shares.items()}
    show(title, labels, [(name, *own.round(1).tolist()) for name, own in lines.items()])
    drawn = {name: (BUDGETS, np.maximum(own, 1e-3)) for name, own in lines.items()}
    picture(f"promising_{data}_under_cpu", title, labels[0], "percent", drawn)
    for name, own in seconds.items():
        console.print(
            f"{name}: all of it in {np.mean(own) * 1e6 / (2 * elements):.1f} us of CPU an element"
        )
