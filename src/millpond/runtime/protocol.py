"""What a runtime offers the pond, and what the pond offers a runtime.

The service decides *what* happens to a batch (`Pipeline`); a runtime decides *where and when*
(`Runtime`). Spark's runtime is `runtime/spark`; the tests' in-process runtime is
`testing/local_runtime.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.errors import MillpondError
from millpond.runtime.batch_tasks import BatchPlan, BuiltSegment
from millpond.runtime.process_memory import RuntimeMemory
from millpond.state.arrow_file import FileMeta
from millpond.state.inbox.inbox import InboxRow

Job = TypeVar("Job")
Done = TypeVar("Done")

#: The source key of the inbox: one streaming query for the pushed rows of all streams.
INBOX = "inbox"

#: What a source without partitions says of them.
NO_PARTITIONS: Mapping[str, bool] = {}


@dataclass(frozen=True)
class Waiting:
    """What a source has that is in no epoch, as a batch of it is planned.

    Attributes:
        amount: How much that is.
        left: How much of it is not of the batch.
        most: How much may wait; None: as many bytes as `queue_memory` says.
        unit: Of what: 'bytes' or 'records'.
    """

    amount: int
    left: int = 0
    most: int | None = None
    unit: str = "bytes"


class Pipeline(Protocol):
    """The pond's side: called by a runtime, from any thread, around every batch.

    For one source the calls are `is_committed`, `plan`, then `commit` or `release`, one at a time.
    """

    def is_committed(self, source: str, batch_id: int) -> bool:
        """Whether the batch is part of a committed epoch; a replay of it then does nothing."""
        ...

    def last_batch(self, source: str) -> int:
        """The number of the source's last batch that is part of an epoch; -1 for none."""
        ...

    def plan(
        self,
        source: str,
        stream_ids: Sequence[int] | None,
        find_waiting: Callable[[], Waiting | None] = lambda: None,
    ) -> BatchPlan:
        """Fix floors, clock and Query SteM for a batch; None stands for all pushed streams.

        `find_waiting` says, of a source that may be shed, what waits in it: equal batches have to
        have equal answers, also after a restart. None: nobody knows, and nothing is shed.
        """
        ...

    def commit(
        self,
        source: str,
        batch_id: int,
        plan: BatchPlan,
        built: Sequence[BuiltSegment],
        inbox_done: Sequence[int] = (),
        partitions: Mapping[str, bool] = NO_PARTITIONS,
        turn: bool = False,
    ) -> None:
        """Commit the batch as an epoch. Its rows arrive in the order of their splits' keys.

        `partitions` names all partitions of a source that has some, and says of which records
        came. `turn` says that the stream's history is read: the batch is the one behind it, and has
        no rows.
        """
        ...

    def release(self, plan: BatchPlan) -> None:
        """Let go of what `plan` held, the batch being committed or not; twice does no harm."""
        ...

    def abandon(self, plan: BatchPlan) -> None:
        """Remove the files of a batch that failed before it was committed."""
        ...

    def waiting_pushes(self) -> Mapping[int, InboxRow]:
        """Return the acknowledged pushes that no epoch holds yet, by number."""
        ...

    def check_pushes(self) -> None:
        """Check the files of the waiting pushes, because a batch could not read one of them.

        A copy that is whole takes the place of one that is damaged. A push without one waits no
        more, and the status says so.
        """
        ...

    def put_back(self, error: MillpondError) -> bool:
        """Put the file that STORE-602 names back in shared storage, if this machine's is whole.

        Returns:
            Whether that was done; then what failed can be tried again.
        """
        ...

    def counts_idle(self, stream_id: int) -> bool:
        """Whether it matters when a source was read, because its stream has IDLE AFTER."""
        ...

    def report_read(self, stream_id: int, seconds: float) -> None:
        """Note that so many seconds ago, or later, a source was found to have nothing more."""
        ...

    def report_stopped(self, stream_id: int, reason: Exception) -> None:
        """Note that a source failed; its stream has stopped until `report_resumed`."""
        ...

    def report_resumed(self, stream_id: int) -> None:
        """Note that a stopped source runs again."""
        ...

    def report_runtime(self, reason: MillpondError | None) -> None:
        """Note that the runtime cannot run tasks, and why; None: it can again."""
        ...


@contextmanager
def abandoned_if_failed(pipeline: Pipeline, plan: BatchPlan) -> Iterator[None]:
    """Build a batch in the block; if that fails, its files are removed.

    A source is tried again and again, and a task that fails does not say what others have written.
    """
    try:
        yield
    except BaseException:
        pipeline.abandon(plan)
        raise


class Runtime(Protocol):
    """Where sources are read and tasks run."""

    def start(self, pipeline: Pipeline, store: Path) -> None:
        """Start the runtime; called once, before anything else."""
        ...

    def wait_until_started(self) -> None:
        """Return when it is decided whether the runtime runs, which may start behind.

        Raises:
            MillpondError: POND-405, the request this thread works for is to end.
        """
        ...

    def check_source(self, definition: StreamDef | RelationDef) -> None:
        """Raise DATA-502 or CQL-214 if the source clearly cannot be read."""
        ...

    def open_source(self, stream: StreamDef) -> None:
        """Begin reading a stream's source, from the end of the last committed batch."""
        ...

    def close_source(self, stream_id: int) -> None:
        """Stop reading a stream's source; a batch on its way is finished first."""
        ...

    def read_to_end(self, stream: StreamDef) -> None:
        """Read a bounded source from its last committed batch to its end, and return."""
        ...

    def wake_inbox(self) -> None:
        """Tell the runtime that rows were pushed (a hint; a runtime may poll)."""
        ...

    def catch_up(self, streams: Sequence[StreamDef]) -> None:
        """Return when everything the open sources hold now has been committed."""
        ...

    def run(
        self, task: Callable[[Job], Done], jobs: Sequence[Job], near: Sequence[str] = ()
    ) -> list[Done]:
        """Run a task of `millpond.runtime` for every job, in parallel; results in order.

        `near` names the machine, by `prefer`, where each job runs best; it may run anywhere.
        """
        ...

    def ask(
        self, task: Callable[[Job], Done], jobs: Sequence[Job], near: Sequence[str] = ()
    ) -> list[Done]:
        """As `run`, for a request, with which the tasks end.

        Raises:
            MillpondError: POND-405, the request this thread works for is to end.
        """
        ...

    def prefer(self, key: str) -> str:
        """Return the machine whose cache should have a file: the same one as long as it is there.

        "": it does not matter, since all tasks run on one machine.
        """
        ...

    @property
    def spreads(self) -> bool:
        """Whether tasks run on other machines than this process."""
        ...

    def read_relation(self, relation: RelationDef, path: Path) -> FileMeta:
        """Read a relation's source into one Arrow file with the relation's columns.

        Raises:
            MillpondError: DATA-501 at the first row that does not fit, DATA-502 for the source.
        """
        ...

    def columns(self, frame: Any) -> list[tuple[str, str]]:
        """Return a DataFrame's columns and the SQL names of their types."""
        ...

    def open_frame(self, stream: StreamDef, frame: Any) -> None:
        """Read a DataFrame as a stream's source; a bounded frame at once, as one batch."""
        ...

    @property
    def workers(self) -> int:
        """How many processes run tasks at a time, about."""
        ...

    @property
    def trouble(self) -> MillpondError | None:
        """Why the runtime cannot read pushes or run tasks now; None while it can."""
        ...

    @property
    def failure(self) -> MillpondError | None:
        """Why the runtime will not be able to again; None unless it has given up."""
        ...

    def describe(self) -> dict[str, Any]:
        """Describe the runtime for the status page."""
        ...

    def measure_memory(self) -> RuntimeMemory:
        """Measure the processes of the runtime, without waiting for any of them."""
        ...

    def end_tasks(self) -> None:
        """End the tasks of `run`, and let no other begin; who waits for them gets an error."""
        ...

    def stop(self) -> None:
        """Stop everything; batches on their way are finished or abandoned."""
        ...
