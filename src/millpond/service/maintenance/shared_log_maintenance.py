"""Merges the segments of shared logs, and trims the changes of each query as its own log would be.

Of each query at least its last `keep_changes` changes are kept. What is behind them goes when its
segment is written anew: in a merge, or once half of what a shared log has may go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from millpond.catalog.objects import StreamDef
from millpond.runtime import batch_tasks
from millpond.runtime.shared_log_task import MergeLogsJob, MergeLogsResult, merge_logs
from millpond.service.ingest.segment_refs import segment_ref
from millpond.service.maintenance.segment_tasks import SegmentTasks
from millpond.state.epoch.epoch_change import EpochChange, StaleChange
from millpond.state.epoch_log import EpochLog
from millpond.state.segment_tree import plan_merges
from millpond.state.version import SegmentRef, Version

#: Below so many changes nothing is written anew only to trim it.
_FEW = 65_536


@dataclass(frozen=True)
class _Keeping:
    """What is to be kept: of each log, in ascending order, the changes from a number on."""

    logs: np.ndarray
    floors: np.ndarray
    rows: int


class SharedLogMaintenance:
    """Maintains shared logs, for the thread of the maintenance."""

    def __init__(
        self, store: Path, epochs: EpochLog, tasks: SegmentTasks, merged_rows: int
    ) -> None:
        self._store = store
        self._log = epochs
        self._tasks = tasks
        self._merged_rows = merged_rows
        self._held = _Held()

    def step(self, version: Version, shared: StreamDef, segments: Sequence[SegmentRef]) -> bool:
        """Merge and trim a shared log; False if there was nothing to do.

        Args:
            version: The version.
            shared: The shared log.
            segments: Those of its segments that can be read.
        """
        plans = plan_merges(
            segments, max_rows=self._merged_rows, max_bytes=batch_tasks.SEGMENT_BYTES
        )
        rows = sum(segment.rows for segment in segments)
        if not plans and rows < _FEW:
            return False
        keeping = self._held.find_kept(version, shared)
        if not len(keeping.logs):
            return False
        if not plans and rows > max(_FEW, 2 * keeping.rows):
            plans = [(segment,) for segment in segments]
        if not plans:
            return False
        jobs = [
            MergeLogsJob(
                str(self._store),
                shared.id,
                tuple((s.path, s.checksum) for s in plan),
                keeping.logs,
                keeping.floors,
            )
            for plan in plans
        ]
        merged = self._tasks.run(merge_logs, jobs, [s for plan in plans for s in plan])
        for plan, result in zip(plans if merged else (), merged, strict=True):
            self._replace(plan, result)
        return bool(merged)

    def _replace(self, plan: Sequence[SegmentRef], result: MergeLogsResult) -> None:
        def change(now: Version) -> EpochChange:
            clocks = {}
            for id, at in zip(result.logs.tolist(), result.dropped_upto.tolist(), strict=True):
                clock = now.own_clock(id)
                clocks[id] = replace(clock, kept_from=max(clock.kept_from, at + 1))
            segments = []
            if result.built is not None:
                level = max(s.level for s in plan) + (len(plan) > 1)
                epoch = max(s.epoch for s in plan)
                segments = [segment_ref(result.built, ((0, 0),), level=level, epoch=epoch)]
            return EpochChange(
                kind="merge", segments=segments, replaced=[s.id for s in plan], clocks=clocks
            )

        try:
            self._log.commit(change)
        except StaleChange:  # the shared log became one with another meanwhile
            if result.built is not None:
                result.built.discard()


class _Held:
    """The change logs that have, or had, their changes in a shared log, by their ids.

    They are found among all streams only when a stream came, went or was altered: at most rounds
    there are thousands of logs, of which only the clocks have moved.
    """

    def __init__(self) -> None:
        self._streams: object = None
        self._of: dict[int, list[StreamDef]] = {}

    def list_logs(self, version: Version, shared: StreamDef) -> Sequence[StreamDef]:
        """The logs of a shared log, in ascending order of their ids."""
        if self._streams is not version.streams:
            found: defaultdict[int, list[StreamDef]] = defaultdict(list)
            for log in version.streams.values():
                if log.derived is not None and log.derived.shared_log is not None:
                    found[log.derived.shared_log].append(log)
            self._of = {id: sorted(logs, key=lambda log: log.id) for id, logs in found.items()}
            self._streams = version.streams
        return self._of.get(shared.id, ())

    def find_kept(self, version: Version, shared: StreamDef) -> _Keeping:
        """What is to be kept of each log that has, or had, its changes in a shared log."""
        logs = self.list_logs(version, shared)
        count = len(logs)
        newest = np.fromiter((version.own_clock(log.id).next_seq for log in logs), np.int64, count)
        retained = np.fromiter((log.retain_rows or 0 for log in logs), np.int64, count)
        ended = newest.copy()
        for place, log in enumerate(logs):
            assert log.derived is not None
            if log.derived.apart_from is not None:
                ended[place] = log.derived.apart_from
        floors = np.maximum(newest - retained, 0)
        ids = np.fromiter((log.id for log in logs), np.int64, count)
        return _Keeping(ids, floors, int(np.maximum(ended - floors, 0).sum()))
