"""Aggregates over frames: rows that lie just before a row, in an order in which rows only come.

From one row's frame to the next of its partition some rows enter and some leave. So a frame is laid
out as the changes of a group are (`operators/aggregation/cells.py`), and the same measures follow
it. A cell is a row of a partition, or an instant of one where frames are of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.operators.aggregation.aggregate import Aggregate, Trace
from millpond.operators.aggregation.cells import Cells, Layout
from millpond.operators.aggregation.measures import Batch, Measures
from millpond.operators.protocol.delta import Bools, Ints
from millpond.operators.protocol.node import Scalars


@dataclass(frozen=True)
class RowFrame:
    """The rows that a window function looks at, as seen from a row of the partition.

    Attributes:
        start: How far before the row the frame begins: a number of rows, or microseconds; None: at
            the partition's first row.
        end: How many rows before the row it ends; 0 if the frame is of time.
        of_time: Whether the frame is of time: then it ends with the last row of the row's instant.
    """

    start: int | None
    end: int = 0
    of_time: bool = False


@dataclass(frozen=True)
class FrameEvents:
    """Rows that enter a frame or leave it.

    Attributes:
        which: The new row whose frame is the first that they have entered or left, ascending. Of
            each new row there is an event; those of weight 0 change nothing.
        weight: 1: the row enters; -1: it leaves.
        places: Where the rows are among the trailing rows; None: the new rows themselves enter.
    """

    which: Ints
    weight: Ints
    places: Ints | None = None


def list_events(
    frame: RowFrame,
    count: int,
    base: int,
    before: Mapping[int, Ints],
    left: Mapping[int, tuple[Ints, Ints]],
) -> FrameEvents:
    """List what enters and leaves a frame with `count` new rows, which begin at a place `base`."""
    which, weight = np.arange(count), np.ones(count, np.int64)
    if frame.start is None and not frame.end:
        return FrameEvents(which, weight)
    places = base + which
    if frame.end:
        found = before[frame.end]
        weight = (found >= 0).astype(np.int64)
        places = np.where(found >= 0, found, places)
    if frame.start is None:
        return FrameEvents(which, weight, places)
    if frame.of_time:
        gone, by = left[frame.start]
    else:
        found = before[frame.start + 1]
        by = np.flatnonzero(found >= 0)
        gone = found[by]
    which = np.concatenate([which, by])
    weight = np.concatenate([weight, np.full(len(by), -1)])
    order = np.argsort(which, kind="stable")
    return FrameEvents(which[order], weight[order], np.concatenate([places, gone])[order])


@dataclass(frozen=True, eq=False)
class Walk:
    """The values of aggregates over a frame, from row to row of each partition.

    Attributes:
        cells: The cells: rows of partitions, or their instants.
        places: For each row the place of its values in the traces.
        traces: The trace of each aggregate.
    """

    cells: Cells
    places: Ints
    traces: dict[Aggregate, Trace]

    def find_grown(self, numbers: Ints, instant: int) -> tuple[Bools, Ints]:
        """Find the partitions that rows came to at an instant, and the place of their values."""
        cells = self.cells
        order = np.argsort(cells.groups)
        found = np.searchsorted(cells.groups[order], numbers)
        rank = order[np.minimum(found, len(order) - 1)]
        first = cells.starts[rank]
        grown = (cells.groups[rank] == numbers) & (cells.at[first] == instant)
        return grown, first + rank + 1


class FollowedFrame:
    """Follows the aggregates over a frame; keeps their measures."""

    def __init__(self, frame: RowFrame, aggregates: Sequence[Aggregate]) -> None:
        self.frame = frame
        self._aggregates = tuple(dict.fromkeys(aggregates))
        self._layout = Layout()
        self._measures = Measures()
        self._begun = False

    def walk(
        self,
        rows: pa.RecordBatch,
        events: FrameEvents,
        numbers: Ints,
        at: Ints,
        keys: int,
        scalars: Scalars,
    ) -> Walk:
        """Follow events of new rows, which have these partitions and instants."""
        which = events.which
        cells = self._layout.lay_out(
            numbers[which], at[which] if self.frame.of_time else which, keys
        )
        self._measures.begin(may_begin=not self._begun)
        self._begun = True
        batch = Batch(rows, events.weight, cells, keys, self._measures, scalars)
        cell = np.empty(len(which), np.int64)
        cell[cells.order] = np.repeat(np.arange(len(cells.at)), np.diff(cells.bounds))
        group = np.repeat(np.arange(len(cells.groups)), np.diff(cells.starts))
        own = cell[np.searchsorted(which, np.arange(len(numbers)))]
        traces = {aggregate: aggregate.trace(batch) for aggregate in self._aggregates}
        return Walk(cells, own + group[own] + 1, traces)
