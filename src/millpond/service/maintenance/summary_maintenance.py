"""Keeps summaries stored: the tasks summarize what came, and an epoch refers to the new file.

A summary is stored anew when its stream has come on by an eighth of the newest granularity. What
lies behind that is computed by whoever asks, and after a restart too; so nothing depends on when
this happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from millpond.catalog.objects import StreamDef, SummaryDef, SummaryFile
from millpond.model.time import BEGINNING, END
from millpond.runtime.summary_tasks import SummaryJob, SummaryPlan, summarize
from millpond.service.answers.summary_states import SummaryStates, plan_of, position_of
from millpond.service.maintenance.backfill import shares
from millpond.service.maintenance.segment_tasks import SegmentTasks
from millpond.state.arrow_file import write_arrow
from millpond.state.epoch.epoch_change import EpochChange, StaleChange
from millpond.state.epoch_log import EpochLog
from millpond.state.store import new_path
from millpond.state.version import SegmentRef, Version
from millpond.synopses.summaries.protocol import Cells
from millpond.synopses.summaries.zones import LONGEST

#: How many jobs the segments of one summary are divided into at most.
_JOBS = 4


class SummaryMaintenance:
    """Stores summaries; for use by one thread."""

    def __init__(
        self, store: Path, log: EpochLog, states: SummaryStates, tasks: SegmentTasks
    ) -> None:
        self._store = store
        self._log = log
        self._states = states
        self._tasks = tasks

    def step(self, stream_id: int) -> bool:
        """Store the summaries of a stream that are due; False if none was."""
        busy = False
        with self._log.pin() as version:
            stream = version.streams.get(stream_id)
            own = [s for s in version.summaries.values() if s.stream_id == stream_id]
            if stream is None or not own:
                return False
            for definition in own:
                busy |= self._store_if_due(version, stream, definition)
        return busy

    def _store_if_due(self, version: Version, stream: StreamDef, definition: SummaryDef) -> bool:
        plan = plan_of(definition, stream)
        position = position_of(version, stream, plan)
        stored = definition.file.position if definition.file is not None else BEGINNING
        if position < stored + LONGEST * plan.grid.line or version.clock(stream.id).high is None:
            return False
        summary = self._states.at(version, definition, position, self._summarize)
        table = pa.table({"number": pa.array(summary.cells.reshape(-1))})
        meta = write_arrow(new_path(self._store, "summaries"), table, sync=False)
        path = meta.path.relative_to(self._store).as_posix()
        file = SummaryFile(path, meta.checksum, meta.bytes, position)
        try:
            self._log.commit(
                EpochChange(kind="summarize", add_summaries=[replace(definition, file=file)])
            )
        except StaleChange:  # it was dropped meanwhile
            meta.path.unlink(missing_ok=True)
        return True

    def _summarize(
        self, plan: SummaryPlan, segments: Sequence[SegmentRef], since: int, position: int
    ) -> Cells:
        jobs = [
            SummaryJob(
                str(self._store),
                plan,
                tuple((s.path, s.checksum, s.seq_runs) for s in share),
                since,
                position,
            )
            for share in shares(list(segments), _JOBS)
        ]
        done = self._tasks.run(summarize, jobs, segments)
        if not done:
            raise RuntimeError("a segment cannot be summarized")
        return np.concatenate(done)


def needed_since(version: Version, stream: StreamDef) -> int:
    """The timestamp from which summaries need a stream's elements; END if there are none."""
    needs: list[int] = [END]
    for definition in version.summaries.values():
        if definition.stream_id == stream.id:
            plan = plan_of(definition, stream)
            needs.append(position_of(version, stream, plan) - plan.grid.reach)
    return max(min(needs), BEGINNING)
