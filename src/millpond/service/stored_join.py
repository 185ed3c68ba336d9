"""Joins answered from the Results Structure: the pairs that are stored, and what came since.

PSoup (VLDB 2002, section 3.3) reads the tuple ids of a window's results and fetches the base
tuples; the window itself is not touched. So an invocation costs what is in the answer, more or
less, and not what is in the windows. Elements that arrived after the core's position are joined
here and now, with the same SteMs. Each tuple found is then held against the query's own windows,
predicates and samples, so what is stored for several queries gives each its own answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engine.arrangement import Run
from millpond.engine.data_stem import DataSteM, Part
from millpond.engine.eddy import Eddy
from millpond.engine.join import MORSEL, Budget, Composites, Reach, SteMProbe, TooManyPairs
from millpond.engine.join_keys import Mask, Numbers
from millpond.engine.join_plan import ArrangementKey, JoinPlan
from millpond.engine.pairs import PairsReader
from millpond.engine.routing.fixed import Fixed
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.model.windows import interval
from millpond.planner.bound import BoundQuery
from millpond.service.leaf_views import Files, LeafView
from millpond.state.join_state import JoinCore
from millpond.state.version import Version

#: Stored tuples that are always few enough to look at.
_FEW = 100_000
#: New elements that are always few enough to be joined one by one, so to speak.
_FEW_FRESH = 65_536


@dataclass(eq=False)
class _Leaf:
    """One stream of the join, as the query sees it."""

    views: list[LeafView]
    low: int | None
    high: int
    columns: tuple[str, ...]
    covered: int
    schema: pa.Schema

    def rows(self) -> int:
        """How many elements the window holds, whatever they match."""
        return sum(hi - lo for lo, hi in map(self.between, self.views))

    def between(self, view: LeafView) -> tuple[int, int]:
        lo = 0 if self.low is None else int(np.searchsorted(view.ts, self.low))
        return lo, max(lo, int(np.searchsorted(view.ts, self.high, side="right")))

    def holds(self, view: LeafView, rows: Numbers) -> Mask:
        """Which rows are in the window and match."""
        lo, hi = self.between(view)
        holds: Mask = (rows >= lo) & (rows < hi)
        if not holds.any():
            return holds
        matching = view.matching(lo, hi)
        if matching is not None:
            at = np.searchsorted(matching, rows)
            at[at == len(matching)] = 0
            holds &= (matching[at] == rows) if len(matching) else False
        return holds


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

    def tables(
        self,
        bound: BoundQuery,
        views: Sequence[list[LeafView]],
        schemas: Sequence[pa.Schema],
        at: int,
    ) -> dict[str, pa.Table] | None:
        """The joined slice: for every stream of the join a table, row beside row.

        None when the windows' slices are the better way, or the only one: nothing is stored for
        this use, or not as far back as a window reaches, or more than there is in the windows.

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
            own = [v for v in own if v.min_ts <= high]
            columns = bound.streams[leaf].columns
            leaves.append(_Leaf(own, low, high, columns, covered, schemas[number]))
        since = min(BEGINNING if leaf.low is None else leaf.low for leaf in leaves)
        if self._use >= self._core.upto or since < self._core.since_of(self._use):
            return None
        readers = self._readers(since)
        if readers is None:
            return None
        size = sum(leaf.rows() for leaf in leaves)
        fresh = [self._fresh(leaf) for leaf in leaves]
        if sum(reader.count(since) for reader in readers) > max(_FEW, size):
            return None
        if sum(len(rows) for own in fresh for rows in own) > max(_FEW_FRESH, size // 8):
            return None
        found = [self._located(leaves, reader.after(since)) for reader in readers]
        if any(len(rows) for own in fresh for rows in own):
            try:
                found += self._joined(leaves, fresh)
            except (TooManyPairs, MillpondError):
                return None
        tables = [bound.streams[leaf].table for leaf in bound.join.leaves]
        return dict(zip(tables, self._gathered(leaves, found), strict=True))

    def _readers(self, since: int) -> list[PairsReader] | None:
        readers = []
        for ref in self._version.joins.pairs(self._core.id):
            if ref.low <= self._use < ref.upto and ref.max_oldest >= since:
                reader = self._files.pairs(ref)
                if reader is None:
                    return None  # corrupt or missing: a cache, which is not needed to answer
                readers.append(reader)
        return readers

    def _fresh(self, leaf: _Leaf) -> list[Numbers]:
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

    def _located(self, leaves: Sequence[_Leaf], arrivals: list[Numbers]) -> list[_Rows]:
        """Stored tuples as rows of views, those the query does not want left out."""
        kept = np.arange(len(arrivals[0]))
        located: list[_Rows] = []
        for leaf, own in zip(leaves, arrivals, strict=True):
            own = own[kept]
            number = np.full(len(own), -1, np.int32)
            row = np.zeros(len(own), np.int64)
            for i, view in enumerate(leaf.views):
                places, rows = view.locate(own)
                if not len(places):
                    continue
                holds = leaf.holds(view, rows)
                number[places[holds]] = i
                row[places[holds]] = rows[holds]
            here = np.flatnonzero(number >= 0)
            kept = kept[here]
            located = [_Rows(r.number[here], r.row[here]) for r in located]
            located.append(_Rows(number[here], row[here]))
        return located

    def _joined(self, leaves: Sequence[_Leaf], fresh: list[list[Numbers]]) -> list[list[_Rows]]:
        """The tuples with a constituent the core has not seen."""
        stems = [self._stem(leaf) for leaf in leaves]
        budget = Budget(4_000_000)
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
            eddy: Eddy[Composites] = Eddy(Fixed())
            for tuples in eddy.route(morsels, modules):
                found.append(self._wanted(leaves, stems, tuples))
        return found

    def _stem(self, leaf: _Leaf) -> DataSteM:
        parts, offset = [], 0
        for view in leaf.views:
            stored = _Runs(self._files, self._version, view)
            is_old = view.epoch <= self._core.epoch
            parts.append(Part(view.table, offset, view.sequence, is_old, None, stored))
            offset += len(view.ts)
        return DataSteM(parts)

    def _wanted(
        self, leaves: Sequence[_Leaf], stems: list[DataSteM], tuples: Composites
    ) -> list[_Rows]:
        located: list[_Rows] = []
        kept = np.arange(len(tuples))
        for number, (leaf, stem) in enumerate(zip(leaves, stems, strict=True)):
            places = tuples.places[number][kept]
            view_of = np.full(len(places), -1, np.int32)
            row = np.zeros(len(places), np.int64)
            for part, mine in stem.by_part(places):
                index = stem.parts.index(part)
                rows = places[mine] - part.offset
                holds = leaf.holds(leaf.views[index], rows)
                view_of[mine[holds]] = index
                row[mine[holds]] = rows[holds]
            here = np.flatnonzero(view_of >= 0)
            kept = kept[here]
            located = [_Rows(r.number[here], r.row[here]) for r in located]
            located.append(_Rows(view_of[here], row[here]))
        return located

    def _gathered(self, leaves: Sequence[_Leaf], found: list[list[_Rows]]) -> list[pa.Table]:
        """The tables, in the order a joined slice has (`engine/join.py`)."""
        every = [
            _Rows(
                np.concatenate([np.zeros(0, np.int32), *(f[i].number for f in found)]),
                np.concatenate([np.zeros(0, np.int64), *(f[i].row for f in found)]),
            )
            for i in range(len(leaves))
        ]
        keys: list[Numbers] = []
        for leaf, own in zip(leaves, every, strict=True):
            stamps, arrivals = np.zeros(len(own.row), np.int64), np.zeros(len(own.row), np.int64)
            for i in np.unique(own.number):
                mine = own.number == i
                stamps[mine] = leaf.views[i].ts[own.row[mine]]
                arrivals[mine] = leaf.views[i].sequence(own.row[mine])
            keys += [stamps, arrivals]
        order = np.lexsort(keys[::-1])
        tables = []
        for leaf, own in zip(leaves, every, strict=True):
            tables.append(_taken(leaf, _Rows(own.number[order], own.row[order])))
        return tables


@dataclass(frozen=True, eq=False)
class _Rows:
    """Elements of one stream: number of the view, row in it."""

    number: np.ndarray
    row: Numbers


def _taken(leaf: _Leaf, rows: _Rows) -> pa.Table:
    """The columns of the rows, in their order; an element that is there often is read once."""
    parts, place = [], np.zeros(len(rows.row), np.int64)
    start = 0
    for i in np.unique(rows.number):
        mine = np.flatnonzero(rows.number == i)
        distinct, inverse = np.unique(rows.row[mine], return_inverse=True)
        parts.append(leaf.views[i].take(distinct, leaf.columns))
        place[mine] = start + inverse
        start += len(distinct)
    if not parts:
        return leaf.schema.empty_table().select(list(leaf.columns))
    table = pa.concat_tables(parts).combine_chunks()
    return table.take(pa.array(place))


class _Runs:
    """Gives the runs the store has of a segment."""

    def __init__(self, files: Files, version: Version, view: LeafView) -> None:
        self._files = files
        self._version = version
        self._view = view

    def __call__(self, part: Part, key: ArrangementKey) -> list[Run] | None:
        own = [r for r in self._version.joins.runs(self._view.segment_id) if r.key == key.text]
        for shards in {r.shards for r in own}:
            runs = {r.shard: r for r in own if r.shards == shards}
            if len(runs) == shards:
                opened = [self._files.run(ref) for ref in runs.values()]
                if None not in opened:
                    return [run for run in opened if run is not None]
        return [self._view.arranged(key.text, lambda: part.arrange(key))]
