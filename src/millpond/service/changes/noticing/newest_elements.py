"""The newest elements of a stream, read to see what they are like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from millpond.service.answers.leaf_scan import Files
from millpond.state.version import SegmentRef

#: Of how many segments at most elements are read.
_MOST_SEGMENTS = 64
#: How many bytes of elements are read, about.
_MOST_BYTES = 32 << 20


def limit_rows(table: pa.Table, most: int) -> int:
    """How many rows of a table are looked at: at most so many, and of few bytes, but one at least.

    >>> limit_rows(pa.table({"text": ["x" * 16_000_000] * 10}), 5)
    2
    """
    return min(most, max(1, _MOST_BYTES * table.num_rows // max(table.nbytes, 1)))


def read_newest(
    files: Files, segments: Iterable[SegmentRef], wanted: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """Read about so many of a stream's newest elements, in the order of timestamps and arrival.

    Of large elements they are fewer: of some `_MOST_BYTES` together.

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
        wanted = min(wanted, rows + limit_rows(table, wanted))
        tables.append(table.slice(max(0, table.num_rows - (wanted - rows))))
        rows += tables[-1].num_rows
        if rows >= wanted:
            break
    if not tables:
        return pa.table({})
    # The sort is stable: elements of one instant stay in the order of their arrival.
    return pa.concat_tables(reversed(tables), promote_options="default").sort_by("__ts")
