"""Runs tasks over segments for the parts of maintenance, and knows which segments are corrupt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from millpond.errors import MillpondError
from millpond.runtime.protocol import Done, Job, Runtime
from millpond.service.events import Events
from millpond.state.arrow_file import forget, open_arrow
from millpond.state.version import SegmentRef

log = logging.getLogger("millpond.maintenance")


class SegmentTasks:
    """Runs tasks over segments; for use by the one thread of maintenance.

    A segment found corrupt or missing is told of as an event and left out from then on: answers
    that need it say so, and the rest of maintenance goes on.
    """

    def __init__(self, store: Path, runtime: Runtime, events: Events) -> None:
        self._store = store
        self._runtime = runtime
        self._events = events
        self._unreadable: set[int] = set()

    def is_readable(self, segment: SegmentRef) -> bool:
        """Whether a segment has not been found corrupt so far."""
        return segment.id not in self._unreadable

    def run(
        self, task: Callable[[Job], Done], jobs: Sequence[Job], segments: Collection[SegmentRef]
    ) -> list[Done]:
        """Run a task for every job.

        Args:
            task: What workers run.
            jobs: What it is run for.
            segments: The segments that the jobs read.

        Returns:
            What the task gave, job by job; nothing at all if one of the segments is corrupt.

        Raises:
            Exception: as the task, if none of the segments is corrupt.
        """
        try:
            return self._runtime.run(task, jobs, self._find_near(jobs, segments))
        except Exception as error:
            blamed = [s for s in segments if not self._is_whole(s)]
            if not blamed:
                raise
            self._unreadable.update(s.id for s in blamed)
            log.warning("maintenance leaves out %s: %s", ", ".join(s.path for s in blamed), error)
            return []

    def _find_near(self, jobs: Sequence[object], segments: Collection[SegmentRef]) -> list[str]:
        """The machine of each job's segment; none where jobs read several."""
        if not isinstance(segments, Sequence) or len(jobs) != len(segments):
            return []
        return [self._runtime.prefer(segment.path) for segment in segments]

    def _is_whole(self, segment: SegmentRef) -> bool:
        path = self._store / segment.path
        forget(path)  # that it was whole once says nothing
        try:
            open_arrow(path, segment.checksum)
        except MillpondError as error:
            self._events.file_damaged(error)
            return False
        return True
