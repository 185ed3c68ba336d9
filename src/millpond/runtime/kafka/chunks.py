"""Records as the chunks that a batch is built of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millpond.engine.admission.given_rows import CORRUPT, REFUSED
from millpond.runtime.chunks import Chunk
from millpond.runtime.kafka.read_range import Records


def partition_name(topic: str, partition: int) -> str:
    """Name a partition, as the heartbeat knows it.

    >>> partition_name("readings", 3)
    'readings/3'
    """
    return f"{topic}/{partition}"


def chunk_of(
    records: Records,
    stream_id: int,
    key: tuple[Any, ...],
    decode: Callable[[Records], pa.Table],
) -> Chunk:
    """Decode records into a chunk; what was lost before them is a row that becomes a reject."""
    if records.lost is not None:
        first, last = records.lost
        gone = f"records {first} to {last} were gone before they were read"
        if last is None:
            gone = (
                f"the topic was made anew, records from {first} on were gone before they were read"
            )
        elif records.read:
            then = (
                "what comes in their places is read"
                if records.follows
                else "whether those before them are still there is not known"
            )
            gone = f"records {first} to {last} were lost after they were read; {then}"
        rows = pa.table({REFUSED: [gone], CORRUPT: [""]})
        return Chunk(stream_id, key, rows, name_row=lambda _: _place(records, first))
    rows = decode(records)
    offsets = records.offsets

    def name_row(row: int) -> str:
        return _place(records, offsets[row])

    return Chunk(stream_id, key, rows, name_row=name_row, places=offsets)


def _place(records: Records, offset: int) -> str:
    return f'topic "{records.topic}", partition {records.partition}, offset {offset}'
