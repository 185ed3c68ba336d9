"""Aggregates from the segments: an aggregate over any window without reading the window.

PSoup (VLDB Journal 2003, section 5): the aggregates of repeated invocations share a data structure,
and so do queries with one predicate. Here a segment keeps, for a slot and a column, running totals
of its matches (`millpond.synopses.blocked_totals`); a tree above the segments has the totals of
subtrees (`millpond.engine.aggregates.segment_forest`). An answer merges O(log n) nodes, and opens
only the segments that straddle an edge of the window.

Totals are a cache (`kept_totals`). A standing query's totals stay; a query asked once uses what is
there and leaves nothing behind.

INV-AGGREGATE-1: an answer is a function of the elements kept and the window. Whether totals were at
hand, and how elements are spread over segments, does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.engine.aggregates.finish import finish, finish_sketch
from millpond.engine.aggregates.segment_forest import Subtree, total_of_node
from millpond.engine.aggregates.segment_sketches import compute_sketch
from millpond.engine.aggregates.segment_totals import (
    Asked,
    BlockedSegment,
    compute_blocks,
    compute_totals,
    find_rows,
)
from millpond.planner.aggregates import AVG, SUM, ColumnAggregate
from millpond.service.answers.kept_totals import (
    KeptTotals,
    OpenTotals,
    WindowCut,
    segment_of,
)
from millpond.service.answers.leaf_scan import LeafView
from millpond.service.answers.spread_scan import SpreadScans
from millpond.service.queries.prepared import PreparedQuery
from millpond.state.aggregate_file import Kept, Measured
from millpond.state.version import SegmentRef, Version
from millpond.synopses.blocked_totals import BLOCK, BlockedTotals
from millpond.synopses.sketches import SKETCHES
from millpond.synopses.totals import NOTHING, Total, merge
from millpond.work import check_work

#: In ranges of up to so many rows, reading the matches costs no more than looking for blocks.
_FEW_ROWS = 4 * BLOCK

#: Gives a segment as a leaf sees it.
ViewOf = Callable[[SegmentRef], LeafView]


def list_asked(calls: Sequence[ColumnAggregate]) -> list[Asked]:
    """List what totals calls need; of the rows alone only if of no column."""
    sums: dict[tuple[str, str | None], bool] = {}
    for call in calls:
        if call.column is not None:
            key = call.column, call.sketch
            sums[key] = sums.get(key, False) or call.function in (SUM, AVG)
    asked = [Asked(column, wanted, sketch) for (column, sketch), wanted in sums.items()]
    if any(call.column is None for call in calls) and all(each.sketch for each in asked):
        asked.insert(0, Asked(None))
    return asked


def merge_kept(asked: Asked, parts: Iterable[Any]) -> Any:
    """Merge the totals or sketches of parts of a bag."""
    return merge(parts) if asked.sketch is None else SKETCHES[asked.sketch].merge(parts)


class SegmentAggregates:
    """Answers from totals; safe to use from any thread."""

    def __init__(self, kept: KeptTotals, scans: SpreadScans) -> None:
        self._kept, self._scans = kept, scans

    def answer(
        self,
        query: PreparedQuery,
        version: Version,
        stream: StreamDef,
        instant: int,
        view_of: ViewOf,
    ) -> pa.Table:
        """Compute the answer of a query that is aggregates of one stream.

        Args:
            query: The query; `bound.aggregates` is not None.
            version: A version that is pinned.
            stream: The stream.
            instant: The instant of the answer.
            view_of: Gives a segment as the query's leaf sees it.

        Raises:
            MillpondError: POND-404 where the predicate cannot be evaluated, STORE-602 for a
                corrupt segment.
        """
        (leaf,), (slot,), (factors,) = query.bound.streams, query.slots, query.factors
        calls = query.bound.aggregates
        assert calls is not None
        asked = list_asked(calls)
        measured = tuple(Measured(slot, each.column, each.sketch) for each in asked)
        keeps = slot is not None or factors is None
        if keeps and query.id is None:
            keeps = all(self._kept.is_wanted(stream, each) for each in measured)
        counts_all = factors is None and asked == [Asked(None)]
        readers = self._kept.readers_of(slot, asked) if keeps else {}
        reading = _Reading(self._kept, asked, measured, counts_all, keeps, readers, view_of)
        cut = self._kept.cut(version, stream, leaf.window, instant)
        scanned = None
        if self._scans.can_spread and not counts_all and (factors is not None or not keeps):
            segments = [s for node in cut.whole for s in _segments(node)] + cut.straddling
            scanned = self._scans.read_totals(version, query, stream, segments, instant, asked)
        if scanned is not None:
            parts = scanned
        else:
            parts = [reading.read_node(node) for node in cut.whole]
            parts += [reading.read_inside(segment, cut) for segment in cut.straddling]
        totals = {
            (each.column, each.sketch): merge_kept(each, [part[place] for part in parts])
            for place, each in enumerate(asked)
        }
        rows = next((t for (_, sketch), t in totals.items() if sketch is None), NOTHING)
        types = stream.schema.to_arrow()
        columns = [
            finish_sketch(call, totals[call.column, call.sketch], types.field(call.column).type)
            if call.sketch is not None
            else finish(
                call,
                totals.get((call.column, None), rows),
                types.field(call.column).type if call.column else None,
            )
            for call in calls
        ]
        return pa.Table.from_arrays(columns, names=list(query.bound.output.names))


@dataclass(frozen=True)
class _Reading:
    """Reads the totals for one answer.

    Attributes:
        kept: The totals that are kept.
        asked: What totals are asked of.
        measured: What kept totals are of, for each. Without a slot there may still be a predicate.
        counts_all: Whether every row is counted: then nothing is kept or opened for totals.
        keeps: Whether totals stay.
        readers: The segments whose totals are open, by id; where totals stay.
        view_of: Gives a segment as the leaf sees it.
    """

    kept: KeptTotals
    asked: list[Asked]
    measured: Sequence[Measured]
    counts_all: bool
    keeps: bool
    readers: OpenTotals
    view_of: ViewOf

    def read_node(self, node: Subtree) -> list[Any]:
        """Return the totals and sketches of a subtree that lies in the window."""
        check_work()
        if self.counts_all:
            return [Total(sum(segment.rows for segment in _segments(node)))]
        if not self.keeps:
            found = [self._scan(segment) for segment in _segments(node)]
            return [
                merge_kept(asked, own)
                for asked, own in zip(self.asked, zip(*found, strict=True), strict=True)
            ]
        return [
            total_of_node(
                node, measured, partial(self._whole, measured), partial(merge_kept, asked)
            )
            for asked, measured in zip(self.asked, self.measured, strict=True)
        ]

    def _scan(self, segment: SegmentRef) -> list[Any]:
        check_work()
        return self._compute(self.view_of(segment), 0, segment.rows)

    def _compute(self, view: LeafView, lo: int, hi: int) -> list[Any]:
        """Compute the totals and sketches of the matches in rows [lo, hi), by reading them."""
        totals = iter(compute_totals(view, [a for a in self.asked if a.sketch is None], lo, hi))
        return self._add_sketches(totals, view, lo, hi)

    def _add_sketches(self, totals: Iterator[Total], view: LeafView, lo: int, hi: int) -> list[Any]:
        """Put totals and the sketches of the matches in rows [lo, hi) in their order."""
        return [
            next(totals)
            if each.sketch is None
            else compute_sketch(view, each.column or "", each.sketch, lo, hi)
            for each in self.asked
        ]

    def _whole(self, measured: Measured, segment: Any) -> Any:
        check_work()
        kept = self._find(self.view_of(segment), segment, measured)
        return kept.total(0, kept.blocks) if isinstance(kept, BlockedTotals) else kept

    def read_inside(self, segment: SegmentRef, cut: WindowCut) -> list[Any]:
        """Return the totals and sketches of a segment's matches inside the window."""
        check_work()
        opened = self.readers.get(segment.id)
        if opened is not None and not any(each.sketch for each in self.asked):
            return opened.read(cut.low, cut.high)
        view = self.view_of(segment)
        lo, hi = find_rows(view, cut.low, cut.high)
        if self.counts_all:
            return [Total(hi - lo)]
        # Blocks are of all matches: elements outside the window, for which the predicate may fail,
        # must not be evaluated for them.
        if not self.keeps or not view.is_matched:
            return self._compute(view, lo, hi)
        if opened is None:
            opened = self._open_blocks(segment, view, few=hi - lo <= _FEW_ROWS)
        if opened is None:
            return self._compute(view, lo, hi)
        return self._add_sketches(iter(opened.read(cut.low, cut.high)), view, lo, hi)

    def _open_blocks(self, segment: SegmentRef, view: LeafView, few: bool) -> BlockedSegment | None:
        """Open a segment's blocked totals; of few rows only if they are at hand, else None.

        None also if only sketches are asked for.
        """
        find = self.kept.find if few else partial(self._find, view)
        totals = [each for each in self.asked if each.sketch is None]
        found = [find(segment, each) for each in self.measured if each.sketch is None]
        blocks = [each for each in found if isinstance(each, BlockedTotals)]
        if not totals or len(blocks) < len(totals):
            return None
        opened = BlockedSegment(view, totals, blocks)
        self.kept.add_reader(self.readers, segment, opened)
        return opened

    def _find(self, view: LeafView, segment: SegmentRef, measured: Measured) -> Kept:
        """Find a segment's totals or sketch, or compute them and remember them."""
        found = self.kept.find(segment, measured)
        if found is None:
            if measured.sketch is None:
                found = compute_blocks(view, measured.column)
            else:
                found = compute_sketch(
                    view, measured.column or "", measured.sketch, 0, segment.rows
                )
            self.kept.remember(segment, measured, found)
        return found


def _segments(node: Subtree) -> Iterable[SegmentRef]:
    if node.segment is not None:
        yield segment_of(node)
    for child in node.children:
        yield from _segments(child)
