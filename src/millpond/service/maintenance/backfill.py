"""Backfill: matches kept segments with queries registered after them, many new queries at once.

A segment has been matched with all slots below the slot where its matches end, without a gap. So
comparing two numbers tells which slots a segment lacks: a registration has to note nothing, and
after a crash, backfill compares again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from millpond.runtime.maintenance_tasks import BackfillJob, FoldJob, backfill, fold
from millpond.runtime.protocol import Runtime
from millpond.service.ingest.segment_refs import match_ref
from millpond.service.maintenance.segment_tasks import SegmentTasks
from millpond.service.maintenance.suspensions import Suspensions
from millpond.service.queries.query_stems import QueryStems
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.epoch_log import EpochLog
from millpond.state.version import MatchRef, SegmentRef, Version

#: Tasks a backfill is divided into.
PARALLELISM = 2
#: Match files of a segment from which on they are folded.
_MOST_MATCHES = 16


class Backfill:
    """The part of maintenance that matches kept segments; for use by its one thread.

    Args:
        store: The store's directory.
        epochs: Its epoch log.
        stems: The Query SteMs.
        runtime: Runs tasks.
        tasks: Runs tasks over segments.
        suspensions: Suspends the queries of a stream whose slots failed.
    """

    def __init__(
        self,
        store: Path,
        epochs: EpochLog,
        stems: QueryStems,
        runtime: Runtime,
        tasks: SegmentTasks,
        suspensions: Suspensions,
    ) -> None:
        self._store = store
        self._log = epochs
        self._stems = stems
        self._runtime = runtime
        self._tasks = tasks
        self._suspensions = suspensions

    def step(self, version: Version, stream_id: int, segments: Sequence[SegmentRef]) -> bool:
        """Match some of a stream's segments against the slots they lack; False if none lacks any.

        Args:
            version: A version that is pinned.
            stream_id: The stream.
            segments: Those of its segments that can be read.
        """
        greatest = version.greatest_slot(stream_id)
        if greatest is None:
            return False
        lacking: dict[int, list[SegmentRef]] = defaultdict(list)
        scattered: list[tuple[MatchRef, ...]] = []
        for segment in segments:
            covered = covered_upto(version, segment.id)
            if covered <= greatest:
                lacking[covered].append(segment)
            elif parts := choose_matches_to_fold(version.matches(segment.id)):
                scattered.append(parts)
        for low, some in lacking.items():
            self._match(version, stream_id, low, some)
        if scattered:
            self._fold(scattered, [s.slot for s in version.slots(stream_id)])
        return bool(lacking or scattered)

    def _fold(self, scattered: list[tuple[MatchRef, ...]], live: list[int]) -> None:
        """Fold match files: each registration adds one to every segment."""
        jobs = []
        for parts in scattered:
            low, upto = parts[0].low, parts[-1].upto
            among = live[bisect_left(live, low) : bisect_left(live, upto)]
            files = tuple((m.path, m.checksum) for m in parts)
            jobs.append(FoldJob(str(self._store), parts[0].segment_id, files, tuple(among)))
        folded = self._runtime.run(fold, jobs)
        self._log.commit(
            EpochChange(
                kind="fold",
                matches=[
                    match_ref(parts[0].segment_id, parts[0].low, parts[-1].upto, file)
                    for parts, file in zip(scattered, folded, strict=True)
                    if file is not None
                ],
                drop_matches=[match for parts in scattered for match in parts],
            )
        )

    def _match(
        self, version: Version, stream_id: int, low: int, segments: list[SegmentRef]
    ) -> None:
        with self._stems.part(version, stream_id, low) as (stem, upto):
            if stem is None:
                return
            jobs = [
                BackfillJob(
                    str(self._store),
                    tuple((s.id, s.path, s.checksum) for s in share),
                    str(stem),
                    low,
                    upto,
                    version.added_columns(stream_id),
                )
                for share in shares(segments, PARALLELISM)
            ]
            shared = self._tasks.run(backfill, jobs, segments)
        done = [item for items in shared for item in items]
        matches = [match_ref(d.segment_id, d.low, d.upto, d.file) for d in done]
        if matches:
            # Matches of some slots alone, made while the others waited, are among the new ones.
            parts = [m for d in done for m in version.matches(d.segment_id) if m.low > low]
            self._log.commit(EpochChange(kind="backfill", matches=matches, drop_matches=parts))
        for item in done:
            self._suspensions.suspend_failed(stream_id, item.failed)


def covered_upto(version: Version, segment_id: int) -> int:
    """The first slot a segment has not been matched against."""
    covered = 0
    for ref in version.matches(segment_id):
        if ref.low > covered:
            break
        covered = max(covered, ref.upto)
    return covered


def shares(segments: list[SegmentRef], count: int) -> list[list[SegmentRef]]:
    """Divide segments into shares of about as many rows each."""
    dealt: list[list[SegmentRef]] = [[] for _ in range(min(count, len(segments)))]
    rows = [0] * len(dealt)
    for segment in sorted(segments, key=lambda s: s.rows, reverse=True):
        least = rows.index(min(rows))
        dealt[least].append(segment)
        rows[least] += segment.rows
    return dealt


def choose_matches_to_fold(matches: tuple[MatchRef, ...]) -> tuple[MatchRef, ...]:
    """The newest match files of a segment to fold into one; none while there are few.

    A file is rewritten when the files after it have grown to half its size. So each match is
    written about as often as the files double.
    """
    if len(matches) < _MOST_MATCHES:
        return ()
    start = len(matches) - 1
    newer = matches[start].bytes
    while start and (matches[start - 1].bytes <= 2 * newer or len(matches) - start < 4):
        start -= 1
        newer += matches[start].bytes
    return matches[start:]
