"""Summarizes kept elements in a worker, or in the process that asks.

Summaries of parts are added up, so segments may be summarized in any order and by any worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from millpond.catalog.objects import SummaryDef
from millpond.engine.joins.keys import Axis, axis_of, code_column
from millpond.model.schema import Field
from millpond.state.segment_file import global_seq, open_segment
from millpond.synopses.summaries.protocol import Cells, SummaryKind
from millpond.synopses.summaries.stream_summary import StreamSummary, make_kind
from millpond.synopses.summaries.zones import Grid


@dataclass(frozen=True)
class SummaryPlan:
    """How a summary is computed.

    Attributes:
        attribute: The column.
        type: Its type.
        granularity: As declared, in microseconds.
        rate: As declared.
        depth: As declared.
        kind: As declared.
        memory: As declared, in bytes.
    """

    attribute: str
    type: str
    granularity: int
    rate: int
    depth: int
    kind: str
    memory: int

    @staticmethod
    def of(definition: SummaryDef, type: str) -> SummaryPlan:
        """The plan of a summary whose attribute has a type."""
        return SummaryPlan(
            definition.attribute,
            type,
            definition.granularity,
            definition.rate,
            definition.depth,
            definition.kind,
            definition.memory,
        )

    @property
    def axis(self) -> Axis:
        """The axis its values are coded on."""
        axis = axis_of(self.type, self.type)
        assert axis is not None, self.type
        return axis

    @property
    def grid(self) -> Grid:
        """Its granularities."""
        return Grid.of(self.granularity, self.rate, self.depth)

    def make_kind(self) -> SummaryKind:
        """Its summary-ADT."""
        return make_kind(self.kind, self.memory, self.grid, self.axis is Axis.FLOAT)

    def begin(self, position: int) -> StreamSummary:
        """A summary of no elements."""
        return StreamSummary.begin(self.make_kind(), self.grid, position)

    def add(
        self,
        summary: StreamSummary,
        elements: pa.Table,
        seq_runs: tuple[tuple[int, int], ...],
        since: int,
    ) -> StreamSummary:
        """Add the elements of a segment from `since` to before the summary's position."""
        ts = elements["__ts"].to_numpy()
        low, high = np.searchsorted(ts, [max(since, int(summary.edges[0])), summary.position])
        if low >= high:
            return summary
        part = elements.slice(low, high - low)
        coded = code_column(part[self.attribute], self.axis)
        arrivals = global_seq(part["__seq"].to_numpy(), seq_runs)
        stamps, codes = ts[low:high], np.ascontiguousarray(coded.numbers)
        if coded.nulls is not None:  # NULL is no value, and nobody asks how often it occurs
            known = ~coded.nulls
            stamps, codes, arrivals = stamps[known], codes[known], arrivals[known]
        return summary.with_elements(stamps, codes, arrivals)


@dataclass(frozen=True)
class SummaryJob:
    """Summarize segments `(path, checksum, seq_runs)` from `since` to before `position`."""

    store: str
    plan: SummaryPlan
    segments: tuple[tuple[str, str, tuple[tuple[int, int], ...]], ...]
    since: int
    position: int


def summarize(job: SummaryJob) -> Cells:
    """Return the cells of a summary of these elements alone."""
    summary = job.plan.begin(job.position)
    own = (Field(job.plan.attribute, job.plan.type),)
    for path, checksum, seq_runs in job.segments:
        elements = open_segment(Path(job.store) / path, checksum, own)
        summary = job.plan.add(summary, elements, seq_runs, job.since)
    return summary.cells
