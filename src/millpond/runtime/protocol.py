"""What a runtime offers the pond, and what the pond offers a runtime.

The service decides *what* happens to a batch (`Pipeline`); a runtime decides *where and when*
(`Runtime`). Spark's is `runtime/spark`; the in-process one of the tests is
`testing/local_runtime.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.runtime.batch_tasks import BatchPlan, BuiltSegment
from millpond.state.arrow_file import FileMeta

Job = TypeVar("Job")
Done = TypeVar("Done")

#: The source key of the inbox: one streaming query for the pushed rows of all streams.
INBOX = "inbox"


class Pipeline(Protocol):
    """The pond's side: called by a runtime, from any thread, around every batch.

    For one source the calls are `is_committed`, `plan`, then `commit` or `release`, never at once.
    """

    def is_committed(self, source: str, batch_id: int) -> bool:
        """Whether the batch is part of a committed epoch: a replay has nothing to do."""
        ...

    def plan(self, source: str, stream_ids: Sequence[int] | None) -> BatchPlan:
        """Fix floors, clock and Query SteM for a batch; None stands for all pushed streams."""
        ...

    def commit(
        self,
        source: str,
        batch_id: int,
        plan: BatchPlan,
        built: Sequence[BuiltSegment],
        inbox_done: Sequence[int] = (),
    ) -> None:
        """Make the batch an epoch. Splits are laid in the order of their keys."""
        ...

    def release(self, plan: BatchPlan) -> None:
        """The batch is over, committed or not. Harmless when called twice."""
        ...

    def waiting_pushes(self) -> Mapping[int, int]:
        """The pushes that are acknowledged and part of no epoch yet: number -> how many rows."""
        ...

    def report_stopped(self, stream_id: int, reason: Exception) -> None:
        """A source failed; the stream has stopped until the runtime says it resumed."""
        ...

    def report_resumed(self, stream_id: int) -> None:
        """A stopped source runs again."""
        ...


class Runtime(Protocol):
    """Where sources are read and tasks run."""

    def start(self, pipeline: Pipeline, store: Path) -> None:
        """Called once, before anything else."""
        ...

    def check_source(self, definition: StreamDef | RelationDef) -> None:
        """Raise DATA-502 or CQL-214 if the source clearly cannot be read."""
        ...

    def open_source(self, stream: StreamDef) -> None:
        """Begin reading a stream's source, from where the last committed batch ended."""
        ...

    def close_source(self, stream_id: int) -> None:
        """Stop reading it; a batch on its way is finished first."""
        ...

    def read_to_end(self, stream: StreamDef) -> None:
        """Read a bounded source from where it is to its end, and return."""
        ...

    def wake_inbox(self) -> None:
        """Rows were pushed (a hint; a runtime may poll)."""
        ...

    def catch_up(self, streams: Sequence[StreamDef]) -> None:
        """Return when everything the open sources hold now has been committed."""
        ...

    def run(self, task: Callable[[Job], Done], jobs: Sequence[Job]) -> list[Done]:
        """Run a task of `millpond.runtime` for every job, in parallel; results in order."""
        ...

    def read_relation(self, relation: RelationDef, path: Path) -> FileMeta:
        """Read a relation's source into one Arrow file with the relation's columns.

        Raises:
            MillpondError: DATA-501 at the first row that does not fit, DATA-502 for the source.
        """
        ...

    def columns(self, frame: Any) -> list[tuple[str, str]]:
        """A DataFrame's columns and the SQL names of their types."""
        ...

    def open_frame(self, stream: StreamDef, frame: Any) -> None:
        """Read a DataFrame as a stream's source; a bounded one at once, as one batch."""
        ...

    def describe(self) -> dict[str, Any]:
        """What runs, for the status page."""
        ...

    def stop(self) -> None:
        """Stop everything; batches on their way are finished or abandoned."""
        ...
