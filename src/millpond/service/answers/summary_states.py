"""Summaries as readers find them: at a line up to which everything is final.

A summary is a cache of what the kept elements say. A reader wants it at the line its version has
reached, whatever maintenance has stored: what is missing is computed from the segments, from the
nearest summary that is known. So an estimate depends on the version alone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from millpond.catalog.objects import StreamDef, SummaryDef
from millpond.errors import MillpondError
from millpond.runtime.summary_tasks import SummaryPlan
from millpond.service.answers.leaf_scan import Files
from millpond.state.arrow_file import open_arrow
from millpond.state.version import SegmentRef, Version
from millpond.synopses.summaries.protocol import Cells
from millpond.synopses.summaries.stream_summary import StreamSummary

#: How many positions of a summary are kept: a cursor asks for the one it began at. All but the one
#: that was asked for last go where they would take more bytes than this.
_KEPT, _KEPT_BYTES = 4, 16 << 20

#: Computes the cells of a summary of some segments' elements: (plan, segments, since, position).
Compute = Callable[[SummaryPlan, Sequence[SegmentRef], int, int], Cells]


class SummaryStates:
    """The summaries of a store; safe to use from any thread."""

    def __init__(self, store: Path, files: Files) -> None:
        self._store = store
        self._files = files
        self._known: defaultdict[int, OrderedDict[int, StreamSummary]] = defaultdict(OrderedDict)
        self._locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.Lock()

    def at(
        self,
        version: Version,
        definition: SummaryDef,
        position: int | None = None,
        compute: Compute | None = None,
    ) -> StreamSummary:
        """The summary at a line.

        Args:
            version: Where the elements are; the caller has pinned it.
            definition: The summary.
            position: The line, at most the one that the version has reached; None for that one.
            compute: Summarizes segments in a worker; None to summarize them in this process.

        Raises:
            MillpondError: CQL-201, the stream is gone; STORE-602, a segment is corrupt.
        """
        stream = version.streams.get(definition.stream_id)
        if stream is None:
            raise MillpondError("CQL-201", f'no stream "{definition.stream}" any more')
        plan = plan_of(definition, stream)
        wanted = position_of(version, stream, plan) if position is None else position
        with self._lock:
            lock = self._locks[definition.id]
        with lock:
            known = self._known[definition.id]
            found = known.get(wanted)
            if found is None:
                base = self._find_base(plan, definition, known, wanted)
                found = self._advance(version, stream, plan, base, wanted, compute)
                known[wanted] = found
            known.move_to_end(wanted)
            while len(known) > 1 and (len(known) > _KEPT or _measure(known) > _KEPT_BYTES):
                known.popitem(last=False)
            return found

    def measure(self, definition: SummaryDef) -> int:
        """What this process holds of a summary now, in bytes."""
        with self._lock:
            lock = self._locks[definition.id]
        with lock:
            return _measure(self._known[definition.id])

    def forget(self, definition: SummaryDef) -> None:
        """Let go of a summary that was dropped."""
        with self._lock:
            self._known.pop(definition.id, None)
            self._locks.pop(definition.id, None)

    def _find_base(
        self,
        plan: SummaryPlan,
        definition: SummaryDef,
        known: OrderedDict[int, StreamSummary],
        wanted: int,
    ) -> StreamSummary | None:
        """The latest summary that is known and not behind a line."""
        base = max((p for p in known if p <= wanted), default=None)
        stored = definition.file
        if stored is not None and stored.position <= wanted and stored.position > (base or -1):
            try:
                table = open_arrow(self._store / stored.path, stored.checksum)
            except MillpondError:  # torn or gone: the segments have it all
                pass
            else:
                empty = plan.begin(stored.position)
                cells = table["number"].to_numpy().reshape(-1, empty.kind.width).copy()
                return replace(empty, cells=cells)
        return known[base] if base is not None else None

    def _advance(
        self,
        version: Version,
        stream: StreamDef,
        plan: SummaryPlan,
        base: StreamSummary | None,
        position: int,
        compute: Compute | None,
    ) -> StreamSummary:
        """Add what lies between a known summary, or the beginning, and a line."""
        summary = plan.begin(position) if base is None else base.move_to(position)
        since = int(summary.edges[0]) if base is None else base.position
        segments = [
            ref
            for ref in version.segments(stream.id)
            if ref.max_ts >= since and ref.min_ts < position
        ]
        if compute is not None and segments:
            return replace(summary, cells=_add(summary, compute(plan, segments, since, position)))
        for ref in segments:
            summary = plan.add(summary, self._files.segment(ref).table, ref.seq_runs, since)
        return summary


def _measure(known: OrderedDict[int, StreamSummary]) -> int:
    return sum(summary.held for summary in known.values())


def _add(summary: StreamSummary, cells: Cells) -> Cells:
    """The sum of a summary's cells and others of the same position."""
    count = len(summary.cells)
    to = np.tile(np.arange(count), len(cells) // count + 1)
    return summary.kind.collapse(np.concatenate([summary.cells, cells]), to, count)


def plan_of(definition: SummaryDef, stream: StreamDef) -> SummaryPlan:
    """How a summary of a stream is computed."""
    field = stream.schema.find(definition.attribute)
    assert field is not None
    return SummaryPlan.of(definition, field.type)


def position_of(version: Version, stream: StreamDef, plan: SummaryPlan) -> int:
    """The last line up to which a stream's elements are final, not behind its last element."""
    clock, line = version.clock(stream.id), plan.grid.line
    if clock.high is None:
        return 0
    behind_last = -(-(clock.high + 1) // line) * line
    return min(clock.heartbeat // line * line, behind_last)
