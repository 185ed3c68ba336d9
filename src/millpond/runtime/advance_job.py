"""Jobs and results of advancing derivations, as driver and workers exchange them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from millpond.engine.eddy.routing import Account
from millpond.errors import MillpondError
from millpond.planner.dataflow.plan import Plan
from millpond.runtime.batch_tasks import BuiltSegment


@dataclass(frozen=True)
class SegmentFile:
    """A kept segment a job may read."""

    path: str
    checksum: str
    seq_runs: tuple[tuple[int, int], ...]
    min_ts: int
    max_ts: int


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
        plan: What computes them.
        columns: The columns of a derived stream's elements; None for a change log, whose elements
            are the changes as they are, with their `__sign`.
        stem: The snapshot of the stream's Query SteM, or None.
        upto: The slots the snapshot covers.
        slots: How many there are.
        routing: The policy of its eddy.
        accounts: What is known of its modules.
    """

    stream_id: int
    plan: Plan
    columns: pa.Schema | None
    stem: str | None = None
    upto: int = 0
    slots: int = 0
    routing: str = "ticket"
    accounts: dict[str, Account] = field(default_factory=dict)


@dataclass(frozen=True)
class AdvanceJob:
    """Advance a group of derivations from `position` to `upto`.

    Attributes:
        store: The store's directory.
        life: Which opening of the store this is; a dataflow of another one is of no use.
        group: Names the group among those of the store.
        position: The last instant for which the changes are there.
        epoch: The epoch as of which relations were read up to `position`.
        upto: The last instant for which they are wanted.
        now: The epoch as of which relations are to be read from there on.
        since: Per stream, the first timestamp that still matters at `position`, or None for all.
        streams: Per stream, the segments with anything from there on up to `upto`.
        relations: The relations, by name.
        sinks: The derivations.
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


@dataclass(frozen=True)
class AdvanceResult:
    """What became of a job.

    Attributes:
        built: The segments written.
        failures: Per stream whose changes could not be computed, why. A failure is a value and not
            an exception, because it is one derivation's and those beside it have succeeded.
        unwritten: Why nothing could be written, if so: STORE-603. It is nobody's query's fault,
            and what was written before it is an orphan.
    """

    built: tuple[BuiltSegment, ...] = ()
    failures: Mapping[int, MillpondError] = field(default_factory=dict)
    unwritten: MillpondError | None = None
