"""Led queries: each is found through one narrow factor, whose attribute leads elements to it.

A block of 512 queries is looked at for every element. Where thousands of queries want a few values
each, that is work for queries that do not match. CACQ (section 2.3) finds the queries of an
equality by hashing the tuple's value. So does this index, and then looks at the further factors of
the queries it found. An element costs one look for each attribute that leads, and some ns for each
query it is led to, however many queries there are.

Which factor leads: the one the fewest elements satisfy, if elements are spread over an attribute
as the queries' constants are (`choose_leads`). Queries without a factor that few elements satisfy
are not led: blocks serve many matches cheaper.

Ranges: the regions of an attribute are cut into cells of 1, 4, 16, … regions. A query is entered
in the cells its leading factor touches, of the size at which they are one or two an interval. So
entries are few, and an element is led to queries whose range at least comes near its value.

INV-LED-1: an element is led to every query whose leading factor holds, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from millpond.engine.matching.array_files import digest_arrays, map_arrays, write_arrays
from millpond.engine.matching.lead_kernels import ASKS, NEXT, PLACE
from millpond.engine.matching.predicate_columns import (
    BELOW,
    MORE,
    NULLS,
    CutAxis,
    Numbers,
    PredicateColumns,
    spread,
)
from millpond.engine.values.region_codes import Coder
from millpond.engine.values.value_sets import Domain
from millpond.model.kept_property import kept_property

_MAGIC = b"MPLEADS2"

#: Sizes of cells are powers of 2 to this: 1, 4, 16, … regions.
_STEP = 2
#: Tests of a query that are beside its entries: with them an entry fills most of a cache line.
_MOST_TESTS = 3


@dataclass(frozen=True, eq=False)
class LedQueries:
    """An immutable index of led queries.

    Attributes:
        columns: Their predicates.
        arrays: `lead_axis` and `lead_shift` (what leads: an attribute, and the size of cells as a
            power of 2), `lead_base` (where each one's cells begin), `cell_start` (where each
            cell's entries begin), `entries` (int32[entries, 4]: one for each test of a query that
            is beside its entry: place of the query << PLACE | NEXT | ASKS, see `lead_kernels`; an
            axis and the interval of its codes), `done` (for each query the part that its cell
            decides alone; -1 if none).
        mapped: Whether the arrays are mapped from a file.
    """

    columns: PredicateColumns
    arrays: dict[str, npt.NDArray[Any]]
    mapped: bool = False

    def __len__(self) -> int:
        return len(self.columns)

    @kept_property
    def coders(self) -> tuple[Coder, ...]:
        """For each axis, its coder."""
        return tuple(axis.coder() for axis in self.columns.axes)

    @kept_property
    def of_null(self) -> Numbers:
        """int64[axes]: the code of NULL."""
        return np.array([len(axis) + 1 for axis in self.columns.axes], np.int64)

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of `find_led` after the codes."""
        a, c = self.arrays, self.columns
        leads = (a["lead_axis"], a["lead_shift"], a["lead_base"], a["cell_start"], a["entries"])
        parts = (a["done"], c.part_start, c.part_axis, c.part_flags, c.cut_start, c.cuts)
        return self.of_null, *leads, *parts

    @property
    def nbytes(self) -> int:
        """Bytes of private memory: those mapped from a file are not counted."""
        return 0 if self.mapped else sum(a.nbytes for a in self._all().values())

    def _all(self) -> dict[str, npt.NDArray[Any]]:
        c = self.columns
        every = dict(self.arrays)
        for name in _COLUMNS:
            every[name] = getattr(c, name)
        for i, axis in enumerate(c.axes):
            every[f"axis_{i}"] = axis.cuts
            if axis.offsets is not None:
                every[f"offsets_{i}"] = axis.offsets
        return every

    def _header(self) -> dict[str, Any]:
        return {"axes": [[axis.attribute, axis.domain.value] for axis in self.columns.axes]}

    @kept_property
    def name(self) -> str:
        """The file's name, made from the content."""
        return f"{digest_arrays(self._header(), self._all())}.leads"

    def save(self, directory: Path) -> str:
        """Write the queries under their content's name unless they are there; return the name."""
        write_arrays(directory / self.name, _MAGIC, self._header(), self._all())
        return self.name

    @staticmethod
    def load(path: Path) -> LedQueries:
        """Map saved queries; arrays are read when they are used.

        Raises:
            ValueError: the file is not what it should be.
            OSError: it cannot be read.
        """
        header, arrays = map_arrays(path, _MAGIC, "a file of led queries")
        axes = tuple(
            CutAxis(
                attribute, Domain(domain), arrays.pop(f"axis_{i}"), arrays.pop(f"offsets_{i}", None)
            )
            for i, (attribute, domain) in enumerate(header["axes"])
        )
        columns = PredicateColumns(axes, *(arrays.pop(name) for name in _COLUMNS))
        led = LedQueries(columns, arrays, mapped=True)
        led.__dict__["name"] = path.name
        return led


_COLUMNS = (
    "slots",
    "deferred",
    "part_start",
    "part_axis",
    "part_flags",
    "cut_start",
    "cuts",
)


@dataclass(frozen=True, eq=False)
class _Intervals:
    """The values of each factor that is no alternative, as intervals of region codes."""

    part: Numbers
    low: Numbers
    high: Numbers


def _intervals_of(columns: PredicateColumns) -> _Intervals:
    flags = columns.part_flags
    more = (flags & MORE) != 0
    lone = np.flatnonzero(~more & ~np.concatenate([[False], more[:-1]]))
    sizes = np.array([len(axis) for axis in columns.axes], np.int64)
    beyond = sizes[columns.part_axis[lone]] + 1
    counts = np.diff(columns.cut_start)[lone]
    below = (flags[lone] & BELOW) != 0
    odd = (counts + below) % 2 == 1
    total = counts + below + odd
    ends = np.cumsum(total)
    begins = ends - total
    edges = np.empty(int(ends[-1]) if len(ends) else 0, np.int64)
    edges[begins[below]] = 0
    edges[spread(begins + below, counts)] = columns.cuts[spread(columns.cut_start[lone], counts)]
    edges[ends[odd] - 1] = beyond[odd]
    nulls = (flags[lone] & NULLS) != 0
    return _Intervals(
        np.concatenate([np.repeat(lone, total // 2), lone[nulls]]),
        np.concatenate([edges[0::2], beyond[nulls]]),
        np.concatenate([edges[1::2], beyond[nulls] + 1]),
    )


def _shares_of(columns: PredicateColumns, found: _Intervals) -> npt.NDArray[np.float64]:
    """Weigh every part; alternatives are infinitely heavy."""
    weight = np.zeros(len(found.part))
    for number, axis in enumerate(columns.axes):
        mine = np.flatnonzero(columns.part_axis[found.part] == number)
        if len(mine) == 0:
            continue
        low, high, room = found.low[mine], found.high[mine], len(axis) + 3
        meeting = np.cumsum(np.bincount(low, minlength=room) - np.bincount(high, minlength=room))
        upto = np.concatenate([[0], np.cumsum(meeting)])
        weight[mine] = (upto[high] - upto[low]) / max(1, upto[-1])
    parts = len(columns.part_flags)
    share = np.full(parts, np.inf)
    share[found.part] = 0.0
    share += np.bincount(found.part, weight, parts)
    return share


def choose_leads(columns: PredicateColumns, most_share: float) -> Numbers:
    """Choose for each query the part that leads to it; -1 if none does.

    A factor's weight is the number of factors on its attribute that meet in its regions, each
    counted in each of its regions, as a share of that number for the whole attribute. It is the
    share of elements that satisfy it, if they are spread as the queries' constants are. So a
    constant that many queries name weighs much, and the queries that name it are led by another
    factor, or not.

    Args:
        most_share: The greatest weight of a factor that leads.

    Returns:
        int64[queries]: Numbers of parts.
    """
    share = _shares_of(columns, _intervals_of(columns))
    best, owners = _first_by(columns, share)
    leads = np.full(len(columns), -1, np.int64)
    leads[owners] = np.where(share[best] <= most_share, best, -1)
    return leads


def _first_by(columns: PredicateColumns, share: npt.NDArray[np.float64]) -> tuple[Numbers, Numbers]:
    """Find the lightest part of each query; return also the queries, by place."""
    owner = np.repeat(np.arange(len(columns)), np.diff(columns.part_start))
    order = np.lexsort((share, owner))
    owners, first = np.unique(owner[order], return_index=True)
    return order[first], owners


def lead(columns: PredicateColumns, leads: Numbers) -> LedQueries:
    """Index queries by the parts that lead to them.

    Args:
        leads: int64[queries]: For each query the number of a part that is no alternative.
    """
    found = _intervals_of(columns)
    owner = np.full(len(columns.part_flags), -1, np.int64)
    owner[leads] = np.arange(len(leads))
    mine = np.flatnonzero(owner[found.part] >= 0)
    member, low, high = owner[found.part[mine]], found.low[mine], found.high[mine]
    # One size of cells a query: an element is led to it by one of them.
    shift = np.zeros(len(columns), np.int64)
    bits = np.frexp((high - low - 1).astype(np.float64))[1].astype(np.int64)
    np.maximum.at(shift, member, -(-bits // _STEP) * _STEP)
    kinds, kind = np.unique(columns.part_axis[leads] * 64 + shift, return_inverse=True)
    axis = kinds // 64
    sizes = np.array([len(a) + 2 for a in columns.axes], np.int64)[axis]
    cells = -(-sizes // (1 << (kinds % 64)))
    base = np.concatenate([[0], np.cumsum(cells)])
    first, last = low >> shift[member], (high - 1) >> shift[member]
    touched = last - first + 1
    entered = spread(first + base[kind[member]], touched)
    # Two intervals of one query may touch one cell.
    order = np.unique(entered * len(columns) + np.repeat(member, touched))
    cell, entries = order // len(columns), order % len(columns)
    done = np.where(shift == 0, leads, -1)
    tests, counts = _tests_of(columns, found, done)
    rows = counts[entries]
    starts = np.zeros(base[-1] + 1, np.int64)
    np.cumsum(np.bincount(cell, rows, minlength=base[-1]), out=starts[1:])
    return LedQueries(
        columns,
        {
            "lead_axis": axis.astype(np.int64),
            "lead_shift": (kinds % 64).astype(np.int64),
            "lead_base": base[:-1].astype(np.int64),
            "cell_start": starts.astype(np.uint32),
            "entries": tests[spread((np.cumsum(counts) - counts)[entries], rows)],
            "done": done,
        },
    )


def _tests_of(
    columns: PredicateColumns, found: _Intervals, done: Numbers
) -> tuple[npt.NDArray[np.int32], Numbers]:
    """Lay out what is tested of each query beside its entry: parts that are single intervals.

    Args:
        done: For each query the part that needs no test; -1 if none.

    Returns:
        int32[tests, 4], the queries' tests one after the other, as `LedQueries.arrays` has them;
        and how many each query has, at least one.
    """
    parts = len(columns.part_flags)
    share = _shares_of(columns, found)
    single = np.bincount(found.part, minlength=parts) == 1
    single[done[done >= 0]] = False
    low, high = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    low[found.part], high[found.part] = found.low, found.high
    chosen = np.flatnonzero(single)
    owner = np.repeat(np.arange(len(columns)), np.diff(columns.part_start))
    chosen = chosen[np.lexsort((share[chosen], owner[chosen]))]
    of_query = np.bincount(owner[chosen], minlength=len(columns))
    rank = np.arange(len(chosen)) - np.repeat(np.cumsum(of_query) - of_query, of_query)
    chosen = chosen[rank < _MOST_TESTS]
    tested = np.minimum(of_query, _MOST_TESTS)
    counts = np.maximum(tested, 1)
    ends = np.cumsum(counts)
    tests = np.zeros((int(ends[-1]) if len(ends) else 0, 4), np.int32)
    tests[:, 0] = np.repeat(np.arange(len(columns)) << PLACE, counts) | NEXT
    # A query without a test has one that always holds.
    tests[:, 3] = 2**31 - 1
    places = spread(ends - counts, tested)
    tests[places, 1] = columns.part_axis[chosen]
    tests[places, 2], tests[places, 3] = low[chosen], high[chosen]
    asks = np.diff(columns.part_start) > (done >= 0) + tested
    tests[ends - 1, 0] += np.where(asks, ASKS, 0) - NEXT
    return tests, counts
