"""Built segments and matches as the epoch log will hold them: their paths and arrival numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from millpond.runtime.batch_tasks import BuiltSegment
from millpond.state.arrow_file import FileMeta
from millpond.state.version import MatchRef, SegmentRef


def number_runs(
    built: Sequence[BuiltSegment], base: int
) -> tuple[int, list[tuple[tuple[int, int], ...]]]:
    """Give every run of every segment its place in the stream's arrival sequence.

    Runs are laid in the order of (split key, offset). Returns the next free number and, per
    segment, its (local start, base) pairs.
    """
    entries = []
    for number, item in enumerate(built):
        starts = [r.start for r in item.runs] + [item.file.rows]
        for i, run in enumerate(item.runs):
            entries.append((run.key, run.offset, number, run.start, starts[i + 1] - run.start))
    entries.sort(key=lambda e: (e[0], e[1]))
    lengths = np.array([e[4] for e in entries], dtype=np.int64)
    bases = base + np.concatenate([[0], np.cumsum(lengths)])
    runs: list[list[tuple[int, int]]] = [[] for _ in built]
    for entry, start in zip(entries, bases[:-1], strict=True):
        runs[entry[2]].append((entry[3], int(start)))
    return int(bases[-1]), [tuple(sorted(r)) for r in runs]


def relative_path(path: Path) -> str:
    """A file of the store as the epoch log names it: its directory and its name."""
    return f"{path.parent.name}/{path.name}"


def segment_ref(
    built: BuiltSegment, runs: tuple[tuple[int, int], ...], level: int = 0, epoch: int = 0
) -> SegmentRef:
    """A written segment as the epoch log will hold it.

    Args:
        built: The segment.
        runs: `SegmentRef.seq_runs`, of a file whose rows are all the segment's.
        level: Its level in the segment tree.
        epoch: The epoch in which its elements arrived.
    """
    file = built.file
    runs = tuple((start + built.start, base) for start, base in runs)
    return SegmentRef(
        id=0,
        stream_id=built.stream_id,
        kind=built.kind,
        epoch=epoch,
        level=level,
        path=relative_path(file.path),
        rows=file.rows,
        min_ts=built.min_ts,
        max_ts=built.max_ts,
        seq_runs=runs,
        checksum=file.checksum,
        bytes=file.bytes,
    )


def match_ref(segment_id: int, low: int, upto: int, file: FileMeta) -> MatchRef:
    """Written matches as the epoch log will hold them."""
    return MatchRef(0, segment_id, low, upto, relative_path(file.path), file.checksum, file.bytes)
