"""Maintains kept segments in a worker: matches them against new queries, and merges them.

Like the tasks that build segments (`batch_tasks`), these tasks write files that nobody sees before
the driver commits them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.engine.admission.admit import raw_text
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.runtime.batch_tasks import BuiltSegment, write_segment
from millpond.runtime.files.match_files import fold_matches, write_matches
from millpond.runtime.files.stem_files import load_stem
from millpond.state.arrow_file import FileMeta, open_arrow
from millpond.state.segment_file import global_seq, open_rows, open_segment
from millpond.state.version import REJECTS


@dataclass(frozen=True)
class BackfillJob:
    """Match kept segments against new slots: new queries probe old data."""

    store: str
    segments: tuple[tuple[int, str, str], ...]
    stem: str
    low: int
    upto: int
    added: tuple[Field, ...] = ()


@dataclass(frozen=True)
class BackfillResult:
    """The matches of one kept segment for the slots in [low, upto)."""

    segment_id: int
    file: FileMeta
    low: int
    upto: int
    failed: dict[int, str]


def backfill(job: BackfillJob) -> list[BackfillResult]:
    """Match each segment `(id, path, checksum)` of a job."""
    stem = load_stem(job.stem)
    done = []
    for segment_id, path, checksum in job.segments:
        table = open_segment(Path(job.store) / path, checksum, job.added)
        found, file = write_matches(job.store, table, stem)
        done.append(BackfillResult(segment_id, file, job.low, job.upto, found.failed))
    return done


@dataclass(frozen=True)
class MergeJob:
    """Merge segments `(id, path, checksum, seq_runs, rows)` of one stream and kind into one."""

    store: str
    stream_id: int
    kind: str
    level: int
    segments: tuple[tuple[int, str, str, tuple[tuple[int, int], ...], int], ...]
    stem: str | None
    upto: int
    added: tuple[Field, ...] = ()


@dataclass(frozen=True)
class MergeResult:
    """The segment that replaces `replaced`, whose first arrival number was `base`."""

    built: BuiltSegment
    level: int
    base: int
    replaced: tuple[int, ...]


def merge(job: MergeJob) -> MergeResult:
    """Merge by (timestamp, sequence) and match again, which also removes dropped slots."""
    tables = []
    for _, path, checksum, runs, rows in job.segments:
        table = open_rows(Path(job.store) / path, checksum, runs, rows, job.added)
        sequence = global_seq(table["__seq"].to_numpy(), runs)
        at = table.schema.get_field_index("__seq")
        tables.append(table.set_column(at, "__seq", pa.array(sequence)))
    merged = pa.concat_tables(tables)
    order = np.lexsort((merged["__seq"].to_numpy(), merged["__ts"].to_numpy()))
    elements = merged.take(pa.array(order)).combine_chunks()
    base = pc.min(elements["__seq"])
    at = elements.schema.get_field_index("__seq")
    elements = elements.set_column(at, "__seq", pc.subtract(elements["__seq"], base))
    stem = load_stem(job.stem) if job.stem else None
    built = write_segment(job.store, job.stream_id, elements, stem, job.upto, kind=job.kind)
    return MergeResult(built, job.level, base.as_py(), tuple(s[0] for s in job.segments))


@dataclass(frozen=True)
class CutJob:
    """Take the elements after an instant out of a segment `(path, checksum, seq_runs, rows)`.

    Attributes:
        after: The instant.
        rejects: The reason with which they become rejects; None: nothing is left of them.
        schema: The stream's columns.
        arrival: When the rejects were rejected.
    """

    store: str
    stream_id: int
    segment: tuple[str, str, tuple[tuple[int, int], ...], int]
    after: int
    rejects: str | None
    schema: Schema
    arrival: int


@dataclass(frozen=True)
class CutResult:
    """What is left of a segment, whose first arrival number is `base`, and what became rejects."""

    kept: BuiltSegment | None
    base: int
    removed: int
    rejects: BuiltSegment | None


def cut(job: CutJob) -> CutResult:
    """Write what is left without matches, which backfill makes."""
    path, checksum, runs, rows = job.segment
    table = open_rows(Path(job.store) / path, checksum, runs, rows, job.schema.added)
    stays = table["__ts"].to_numpy() <= job.after
    kept = table.filter(pa.array(stays))
    built, base = None, 0
    if kept.num_rows:
        numbers = global_seq(kept["__seq"].to_numpy(), runs)
        base = int(numbers.min())
        at = table.schema.get_field_index("__seq")
        kept = kept.set_column(at, "__seq", pa.array(numbers - base)).combine_chunks()
        built = write_segment(job.store, job.stream_id, kept, None, 0)
    gone = table.num_rows - kept.num_rows
    if job.rejects is None or not gone:
        return CutResult(built, base, gone, None)
    places = np.flatnonzero(~stays)
    rejects = pa.table(
        {
            "rejected_at": pa.array(np.full(gone, job.arrival), pa.timestamp("us")),
            "reason": pa.array([job.rejects] * gone, pa.string()),
            "raw": raw_text(table, places, job.schema),
            "__ts": pa.array(np.full(gone, job.arrival), pa.int64()),
            "__seq": pa.array(np.arange(gone, dtype=np.int64)),
        }
    )
    told = write_segment(job.store, job.stream_id, rejects, None, 0, kind=REJECTS)
    return CutResult(built, base, gone, told)


@dataclass(frozen=True)
class FoldJob:
    """Make one file of a segment's match files `(path, checksum)`, with only the live slots."""

    store: str
    segment_id: int
    matches: tuple[tuple[str, str], ...]
    live: tuple[int, ...]


def fold(job: FoldJob) -> FileMeta | None:
    """Write the file; None if an input is corrupt: then the matches must be computed again."""
    try:
        tables = [open_arrow(Path(job.store) / path, checksum) for path, checksum in job.matches]
    except MillpondError:
        return None
    return fold_matches(job.store, tables, job.live)
