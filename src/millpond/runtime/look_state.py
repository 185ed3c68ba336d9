"""What followed parts carry from job to job: segments of their change logs (kind `waiting`).

Those of a family lie in one file, one behind the other. The first row of each is of the query
itself: its clock, its carried budget, what fell out, and the panes of an aggregate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from millpond.engine.joins.keys import Numbers
from millpond.engine.promising.step import FamilyState
from millpond.engine.promising.waiting import REGION, Waiting
from millpond.runtime.advance_job import StoredRows
from millpond.state.segment_file import open_segment

#: A column of the first row of an aggregate's segment: its panes, as an Arrow stream.
_PANES = "panes"


def read_state(files: Sequence[StoredRows | None], store: str, position: int) -> FamilyState:
    """Read what waits, of all queries of a family.

    Where a clock was set back, what waits is of a later step than the last one there is now. What
    was looked at and what was not can not be told apart then: it counts as fallen out.

    Args:
        files: By query, its segment; None if nothing waits.
        store: The store's directory.
        position: The last instant up to which steps were made.

    Raises:
        MillpondError: STORE-602, a segment is corrupt.
    """
    state = FamilyState.of(len(files))
    sharing: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for number, file in enumerate(files):
        if file is not None:
            sharing[file[:2]].append(number)
    parts: dict[int, Waiting] = {}
    for (path, checksum), numbers in sharing.items():
        table = open_segment(Path(store) / path, checksum)
        held = _read_regions(table)
        for number in numbers:
            file = files[number]
            assert file is not None
            _, _, runs, count = file
            start = runs[0][0] if count < len(held) else 0
            # The first row is of the query itself (`write_state`).
            head, rows = held[start], held[start + 1 : start + count]
            state.clocks[number], state.carried[number] = head["results"], head["priority"]
            state.fallen[number] = head["done"]
            if table["__ts"][start].as_py() > position:
                state.fallen[number] += len(rows)
                state.clocks[number] = state.carried[number] = 0
                continue
            if _PANES in table.column_names and table[_PANES][start].is_valid:
                packed = table[_PANES][start].as_py()
                state.panes[number] = pa.ipc.open_stream(packed).read_all()
            rows["query"] = number
            parts[number] = rows
    state.waiting = np.concatenate([state.waiting, *(parts[n] for n in sorted(parts))])
    return state


def _read_regions(table: pa.Table) -> Waiting:
    rows = np.empty(table.num_rows, REGION)
    for name in REGION.names or ():
        rows[name] = table[name].to_numpy()
    return rows


def write_state(
    state: FamilyState, numbers: Sequence[int], at: int
) -> tuple[pa.Table, list[tuple[int, int, int]]]:
    """Lay out what queries carry to their next step, one behind the other.

    Args:
        state: The family's state.
        numbers: The queries, ascending.
        at: The last instant of the last step.

    Returns:
        The table, and by query with anything to carry: the query, its first row, its rows.
    """
    counts = np.bincount(state.waiting["query"], minlength=len(state.clocks))
    own = [n for n in numbers if counts[n] or state.fallen[n] or state.panes[n] is not None]
    carrying = np.array(own, np.int64)
    sizes = counts[carrying] + 1
    starts = np.cumsum(sizes) - sizes
    rows = np.zeros(int(sizes.sum()), REGION)
    is_head = np.zeros(len(rows), np.bool_)
    is_head[starts] = True
    order = np.argsort(state.waiting["query"], kind="stable")
    rows[~is_head] = state.waiting[order[np.isin(state.waiting["query"][order], carrying)]]
    rows["query"][starts] = carrying
    rows["results"][starts], rows["priority"][starts] = (
        state.clocks[carrying],
        state.carried[carrying],
    )
    rows["done"][starts] = state.fallen[carrying]
    columns = {name: pa.array(np.ascontiguousarray(rows[name])) for name in REGION.names or ()}
    if any(state.panes[n] is not None for n in own):
        columns[_PANES] = _pack_panes([state.panes[n] for n in own], starts, len(rows))
    columns["__ts"] = pa.array(np.full(len(rows), at, np.int64))
    columns["__seq"] = pa.array(np.arange(len(rows), dtype=np.int64))
    return pa.table(columns), list(zip(own, starts.tolist(), sizes.tolist(), strict=True))


def _pack_panes(panes: Sequence[pa.Table | None], starts: Numbers, count: int) -> pa.Array:
    """Panes as Arrow streams, in the first rows of their queries; NULL in all other rows."""
    packed: list[bytes | None] = []
    for table in panes:
        if table is None:
            packed.append(None)
            continue
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        packed.append(sink.getvalue().to_pybytes())
    place = np.zeros(count, np.int64)
    place[starts] = np.arange(len(starts))
    is_other = np.ones(count, np.bool_)
    is_other[starts] = False
    return pa.array(packed, pa.large_binary()).take(pa.array(place, mask=is_other))
