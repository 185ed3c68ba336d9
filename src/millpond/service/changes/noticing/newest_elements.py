"""The newest elements of a stream, read to see what they are like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from millpond.service.answers.leaf_scan import Files
from millpond.state.version import SegmentRef

#: Of how many segments at most elements are read.
_MOST_SEGMENTS = 64


def read_newest(
    files: Files, segments: Iterable[SegmentRef], wanted: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """Read about so many of a stream's newest elements, in the order of timestamps and arrival.

    Args:
        files: Opens segments.
        segments: The stream's segments.
        wanted: How many elements.
        columns: The columns that are read besides `__ts`; None: all of the stream.

    Raises:
        MillpondError: STORE-602, a segment is torn.
    """
    tables: list[pa.Table] = []
    rows = 0
    newest = sorted(segments, key=lambda s: (s.max_ts, s.id), reverse=True)
    for segment in newest[:_MOST_SEGMENTS]:
        table = files.segment(segment).table
        if columns is not None:
            table = table.select(["__ts", *columns])
        tables.append(table.slice(max(0, table.num_rows - (wanted - rows))))
        rows += tables[-1].num_rows
        if rows >= wanted:
            break
    if not tables:
        return pa.table({})
    # The sort is stable: elements of one instant stay in the order of their arrival.
    return pa.concat_tables(reversed(tables), promote_options="default").sort_by("__ts")
