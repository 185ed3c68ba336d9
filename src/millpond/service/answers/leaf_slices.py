"""The slices of a query's leaves: found, measured, and read when there is room for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.confined.room import LARGE
from millpond.engine.invocation.window_slices import SegmentView, WindowSlice, find_slice
from millpond.engine.joins.projection import JoinedRows
from millpond.planner.bind.bound_query import BoundQuery, StreamLeaf
from millpond.service.answers.leaf_scan import LeafView


def find_leaf_slice(views: Sequence[SegmentView], leaf: StreamLeaf, at: int) -> WindowSlice:
    """Find the rows of a leaf's window."""
    return find_slice(views, leaf.window, at, counts_all=leaf.after_shape is not None)


def read_leaf_slice(window: WindowSlice, leaf: StreamLeaf, stream: StreamDef) -> pa.Table:
    """Read the rows of a leaf's window, with the columns the query asks of it."""
    columns = leaf.columns or stream.schema.names[:1]
    parts = window.read((*columns, *("__ts",) * bool(leaf.hidden)))
    if parts:
        table = parts[0] if len(parts) == 1 else pa.concat_tables(parts)
        if len(leaf.hidden) > 1:  # rows come in the order of timestamp and arrival
            table = table.append_column("__seq", pa.array(np.arange(table.num_rows)))
        return table.rename_columns([*columns, *leaf.hidden]) if leaf.hidden else table
    schema = pa.schema([f for f in stream.schema.to_arrow() if f.name in columns])
    empty = schema.empty_table().select(list(columns))
    for name in leaf.hidden:
        empty = empty.append_column(name, pa.array([], pa.int64()))
    return empty


def measure_rows(
    bound: BoundQuery,
    windows: Mapping[int, WindowSlice],
    joined: JoinedRows | None,
    views: Sequence[Sequence[LeafView]],
) -> int:
    """Estimate the bytes of the rows of streams that a query is evaluated over.

    Args:
        bound: The query.
        windows: The slices of its leaves, by their numbers; without those that are joined.
        joined: The joined rows of the other leaves.
        views: The kept segments of each leaf.
    """
    size = sum(window.measure() for window in windows.values())
    if size >= LARGE:  # of whole rows; perhaps it reads few columns of them
        size = sum(w.measure(bound.streams[n].columns) for n, w in windows.items())
    if joined is not None and bound.join is not None:
        rows = [max((v.row_bytes(None) for v in views[n]), default=0) for n in bound.join.leaves]
        size += int(joined.count * sum(rows))
    return size
