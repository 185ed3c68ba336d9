"""Rows kept in the order they came, to be picked out by place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from millpond.operators.protocol.delta import Bools, Delta, Ints
from millpond.synopses.mapped_memory import keep_like

#: Batches of more bytes are not merged, so that no copy of all rows is ever made.
_MERGED = 16 << 20


class RowStore:
    """Rows numbered 0, 1, … as they are added.

    The rows are kept in batches of falling size: a batch is merged with the batch before when it
    has grown as large, until it has some megabytes. So a row is copied once a doubling, and `pick`
    looks into few batches.

    Attributes:
        schema: The rows' schema.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def width(self) -> int:
        """About how many bytes a row takes."""
        return sum(batch.nbytes for batch in self._batches) // max(self._count, 1)

    def add(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        self._count += rows.num_rows
        self._batches.append(rows)
        while len(self._batches) > 1 and _are_merged(*self._batches[-2:]):
            last = self._batches.pop()
            self._batches[-1] = pa.concat_batches([self._batches[-1], last])

    def pick(self, places: Ints) -> pa.RecordBatch:
        """Pick the rows at these places, in the order of the places."""
        if not len(places):
            return Delta.empty(self.schema).rows
        if len(self._batches) == 1:
            return self._batches[0].take(pa.array(places))
        # Arrow would concatenate the batches first, which copies all rows.
        ends = np.cumsum([batch.num_rows for batch in self._batches])
        which = np.searchsorted(ends, places, side="right")
        order = np.argsort(which, kind="stable")
        starts = np.searchsorted(which[order], np.arange(len(ends) + 1))
        parts = []
        for number, batch in enumerate(self._batches):
            mine = order[starts[number] : starts[number + 1]]
            if len(mine):
                local = places[mine] - (ends[number] - batch.num_rows)
                parts.append(batch.take(pa.array(local)))
        if len(parts) == 1:
            return parts[0]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_batches(parts).take(pa.array(back))

    def everything(self) -> pa.RecordBatch:
        """All rows, in their order."""
        if not self._batches:
            return Delta.empty(self.schema).rows
        rows = pa.concat_batches(self._batches) if len(self._batches) > 1 else self._batches[0]
        if rows.nbytes <= _MERGED:
            self._batches = [rows]
        return rows

    def list_batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """List the rows in pieces, each with the place of its first row."""
        start = 0
        for batch in self._batches:
            yield start, batch
            start += batch.num_rows

    def keep(self, chosen: Bools) -> None:
        """Keep the chosen rows, numbered anew in their order; forget the others."""
        batches, self._batches, self._count, start = self._batches, [], 0, 0
        for batch in batches:
            mine = chosen[start : start + batch.num_rows]
            start += batch.num_rows
            self.add(batch if mine.all() else keep_like(batch, batch.filter(pa.array(mine))))


def _are_merged(before: pa.RecordBatch, last: pa.RecordBatch) -> bool:
    """Whether two batches become one."""
    if before.num_rows > 2 * last.num_rows:
        return False
    return bool(before.nbytes + last.nbytes <= _MERGED)
