"""Answers joins from the Results Structure: from the stored pairs, and from newer elements.

PSoup (VLDB 2002, section 3.3) reads the tuple ids of a window's results and fetches the base
tuples; it does not read the window itself. So the cost of an invocation depends on the size of the
answer, more or less, and not on the size of the windows. Elements that arrived after the core's
position are joined now, with the same SteMs. Each tuple found is then checked against the query's
own windows, predicates and samples, so pairs stored for several queries give each its own answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from millpond.engine.eddy.eddy import Eddy
from millpond.engine.eddy.routing.fixed import FixedPolicy
from millpond.engine.joins.arrangement import SortedRun
from millpond.engine.joins.join import (
    MORSEL,
    Composites,
    PairLimit,
    Reach,
    SteMProbe,
    TooManyPairs,
    sort_tuples,
)
from millpond.engine.joins.join_stem import JoinSteM, StemPart
from millpond.engine.joins.keys import Mask, Numbers
from millpond.engine.joins.pairs import PairsReader
from millpond.engine.joins.plan import ArrangementKey, JoinPlan
from millpond.errors import MillpondError
from millpond.model.kept_property import kept_property
from millpond.model.time import BEGINNING
from millpond.model.windows import interval
from millpond.planner.bind.bound_query import BoundQuery
from millpond.service.answers.leaf_scan import Files, LeafView
from millpond.state.join_state import JoinCore
from millpond.state.version import Version

#: Stored tuples that are always few enough to look at, and how many there may be for each element
#: of the windows: joining an element anew costs about as much as looking at so many.
_FEW = 100_000
_PER_ELEMENT = 8
#: How many times as many rows as are asked for a table of what matches may have.
_LOOKED_UP = 8
#: New elements that are always few enough to be joined one by one, so to speak.
_FEW_FRESH = 65_536


@dataclass(eq=False)
class _LeafRows:
    """One stream of the join, as the query sees it. A place is a row, counted through its views."""

    views: list[LeafView]
    low: int | None
    high: int
    covered: int
    schema: pa.Schema

    @kept_property
    def starts(self) -> Numbers:
        """The place of each view's first row, and how many there are."""
        return np.cumsum([0, *(len(view.ts) for view in self.views)])

    @kept_property
    def is_in_sequence(self) -> bool:
        """Whether the order of places is the order of (timestamp, arrival)."""
        return all(
            one.max_ts < other.min_ts
            or (one.max_ts == other.min_ts and one.arrived[1] < other.arrived[0])
            for one, other in pairwise(self.views)
        )

    def rows(self) -> int:
        """How many elements the window holds, whatever they match."""
        return sum(hi - lo for lo, hi in map(self.between, self.views))

    def between(self, view: LeafView) -> tuple[int, int]:
        lo = 0 if self.low is None else int(np.searchsorted(view.ts, self.low))
        return lo, max(lo, int(np.searchsorted(view.ts, self.high, side="right")))

    def holds(self, view: LeafView, rows: Numbers) -> Mask | None:
        """Which rows are in the window and match; None: all."""
        lo, hi = self.between(view)
        holds: Mask | None = None
        if lo > 0 or hi < len(view.ts):
            holds = (rows >= lo) & (rows < hi)
            if not holds.any():
                return holds
        matching = view.matching(lo, hi)
        if matching is None:
            return holds
        if hi - lo <= _LOOKED_UP * len(rows):
            table = np.zeros(len(view.ts), np.bool_)
            table[matching] = True
            matches = table[rows]
        elif len(matching):
            at = np.searchsorted(matching, rows)
            at[at == len(matching)] = 0
            matches = matching[at] == rows
        else:
            matches = np.zeros(len(rows), np.bool_)
        return matches if holds is None else holds & matches

    def rank(self, places: Numbers) -> Numbers:
        """Numbers in the order of (timestamp, arrival)."""
        if self.is_in_sequence:
            return places
        distinct, inverse = np.unique(places, return_inverse=True)
        stamps, arrivals = np.zeros(len(distinct), np.int64), np.zeros(len(distinct), np.int64)
        for view, start, mine in self.by_view(distinct):
            stamps[mine] = view.ts[distinct[mine] - start]
            arrivals[mine] = view.sequence(distinct[mine] - start)
        ranks = np.empty(len(distinct), np.int64)
        ranks[np.lexsort((arrivals, stamps))] = np.arange(len(distinct))
        found: Numbers = ranks[inverse]
        return found

    def by_view(self, places: Numbers) -> Iterator[tuple[LeafView, int, Numbers]]:
        """The views some places are in, where they start, and which of the places."""
        of = np.searchsorted(self.starts, places, side="right") - 1
        order = np.argsort(of, kind="stable")
        ends = np.searchsorted(of[order], np.arange(len(self.views) + 1))
        for number in np.flatnonzero(np.diff(ends)).tolist():
            mine = order[ends[number] : ends[number + 1]]
            yield self.views[number], int(self.starts[number]), mine


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Joined rows as places in what a query sees of each stream."""

    leaves: Sequence[_LeafRows]
    places: Sequence[Numbers]

    @property
    def count(self) -> int:
        return len(self.places[0])

    def take(
        self, leaf: int, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> pa.Table:
        own, places = self.leaves[leaf], self.places[leaf][start:stop]
        if len(own.views) == 1:
            return own.views[0].table.select(list(columns)).take(pa.array(places))
        parts, back = [], np.empty(len(places), np.int64)
        at = 0
        for view, first, mine in own.by_view(places):
            parts.append(view.table.select(list(columns)).take(pa.array(places[mine] - first)))
            back[mine] = np.arange(at, at + len(mine))
            at += len(mine)
        if not parts:
            return own.schema.empty_table().select(list(columns))
        if len(parts) == 1:
            return parts[0]
        return pa.concat_tables(parts).combine_chunks().take(pa.array(back))


class StoredJoin:
    """One invocation of a join that has a core."""

    def __init__(
        self,
        plan: JoinPlan,
        files: Files,
        version: Version,
        core: JoinCore,
        use: int,
        spans: tuple[int | None, ...],
    ) -> None:
        self._plan = plan
        self._files = files
        self._version = version
        self._core = core
        self._use = use
        self._spans = spans

    def rows(
        self,
        bound: BoundQuery,
        views: Sequence[list[LeafView]],
        schemas: Sequence[pa.Schema],
        at: int,
    ) -> StoredRows | None:
        """The joined slice, in the order a joined slice has (`engine/joins/join.py`).

        None when joining the windows' slices is better, or the only way: no pairs are stored for
        this use, or not as far back as a window reaches, or more than the windows hold.

        Args:
            bound: The query.
            views: For every stream of the join, the segments.
            schemas: For every stream of the join, its columns.
            at: The instant.
        """
        assert bound.join is not None
        leaves = []
        for number, leaf in enumerate(bound.join.leaves):
            low, high = interval(bound.streams[leaf].window, at)
            covered = self._core.covered[number] if self._core.covered else 0
            own = [v for v in views[number] if low is None or v.max_ts >= low]
            own = sorted((v for v in own if v.min_ts <= high), key=lambda v: (v.min_ts, v.max_ts))
            leaves.append(_LeafRows(own, low, high, covered, schemas[number]))
        since = min(BEGINNING if leaf.low is None else leaf.low for leaf in leaves)
        if self._use >= self._core.upto or since < self._core.since_of(self._use):
            return None
        readers = self._readers(since)
        if readers is None:
            return None
        size = sum(leaf.rows() for leaf in leaves)
        fresh = [self._find_fresh(leaf) for leaf in leaves]
        if sum(reader.count(since) for reader in readers) > max(_FEW, _PER_ELEMENT * size):
            return None
        if sum(len(rows) for own in fresh for rows in own) > max(_FEW_FRESH, size // 8):
            return None
        found: list[list[Numbers]] = []
        if readers:
            stored = [reader.after(since) for reader in readers]
            arrivals = [_concatenate(own) for own in zip(*stored, strict=True)]
            found.append(self._locate(leaves, arrivals))
        if any(len(rows) for own in fresh for rows in own):
            try:
                found += self._join_fresh(leaves, fresh)
            except (TooManyPairs, MillpondError):
                return None
        return StoredRows(leaves, _sort_tuples(leaves, found))

    def _readers(self, since: int) -> list[PairsReader] | None:
        readers = []
        for ref in self._version.joins.pairs(self._core.id):
            if ref.low <= self._use < ref.upto and ref.max_oldest >= since:
                reader = self._files.pairs(ref)
                if reader is None:
                    return None  # corrupt or missing: a cache, which is not needed to answer
                readers.append(reader)
        return readers

    def _find_fresh(self, leaf: _LeafRows) -> list[Numbers]:
        """The rows of each view that arrived after the core's position, in window and matching."""
        fresh = []
        for view in leaf.views:
            rows = np.zeros(0, np.int64)
            if view.epoch > self._core.epoch:
                lo, hi = leaf.between(view)
                own = view.matching(lo, hi)
                rows = np.arange(lo, hi, dtype=np.int64) if own is None else own
                rows = rows[view.sequence(rows) >= leaf.covered]
            fresh.append(rows)
        return fresh

    def _locate(self, leaves: Sequence[_LeafRows], arrivals: list[Numbers]) -> list[Numbers]:
        """The places of the stored tuples that the query wants."""
        kept: Numbers | None = None
        located: list[Numbers] = []
        for leaf, every in zip(leaves, arrivals, strict=True):
            own = every if kept is None else every[kept]
            places = _places(leaf, own)
            here = places >= 0
            if not here.all():
                chosen = np.flatnonzero(here)
                kept = chosen if kept is None else kept[chosen]
                located = [earlier[chosen] for earlier in located]
                places = places[chosen]
            located.append(places)
        return located

    def _join_fresh(
        self, leaves: Sequence[_LeafRows], fresh: list[list[Numbers]]
    ) -> list[list[Numbers]]:
        """The tuples with a constituent that arrived after the core's position."""
        stems = [self._stem(leaf) for leaf in leaves]
        budget = PairLimit(4_000_000)
        found = []
        for start, rows_of in enumerate(fresh):
            modules = [
                SteMProbe(
                    self._plan,
                    other,
                    stems,
                    budget,
                    Reach(self._spans),
                    before=None if other < start else leaves[other].covered,
                )
                for other in range(len(leaves))
                if other != start
            ]
            morsels = (
                Composites({start: chosen + part.offset}, len(chosen))
                for part, rows in zip(stems[start].parts, rows_of, strict=True)
                for first in range(0, len(rows), MORSEL)
                if len(chosen := rows[first : first + MORSEL])
            )
            eddy: Eddy[Composites] = Eddy(FixedPolicy())
            for tuples in eddy.route(morsels, modules):
                found.append(self._filter_wanted(leaves, tuples))
        return found

    def _stem(self, leaf: _LeafRows) -> JoinSteM:
        parts, offset = [], 0
        for view in leaf.views:
            stored = _Runs(self._files, self._version, view)
            is_old = view.epoch <= self._core.epoch
            parts.append(StemPart(view.table, offset, view.sequence, is_old, None, stored))
            offset += len(view.ts)
        return JoinSteM(parts)

    def _filter_wanted(self, leaves: Sequence[_LeafRows], tuples: Composites) -> list[Numbers]:
        """The places of the tuples all of whose constituents the query wants."""
        wanted = np.ones(len(tuples), np.bool_)
        for number, leaf in enumerate(leaves):
            places = tuples.places[number]
            for view, start, mine in leaf.by_view(places):
                holds = leaf.holds(view, places[mine] - start)
                if holds is not None:
                    wanted[mine] &= holds
        return [tuples.places[number][wanted] for number in range(len(leaves))]


def _places(leaf: _LeafRows, arrivals: Numbers) -> Numbers:
    """The places of elements; -1 for those that are not in the window, or do not match."""
    places: Numbers = np.full(len(arrivals), -1, np.int64)
    for start, view in zip(leaf.starts.tolist(), leaf.views, strict=False):
        at, rows = view.locate(arrivals)
        holds = leaf.holds(view, rows)
        if at is None:
            # All of them are here.
            return rows + start if holds is None else np.where(holds, rows + start, -1)
        if holds is not None:
            at, rows = at[holds], rows[holds]
        places[at] = rows + start
    return places


def _concatenate(parts: Sequence[Numbers]) -> Numbers:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _sort_tuples(leaves: Sequence[_LeafRows], found: list[list[Numbers]]) -> list[Numbers]:
    """All tuples, in the order of their constituents."""
    places = [_concatenate([f[i] for f in found]) for i in range(len(leaves))]
    if all(leaf.is_in_sequence for leaf in leaves):
        ordered = sort_tuples(dict(enumerate(places)), [int(leaf.starts[-1]) for leaf in leaves])
        return [ordered[i] for i in range(len(leaves))]
    ranks = [leaf.rank(own) for leaf, own in zip(leaves, places, strict=True)]
    order = np.lexsort(ranks[::-1])
    return [own[order] for own in places]


class _Runs:
    """Gives the runs the store has of a segment."""

    def __init__(self, files: Files, version: Version, view: LeafView) -> None:
        self._files = files
        self._version = version
        self._view = view

    def __call__(self, part: StemPart, key: ArrangementKey) -> list[SortedRun] | None:
        own = [r for r in self._version.joins.runs(self._view.segment_id) if r.key == key.text]
        for shards in {r.shards for r in own}:
            runs = {r.shard: r for r in own if r.shards == shards}
            if len(runs) == shards:
                opened = [self._files.run(ref) for ref in runs.values()]
                if None not in opened:
                    return [run for run in opened if run is not None]
        return [self._view.get_run(key.text, lambda: part.build_run(key))]
