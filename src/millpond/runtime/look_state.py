"""What followed parts carry from job to job, as a segment of the change log (kind `waiting`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from millpond.engine.promising.step import FamilyState
from millpond.engine.promising.waiting import REGION
from millpond.state.segment_file import open_segment

#: A column of the first row of an aggregate's segment: its panes, as an Arrow stream.
_PANES = "panes"


def read_state(files: Sequence[tuple[str, str] | None], store: str, position: int) -> FamilyState:
    """Read what waits, of all queries of a family.

    Where a clock was set back, what waits is of a later step than the last one there is now. What
    was looked at and what was not can not be told apart then: it counts as fallen out.

    Args:
        files: By query, the path and checksum of its segment; None if nothing waits.
        store: The store's directory.
        position: The last instant up to which steps were made.

    Raises:
        MillpondError: STORE-602, a segment is corrupt.
    """
    state = FamilyState.of(len(files))
    parts = []
    for number, file in enumerate(files):
        if file is None:
            continue
        path, checksum = file
        table = open_segment(Path(store) / path, checksum)
        rows = np.empty(table.num_rows, REGION)
        for name in REGION.names or ():
            rows[name] = table[name].to_numpy()
        # The first row is of the query itself (`write_state`).
        head, rows = rows[0], rows[1:].copy()
        state.clocks[number], state.carried[number] = head["results"], head["priority"]
        state.fallen[number] = head["done"]
        if table["__ts"][0].as_py() > position:
            state.fallen[number] += len(rows)
            state.clocks[number] = state.carried[number] = 0
            continue
        if _PANES in table.column_names:
            state.panes[number] = pa.ipc.open_stream(table[_PANES][0].as_py()).read_all()
        rows["query"] = number
        parts.append(rows)
    state.waiting = np.concatenate([state.waiting, *parts])
    return state


def write_state(state: FamilyState, number: int, at: int) -> pa.Table | None:
    """Lay out what a query carries to its next step, as a segment's table; None if nothing.

    The first row is of the query itself: its clock, its carried budget, what fell out, and the
    panes of an aggregate.
    """
    own, panes = state.waiting[state.waiting["query"] == number], state.panes[number]
    if not len(own) and not state.fallen[number] and panes is None:
        return None
    head = np.zeros(1, REGION)
    head["results"], head["priority"] = state.clocks[number], state.carried[number]
    head["done"] = state.fallen[number]
    rows = np.concatenate([head, own])
    columns = {name: pa.array(np.ascontiguousarray(rows[name])) for name in REGION.names or ()}
    if panes is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, panes.schema) as writer:
            writer.write_table(panes)
        packed = [sink.getvalue().to_pybytes(), *([None] * len(own))]
        columns[_PANES] = pa.array(packed, pa.large_binary())
    columns["__ts"] = pa.array(np.full(len(rows), at, np.int64))
    columns["__seq"] = pa.array(np.arange(len(rows), dtype=np.int64))
    return pa.table(columns)
