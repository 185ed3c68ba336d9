"""Jobs and results of advancing derivations, as driver and workers exchange them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from millpond.engine.dataflow.state_limit import OperatorState
from millpond.engine.dataflow.step import Scheduling
from millpond.engine.dataflow.work import OperatorWork, QueueFigures
from millpond.engine.eddy.routing import Account
from millpond.engine.promising.look import Look
from millpond.errors import MillpondError
from millpond.model.schema import Field
from millpond.operators.protocol.releasing import Constraints, ReleaseFigures
from millpond.planner.dataflow.plan import Plan
from millpond.runtime.batch_tasks import BuiltSegment
from millpond.runtime.shards.shard import Shard
from millpond.runtime.shared_log_task import LoggedChanges, LogMembers

#: A segment's own rows: path, checksum, `SegmentRef.seq_runs` and the number of rows.
StoredRows = tuple[str, str, tuple[tuple[int, int], ...], int]


@dataclass(frozen=True)
class SegmentFile:
    """A kept segment a job may read; `added` are the columns that its file may lack."""

    path: str
    checksum: str
    seq_runs: tuple[tuple[int, int], ...]
    min_ts: int
    max_ts: int
    added: tuple[Field, ...] = ()


@dataclass(frozen=True)
class RelationFile:
    """A delta of a relation, and the epoch in which it was made."""

    path: str
    checksum: str
    epoch: int


@dataclass(frozen=True)
class RelationInput:
    """A relation a job reads: its columns and all its deltas."""

    columns: pa.Schema
    files: tuple[RelationFile, ...]


@dataclass(frozen=True)
class Sink:
    """A derivation of a job: its plan, and how its elements are written.

    Attributes:
        stream_id: The stream the changes become elements of.
        plan: The plan that computes the changes.
        columns: The columns of a derived stream's elements; None for a change log, whose elements
            are the changes as they are, with their `__sign`.
        stem: The snapshot of the stream's Query SteM, or None.
        upto: The slots the snapshot covers: those with smaller numbers.
        routing: The routing policy of the stream's eddy.
        accounts: The driver's accounts of the eddy's modules.
        has_begun: Whether changes were delivered already, so that the answer at the position was
            computed once.
        look: Of a query with a budget: what it looks at, in place of the plan.
        waiting: What is carried from step to step: the file, its checksum, where in it and how many
            rows; as `open_rows` takes them.
        members: Of a shared log: the change logs whose changes it gets.
        weight: The weight of the query; lighter ones give way.
        leaves: The plan the changes were made by up to the position, if it is another one: the
            first changes hold the difference of the two answers.
    """

    stream_id: int
    plan: Plan
    columns: pa.Schema | None
    stem: str | None = None
    upto: int = 0
    routing: str = "ticket"
    accounts: dict[str, Account] = field(default_factory=dict)
    has_begun: bool = False
    look: Look | None = None
    waiting: StoredRows | None = None
    members: LogMembers | None = None
    weight: float = 1.0
    leaves: Plan | None = None


@dataclass(frozen=True)
class StateShare:
    """The memory that a process may use for the state of its dataflows.

    Attributes:
        limit: How many bytes; what is beyond lies in files. None: any number.
        weight: The weight of the job's weightiest query; lighter dataflows give way.
        own: By node key, how many bytes of memory an operator's state may take.
        most: How many bytes of state the dataflow may have, in memory and files; None: any number.
    """

    limit: int | None = None
    weight: float = 1.0
    most: int | None = None
    own: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class AdvanceJob:
    """Advance a group of derivations from `position` to `upto`.

    Attributes:
        store: The store's directory.
        life: Names this opening of the store; a dataflow made in another opening is of no use.
        group: Names the group among the groups of the store.
        position: The last instant up to which the changes are written already.
        epoch: The epoch as of which relations were read up to `position`.
        upto: The last instant up to which to advance.
        now: The epoch as of which to read relations after `position`.
        since: Per stream, the first timestamp that still matters at `position`, or None for all.
        streams: Per stream, the segments with elements from `since` on up to `upto`.
        relations: The relations, by name.
        sinks: The derivations.
        constraints: By stream, its constraints; streams without any are left out.
        scheduling: How the dataflow's operators take turns.
        share: How much memory state may take.
        shard: The elements it advances them over; None: all.
    """

    store: str
    life: str
    group: str
    position: int
    epoch: int
    upto: int
    now: int
    since: Mapping[str, int | None]
    streams: Mapping[str, tuple[SegmentFile, ...]]
    relations: Mapping[str, RelationInput]
    sinks: tuple[Sink, ...]
    constraints: Constraints = field(default_factory=dict)
    scheduling: Scheduling = field(default_factory=Scheduling)
    share: StateShare = field(default_factory=StateShare)
    shard: Shard | None = None


@dataclass(frozen=True)
class AdvanceResult:
    """The result of a job.

    Attributes:
        built: The segments written.
        failures: For each stream whose changes could not be computed, the reason. A failure is a
            value and not an exception, because other derivations of the job may have succeeded.
        reached: For each stream whose answer could not be computed at the position: the last
            instant that is done, without changes where there is no answer yet.
        waiting: For each stream whose answer could be computed at no instant yet, the reason.
        unchanged: Of the queries with a budget, those of which nothing else waits than before.
        logged: For each shared log: the changes of its members.
        releases: By node key, what constraints of streams released.
        work: By node key, what its operator did since it was made; of those that took rows alone.
        queues: What waited between the operators.
        state: By node key, the state of the operators that were measured anew.
        given: By node key, how many rows its operator put out in the job's step.
        seconds: How long the dataflow took, in all its shards together.
        is_whole: Whether shards could not do it, and it was done as a whole.
        unwritten: STORE-603 if a segment could not be read or written now, else None. No query is
            at fault, and segments written before the error are orphans.
    """

    built: tuple[BuiltSegment, ...] = ()
    failures: Mapping[int, MillpondError] = field(default_factory=dict)
    reached: Mapping[int, int] = field(default_factory=dict)
    waiting: Mapping[int, MillpondError] = field(default_factory=dict)
    unchanged: frozenset[int] = frozenset()
    logged: Mapping[int, LoggedChanges] = field(default_factory=dict)
    releases: Mapping[str, list[ReleaseFigures]] = field(default_factory=dict)
    work: Mapping[str, OperatorWork] = field(default_factory=dict)
    queues: QueueFigures = field(default_factory=QueueFigures)
    state: Mapping[str, OperatorState] = field(default_factory=dict)
    given: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    is_whole: bool = False
    unwritten: MillpondError | None = None
