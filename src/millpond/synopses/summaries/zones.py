"""Zones of time: how a summary divides the past.

Promising tuples, sections 3.3 to 3.5. The newest granularity, G1, spans T1 and is kept on a grid of
64 lines; each older one is `rate` times as long as the one before and has 8 zones. When a zone of
the next granularity is full and wholly older than T1, its lines leave G1 and become that zone
(figure 5). Beyond the last granularity nothing is kept.

The paper moves single zones of G1, whose edges depend on all that came before. Here every edge lies
on a grid that is fixed in time. So which zones there are at an instant is a function of the
instant, each cell of one moment lies in one cell of any later moment, and a summary can be computed
from the kept elements at any time (INV-ZONES-1).

G1's own zones adjust themselves: a zone ends at the first line where its confidence is too low, and
at every eighth part of T1, the longest length there is (section 3.3). So they too follow from the
elements between two fixed lines, however far back the kept elements reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.model.time import BEGINNING
from millpond.synopses.summaries.protocol import Cells, Numbers, SummaryKind

#: Lines of G1, and zones of each older granularity.
LINES, ZONES = 64, 8
#: Lines of the longest zone of G1.
LONGEST = LINES // 8
#: A zone of G1 ends where its confidence falls below this.
LEAST_CONFIDENCE = 0.98


@dataclass(frozen=True)
class Grid:
    """The granularities of a summary.

    Attributes:
        line: The length of a line of G1, in microseconds.
        rate: How many times as long each older granularity is.
        depth: How many granularities there are.
    """

    line: int
    rate: int
    depth: int

    @staticmethod
    def of(granularity: int, rate: int, depth: int) -> Grid:
        """The grid of a declared summary; G1 spans `granularity` less at most 63 µs."""
        return Grid(granularity // LINES, rate, depth)

    def zone_of(self, granularity: int) -> int:
        """The length of a zone of a granularity from the second on, in microseconds."""
        return LONGEST * self.line * self.rate ** (granularity - 1)

    @property
    def reach(self) -> int:
        """How far back the oldest zone can reach, in microseconds."""
        spans = [ZONES * self.zone_of(g) + self.zone_of(g) for g in range(2, self.depth + 1)]
        return LINES * self.line + sum(spans)

    @property
    def most_cells(self) -> int:
        """How many cells there can be at one instant."""
        if self.depth == 1:
            return LINES
        return LINES + LONGEST * self.rate + (self.depth - 2) * (ZONES + self.rate) + ZONES

    def divide(self, position: int) -> tuple[Numbers, Numbers]:
        """The cells when all elements before `position`, a line, are in the summary.

        Returns:
            The edges, int64[cells + 1], ascending, and the granularity of each cell.
        """
        starts: list[np.ndarray] = []
        granularities: list[int] = []
        end = position
        for granularity in range(1, self.depth + 1):
            size = self.line if granularity == 1 else self.zone_of(granularity)
            span = LINES * self.line if granularity == 1 else ZONES * size
            start = end - span
            if granularity < self.depth:
                coarser = self.zone_of(granularity + 1)
                start = start // coarser * coarser
            first = max(start, BEGINNING // size * size)
            starts.insert(0, np.arange(first, end, size, dtype=np.int64))
            granularities.insert(0, granularity)
            if first > start:
                break
            end = start
        edges = np.concatenate([*starts, np.array([position], np.int64)])
        sizes = [len(part) for part in starts]
        return edges, np.repeat(np.array(granularities, np.int64), sizes)


@dataclass(frozen=True, eq=False)
class Zones:
    """The zones at an instant, ascending in time, end to end.

    Attributes:
        edges: int64[zones + 1]; zone i holds the elements from edge i to before edge i + 1.
        granularity: int64[zones], 1 for the newest.
        cells: The summary of each zone.
    """

    edges: Numbers
    granularity: Numbers
    cells: Cells

    def __len__(self) -> int:
        return len(self.granularity)


def adjust_zones(
    kind: SummaryKind, grid: Grid, edges: Numbers, granularity: Numbers, cells: Cells
) -> Zones:
    """Put the lines of G1 together to zones; older cells are zones already.

    All stretches between fixed lines are gone through at once, line by line.
    """
    newest = np.flatnonzero(granularity == 1)
    starts = np.ones(len(cells), np.bool_)
    fixed = np.flatnonzero(edges[newest] % (LONGEST * grid.line) == 0)
    fixed = newest[fixed] if len(fixed) and fixed[0] == 0 else np.append(newest[:1], newest[fixed])
    ends = np.append(fixed[1:], len(cells))
    held = cells[fixed].copy()
    confidence = kind.confidence(held)
    for step in range(1, LONGEST):
        own = np.flatnonzero(fixed + step < ends)
        if not len(own):
            break
        lines = fixed[own] + step
        # The line before was the first where confidence was too low: the zone ended behind it.
        starts[lines] = unsure = confidence[own] < LEAST_CONFIDENCE
        grows = ~unsure & (cells[lines, 0] > 0)
        pairs = np.tile(np.arange(int(grows.sum())), 2)
        both = np.concatenate([held[own[grows]], cells[lines[grows]]])
        held[own[grows]] = kind.collapse(both, pairs, len(pairs) // 2)
        held[own[unsure]] = cells[lines[unsure]]
        changed = own[unsure | grows]
        confidence[changed] = kind.confidence(held[changed])
    of = np.cumsum(starts) - 1
    joined = kind.collapse(cells, of, int(of[-1]) + 1 if len(of) else 0)
    firsts = np.flatnonzero(starts)
    return Zones(np.append(edges[firsts], edges[-1]), granularity[firsts], joined)
