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

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.engine.aggregates.finish import finish
from millpond.engine.aggregates.segment_forest import Node, total_of_node
from millpond.engine.aggregates.segment_totals import (
    compute_blocks,
    compute_total,
    find_rows,
    read_total,
)
from millpond.engine.scalars.work import check_work
from millpond.model.windows import interval
from millpond.planner.aggregates import AggregateCall
from millpond.service.answers.kept_totals import KeptTotals
from millpond.service.answers.leaf_scan import LeafView
from millpond.service.queries.prepared import PreparedQuery
from millpond.state.aggregate_file import Measured
from millpond.state.version import SegmentRef, Version
from millpond.synopses.blocked_totals import BLOCK, BlockedTotals
from millpond.synopses.totals import Total, merge

#: In ranges of up to so many rows, reading the matches costs no more than looking for blocks.
_FEW_ROWS = BLOCK

#: Gives a segment as a leaf sees it.
ViewOf = Callable[[SegmentRef], LeafView]


def list_columns(calls: Iterable[AggregateCall]) -> list[str | None]:
    """List the columns whose totals calls need; None, the rows alone, only if no other is."""
    columns = list(dict.fromkeys(c.column for c in calls if c.column is not None))
    return [*columns] if columns else [None]


class SegmentAggregates:
    """Answers from totals; safe to use from any thread."""

    def __init__(self, kept: KeptTotals) -> None:
        self._kept = kept

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
        (leaf,), (slot,) = query.bound.streams, query.slots
        calls = query.bound.aggregates
        assert calls is not None
        low, high = interval(leaf.window, instant)
        whole, straddling = self._kept.cut(version, stream, low, high)
        views = {node.number: view_of(_segment(node)) for node in straddling}
        totals = {}
        for column in list_columns(calls):
            measured = Measured(slot, column)
            matches_all = query.factors[0] is None
            keeps = slot is not None or matches_all
            if keeps and query.id is None:
                keeps = self._kept.is_wanted(stream, measured)
            reading = _Reading(self._kept, measured, matches_all and column is None, keeps, view_of)
            parts = [reading.total_of_node(node) for node in whole]
            for node in straddling:
                check_work()
                parts.append(reading.total_inside(_segment(node), views[node.number], low, high))
            totals[column] = merge(parts)
        types = stream.schema.to_arrow()
        some = next(iter(totals.values()))
        columns = [
            finish(
                call, totals.get(call.column, some), call.column and types.field(call.column).type
            )
            for call in calls
        ]
        return pa.Table.from_arrays(columns, names=list(query.bound.output.names))


@dataclass(frozen=True)
class _Reading:
    """Reads the totals of one column for one answer.

    Attributes:
        kept: The totals that are kept.
        measured: What totals are of. Without a slot there may still be a predicate.
        counts_all: Whether every row is counted: then nothing is kept or opened for totals.
        keeps: Whether totals stay.
        view_of: Gives a segment as the leaf sees it.
    """

    kept: KeptTotals
    measured: Measured
    counts_all: bool
    keeps: bool
    view_of: ViewOf

    def total_of_node(self, node: Node) -> Total:
        """Return the total of a subtree that lies in the window."""
        if self.counts_all or not self.keeps:
            return merge(self._whole(segment) for segment in _segments(node))
        return total_of_node(node, self.measured, self._whole)

    def _whole(self, segment: Any) -> Total:
        check_work()
        if self.counts_all:
            return Total(segment.rows)
        view = self.view_of(segment)
        if not self.keeps:
            return compute_total(view, self.measured.column, 0, segment.rows)
        blocks = self._blocks(segment, view)
        return blocks.total(0, blocks.blocks)

    def total_inside(
        self, segment: SegmentRef, view: LeafView, low: int | None, high: int
    ) -> Total:
        """Return the total of a segment's matches inside the window."""
        lo, hi = find_rows(view, low, high)
        if self.counts_all:
            return Total(hi - lo)
        # Blocks are of all matches: elements outside the window, for which the predicate may fail,
        # must not be evaluated for them.
        if hi - lo <= _FEW_ROWS or not self.keeps or not view.is_matched:
            return compute_total(view, self.measured.column, lo, hi)
        return read_total(view, self.measured.column, self._blocks(segment, view), lo, hi)

    def _blocks(self, segment: SegmentRef, view: LeafView) -> BlockedTotals:
        found = self.kept.find(segment, self.measured)
        if found is None:
            found = compute_blocks(view, self.measured.column)
            self.kept.remember(segment, self.measured, found)
        return found


def _segment(node: Node) -> SegmentRef:
    assert isinstance(node.segment, SegmentRef)
    return node.segment


def _segments(node: Node) -> Iterable[SegmentRef]:
    if node.segment is not None:
        yield _segment(node)
    for child in node.children:
        yield from _segments(child)
