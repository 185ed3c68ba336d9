"""A stream's summary at an instant: cells of time, zones, and the pyramid over them.

INV-SUMMARY-1: the cells are a function of the bag of ⟨arrival number, value, timestamp⟩ of the
elements before `position` that the grid reaches: `begin(position).with_elements(all of them)`,
whatever the order, the cut and the positions in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from millpond.model.kept_property import kept_property
from millpond.synopses.summaries.count_sketch import CountSketch
from millpond.synopses.summaries.protocol import Cells, Estimates, Numbers, SummaryKind
from millpond.synopses.summaries.value_histogram import ValueHistogram
from millpond.synopses.summaries.value_sample import ValueSample
from millpond.synopses.summaries.zones import Grid, Zones, adjust_zones

#: Answers of `count_by_zone` that a summary keeps.
_COUNTED = 2


def make_kind(name: str, memory: int, grid: Grid, floats: bool) -> SummaryKind:
    """Make the summary-ADT of a declared kind whose cells together fit the memory."""
    width = memory // (8 * grid.most_cells)
    match name:
        case "histogram":
            return ValueHistogram.of_width(width, floats)
        case "sample":
            return ValueSample.of_width(width)
    return CountSketch.of_width(width)


def count_least_bytes(name: str, grid: Grid, floats: bool) -> int:
    """The least memory in which a summary of a kind and a grid has its cells."""
    return 8 * grid.most_cells * make_kind(name, 0, grid, floats).width


@dataclass(frozen=True, eq=False)
class StreamSummary:
    """A summary; a value that never changes.

    Attributes:
        kind: The summary-ADT.
        grid: The granularities.
        position: The line up to which elements are in it, in microseconds.
        edges: int64[cells + 1], the cells' ends in time.
        granularity: int64[cells].
        cells: int64[cells, kind.width].
    """

    kind: SummaryKind
    grid: Grid
    position: int
    edges: Numbers
    granularity: Numbers
    cells: Cells
    _counted: dict[bytes, Estimates] = field(default_factory=dict, repr=False)

    @staticmethod
    def begin(kind: SummaryKind, grid: Grid, position: int) -> StreamSummary:
        """Make a summary of no elements."""
        edges, granularity = grid.divide(position)
        empty = kind.empty(len(granularity))
        return StreamSummary(kind, grid, position, edges, granularity, empty)

    def move_to(self, position: int) -> StreamSummary:
        """The same elements at a later line: cells that became older are added up."""
        edges, granularity = self.grid.divide(position)
        to = np.searchsorted(edges, self.edges[:-1], side="right") - 1
        to = np.where(self.edges[:-1] < edges[0], -1, np.minimum(to, len(granularity) - 1))
        cells = self.kind.collapse(self.cells, to, len(granularity))
        return StreamSummary(self.kind, self.grid, position, edges, granularity, cells)

    def with_elements(self, ts: Numbers, codes: Numbers, arrivals: Numbers) -> StreamSummary:
        """Add elements, in any order; those before the first cell or not before `position` are not
        counted."""
        which = np.searchsorted(self.edges, ts, side="right") - 1
        inside = (which >= 0) & (ts < self.position)
        if not inside.all():
            which, codes, arrivals = which[inside], codes[inside], arrivals[inside]
        cells = self.cells.copy()
        self.kind.summarize(cells, which, np.ascontiguousarray(codes), arrivals)
        return StreamSummary(
            self.kind, self.grid, self.position, self.edges, self.granularity, cells
        )

    @kept_property
    def zones(self) -> Zones:
        """The zones (sections 3.3, 3.5)."""
        return adjust_zones(self.kind, self.grid, self.edges, self.granularity, self.cells)

    @kept_property
    def pyramid(self) -> list[Cells]:
        """The multi-resolution index: the zones, sums of two, of four, … and of all (section 3.4).

        Level 0 has the zones; row i of a level is rows 2i and 2i + 1 of the level below.
        """
        levels = [self.zones.cells]
        while len(levels[-1]) > 1:
            below = levels[-1]
            pairs = np.arange(len(below)) // 2
            levels.append(self.kind.collapse(below, pairs, (len(below) + 1) // 2))
        return levels

    @property
    def top(self) -> Cells:
        """The summary of everything: [1, width]."""
        return self.pyramid[-1] if len(self.zones) else self.kind.empty(1)

    @property
    def bytes(self) -> int:
        """What the cells take."""
        return int(self.cells.nbytes)

    @property
    def held(self) -> int:
        """What it takes now, in bytes: the cells, and the zones and sums that were asked for."""
        arrays = [self.cells]
        if "zones" in self.__dict__:
            arrays.append(self.zones.cells)
        if "pyramid" in self.__dict__:
            arrays += self.pyramid[1:]
        return int(sum(own.nbytes for own in (*arrays, *self._counted.copy().values())))

    def count_by_zone(self, codes: Numbers) -> Estimates:
        """Estimate how many elements of each zone have each value: float64[zones, codes].

        The search goes down the pyramid: a value that a sum of zones has nothing of is not looked
        for in those zones, and counts as 0 there (section 4.1.2). The last answers are kept.
        """
        asked = codes.tobytes()
        found = self._counted.get(asked)
        if found is None:
            found = self._count_by_zone(codes)
            if len(self._counted) >= _COUNTED:
                self._counted.clear()
            self._counted[asked] = found
        return found

    def _count_by_zone(self, codes: Numbers) -> Estimates:
        out = np.zeros((len(self.zones), len(codes)))
        if not len(self.zones):
            return out
        live: list[Numbers] = [np.arange(len(codes))]
        for level in range(len(self.pyramid) - 1, -1, -1):
            rows, below = self.pyramid[level], []
            for row in range(len(rows)):
                asked = live[row >> 1] if level < len(self.pyramid) - 1 else live[0]
                if len(asked):
                    found = self.kind.count(rows[row : row + 1], codes[asked])[0]
                    if level == 0:
                        out[row, asked] = found
                    asked = asked[found > 0]
                below.append(asked)
            live = below
        return out
