"""Aggregates by group from the segments: without reading the window, where groups are few.

A registered query's totals by group are kept beside other totals (`kept_totals`). They are exact,
so an answer from them is the answer from rows, and either may be given. Rows are read where a
segment has nearly as many groups as rows, so that its totals would be as large as it is, and where
most of the window's rows lie in the segments at its edges.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.catalog.objects import StreamDef
from millpond.engine.aggregates.segment_forest import Subtree, total_of_node
from millpond.engine.aggregates.segment_groups import (
    compute_groups,
    compute_groups_of,
    finish_groups,
    merge_groups,
    read_matches,
)
from millpond.engine.aggregates.segment_totals import find_rows
from millpond.planner.aggregates import GroupedAggregates
from millpond.service.answers.kept_totals import KeptTotals, WindowCut
from millpond.service.answers.leaf_scan import LeafView
from millpond.service.answers.segment_aggregates import ViewOf
from millpond.service.answers.spread_scan import SpreadScans
from millpond.service.queries.prepared import PreparedQuery
from millpond.state.aggregate_file import Measured
from millpond.state.version import Version
from millpond.synopses.group_totals import GroupTotals
from millpond.work import check_work

#: Totals by group are used where segments have at least so many rows for each group of theirs.
ROWS_OF_A_GROUP = 16
#: In segments of so few rows there may be any number of groups.
FEW_ROWS = 1 << 14
#: The most groups of all nodes that are merged for one answer.
MOST_GROUPS = 1 << 18


class TooManyGroups(Exception):
    """The groups are too many for totals to help."""


class SegmentGroups:
    """Answers from totals by group; safe to use from any thread."""

    def __init__(self, kept: KeptTotals, scans: SpreadScans) -> None:
        self._kept, self._scans = kept, scans

    def answer(
        self,
        query: PreparedQuery,
        version: Version,
        stream: StreamDef,
        instant: int,
        view_of: ViewOf,
    ) -> pa.Table | None:
        """Compute the answer of a query that is aggregates by group of one stream's columns.

        Args:
            query: The query; `bound.grouped` is not None.
            version: A version that is pinned.
            stream: The stream.
            instant: The instant of the answer.
            view_of: Gives a segment as the query's leaf sees it.

        Returns:
            None if it is to be computed from rows.

        Raises:
            MillpondError: POND-404 where the predicate cannot be evaluated, STORE-602 for a
                corrupt segment.
        """
        (leaf,), (slot,), (factors,) = query.bound.streams, query.slots, query.factors
        asked = query.bound.grouped
        assert asked is not None
        measured = Measured(slot, None, asked.grouped.write())
        keeps = self._kept.is_wanted(stream, measured) and (slot is not None or factors is None)
        if factors is not None or not keeps:
            segments = version.segments(stream.id, stream.kind)
            scanned = self._scans.read_groups(
                version, query, stream, segments, instant, asked.grouped, MOST_GROUPS
            )
            if scanned is not None:
                columns = finish_groups(asked, scanned)
                return pa.Table.from_arrays(columns, names=list(query.bound.output.names))
        if not keeps:
            return None
        cut = self._kept.cut(version, stream, leaf.window, instant)
        try:
            parts = [self._read_node(node, asked, measured, view_of) for node in cut.whole]
            if sum(part.table.num_rows for part in parts) > MOST_GROUPS:
                return None
        except TooManyGroups:
            return None
        inside = [_read_inside(asked, view_of(segment), cut) for segment in cut.straddling]
        merged = sum(pc.sum(part.table["n"]).as_py() or 0 for part in parts)
        if merged < sum(table.num_rows for table in inside):
            return None  # most rows have to be read anyway
        if inside:
            parts.append(compute_groups_of(inside, asked.grouped))
        if not parts:
            return None
        columns = finish_groups(asked, merge_groups(asked.grouped, parts))
        return pa.Table.from_arrays(columns, names=list(query.bound.output.names))

    def _read_node(
        self, node: Subtree, asked: GroupedAggregates, measured: Measured, view_of: ViewOf
    ) -> GroupTotals:
        def of_segment(segment: Any) -> GroupTotals:
            check_work()
            found = self._kept.find(segment, measured)
            if not isinstance(found, GroupTotals):
                found = compute_groups(view_of(segment), asked.grouped, 0, segment.rows)
                self._kept.remember(segment, measured, found)
            if are_too_many(found, segment.rows):
                raise TooManyGroups
            return found

        merge = partial(_merge, asked)
        found: GroupTotals = total_of_node(node, measured, of_segment, merge)
        return found


def _read_inside(asked: GroupedAggregates, view: LeafView, cut: WindowCut) -> pa.Table:
    """Read the matches of a segment inside the window."""
    check_work()
    return read_matches(view, asked.grouped, *find_rows(view, cut.low, cut.high))


def are_too_many(totals: GroupTotals, rows: int) -> bool:
    """Whether a segment of so many rows has too many groups for its totals to be used."""
    return rows > FEW_ROWS and totals.table.num_rows * ROWS_OF_A_GROUP > rows


def _merge(asked: GroupedAggregates, parts: Iterable[GroupTotals]) -> GroupTotals:
    check_work()
    found = list(parts)
    if sum(part.table.num_rows for part in found) > MOST_GROUPS:
        raise TooManyGroups
    return merge_groups(asked.grouped, found)
