"""Rows kept in the order they came, to be picked out by place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.operators.protocol.delta import Bools, Delta, Ints


class RowStore:
    """Rows numbered 0, 1, … as they are added.

    The rows are kept in batches of falling size: a batch is merged with the batch before when it
    has grown as large. So a row is copied once a doubling, and `pick` looks into few batches.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        self._count += rows.num_rows
        self._batches.append(rows)
        while len(self._batches) > 1 and (
            self._batches[-2].num_rows <= 2 * self._batches[-1].num_rows
        ):
            last = self._batches.pop()
            self._batches[-1] = pa.concat_batches([self._batches[-1], last])

    def pick(self, places: Ints) -> pa.RecordBatch:
        """Pick the rows at these places, in the order of the places."""
        if not len(places):
            return Delta.empty(self._schema).rows
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
            return Delta.empty(self._schema).rows
        if len(self._batches) > 1:
            self._batches = [pa.concat_batches(self._batches)]
        return self._batches[0]

    def keep(self, chosen: Bools) -> None:
        """Keep the chosen rows, numbered anew in their order; forget the others."""
        rows = self.everything().filter(pa.array(chosen))
        self._batches = [rows] if rows.num_rows else []
        self._count = rows.num_rows


def grow_array(values: Ints, needed: int, fill: int) -> Ints:
    """Return the array, or, if it is too short, a longer copy with `fill` at the end."""
    if needed <= len(values):
        return values
    grown = np.full(max(needed, 2 * len(values), 64), fill, np.int64)
    grown[: len(values)] = values
    return grown
