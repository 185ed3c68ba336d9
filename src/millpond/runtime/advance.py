"""What a worker does to advance derivations: read what is new, advance their dataflow, write.

A derivation is a query whose changes somebody wants: a standing query that is followed, or a
derived stream. Derivations at the same position over the same streams are advanced together, by one
dataflow in which equal parts of their plans are one. A worker keeps the dataflow for the next time;
nothing depends on that: one that is not there, or elsewhere, is made again from kept segments.

INV-ADVANCE-1: what a job writes is a function of the kept history and of the job, not of which
worker does it nor of what that worker did before.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from millpond.engine.dataflow import Dataflow
from millpond.engine.query_stem import StemSnapshot
from millpond.engine.routing import Account
from millpond.errors import MillpondError
from millpond.planner.dataflow.plan import Plan
from millpond.runtime.tasks import (
    SEGMENT_BYTES,
    Built,
    Run,
    segment_rows,
    task_router,
    write_segment,
)
from millpond.state.arrow_file import global_seq, open_arrow, write_together
from millpond.state.relation_log import changes_between, fold, held_at
from millpond.state.store import new_path
from millpond.state.version import DATA

#: Groups whose dataflows a worker keeps, the least recently used go first; and how many more of
#: a group than one, whose members are at other positions.
_FLOWS, _APART = 64, 2


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
class Advanced:
    """What became of a job.

    Attributes:
        built: The segments written.
        failures: Per stream whose changes could not be computed, why. A failure is a value and not
            an exception, because it is one derivation's and those beside it have succeeded.
        unwritten: Why nothing could be written, if so: STORE-603. It is nobody's query's fault,
            and what was written before it is an orphan.
    """

    built: tuple[Built, ...] = ()
    failures: Mapping[int, MillpondError] = field(default_factory=dict)
    unwritten: MillpondError | None = None


def advance(job: AdvanceJob) -> Advanced:
    """Advance a job's derivations and write what they gained."""
    try:
        held = _at_position(job)
        held.flow.purge(_purging(job))
        deltas = held.advanced(job, job.upto, job.now)
    except Exception as error:
        return Advanced(failures={sink.stream_id: _explained(error) for sink in job.sinks})
    failures: dict[int, MillpondError] = {}
    derived: list[tuple[Sink, list[pa.Table]]] = []
    logged: list[tuple[Sink, pa.Table]] = []
    for sink in job.sinks:
        if sink.plan.key not in deltas:
            failures[sink.stream_id] = held.flow.failed[sink.plan.key]
            continue
        try:
            elements = _elements_of(sink, deltas[sink.plan.key])
        except pa.ArrowException as error:
            failures[sink.stream_id] = _explained(error)
            continue
        parts = _parts(sink, elements)
        if sink.columns is None:
            logged += [(sink, part) for part in parts]
        else:
            derived.append((sink, parts))
    try:
        built = [*_logs(job.store, logged)]
        for sink, parts in derived:
            built += _segments(job.store, sink, parts)
    except MillpondError as error:
        # The dataflow is past what could not be written: it is made anew the next time.
        return Advanced(unwritten=error)
    _flows.put(job, held)
    return Advanced(tuple(built), failures)


def _purging(job: AdvanceJob) -> dict[str, set[int | None]]:
    """How often the derivations of each plan want what has expired to be dropped."""
    found: dict[str, set[int | None]] = {}
    for sink in job.sinks:
        found.setdefault(sink.plan.key, set()).add(sink.plan.lazy_expiration)
    return found


def _explained(error: Exception) -> MillpondError:
    """Any error as one that can be shown to the owner of a query."""
    if isinstance(error, MillpondError):
        return error
    if isinstance(error, pa.ArrowException):
        return MillpondError(
            "POND-404", "the query could not be evaluated", detail=str(error).split("\n", 1)[0]
        )
    what = f"{type(error).__name__}: {error}"
    return MillpondError("INTERNAL-901", "the changes could not be computed", detail=what)


class _Kept:
    """A dataflow between two jobs, and the epoch as of which it knows its relations."""

    def __init__(self, flow: Dataflow, epoch: int) -> None:
        self.flow = flow
        self.epoch = epoch

    def advanced(self, job: AdvanceJob, upto: int, epoch: int) -> dict[str, pa.Table]:
        """Advance the dataflow, with its relations as of an epoch from its position on."""
        flow = self.flow
        after = flow.position
        feeds = {
            name: _elements(job, name, columns, after, upto) for name, columns in flow.needs.items()
        }
        for name, columns in flow.relations.items():
            feeds[name] = _updates(job, name, columns, (after, self.epoch), (upto, epoch))
        self.epoch = epoch
        return flow.advance(feeds, upto)


class _Flows:
    """The dataflows of this process. A job takes one out and puts it back when it is done.

    Of a group whose members are not all at one position there are several dataflows, which become
    one where they meet.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str, str], list[_Kept]] = OrderedDict()

    def take(self, job: AdvanceJob) -> _Kept | None:
        """A dataflow that has some of the job's plans and is not past its position."""
        wanted = {sink.plan.key for sink in job.sinks}
        with self._lock:
            flows = self._kept.get((job.store, job.life, job.group), [])
            usable = [
                kept
                for kept in flows
                if kept.flow.position <= job.position and not wanted.isdisjoint(kept.flow.sinks)
            ]
            if not usable:
                return None
            found = max(usable, key=lambda kept: kept.flow.position)
            flows.remove(found)
            return found

    def put(self, job: AdvanceJob, kept: _Kept) -> None:
        name = (job.store, job.life, job.group)
        with self._lock:
            apart = []
            for other in self._kept.pop(name, []):
                same_position = other.flow.position == kept.flow.position
                if same_position and _same_relations(job, other.epoch, kept.epoch):
                    kept.flow.attach(other.flow)
                elif not set(other.flow.sinks) <= set(kept.flow.sinks):
                    apart.append(other)
            self._kept[name] = [*apart[-_APART:], kept]
            while len(self._kept) > _FLOWS:
                self._kept.popitem(last=False)


_flows = _Flows()


def _at_position(job: AdvanceJob) -> _Kept:
    """The group's dataflow at the job's position, made as far as it is not here."""
    held = _flows.take(job)
    plans = {sink.plan.key: sink.plan for sink in job.sinks}
    if held is None or not _brought_up(held, job):
        return _made(job, list(plans.values()))
    flow = held.flow
    for gone in set(flow.sinks) - plans.keys():
        flow.detach(gone)
    missing = [plan for key, plan in plans.items() if key not in flow.sinks]
    if missing:
        flow.attach(_made(job, missing).flow)
    return held


def _brought_up(held: _Kept, job: AdvanceJob) -> bool:
    """Bring a dataflow that other workers left behind to the job's position, if it can be.

    What it gives on the way was written by them.
    """
    flow = held.flow
    if flow.position == job.position and _same_relations(job, held.epoch, job.epoch):
        held.epoch = job.epoch
        return True
    if flow.position >= job.position or held.epoch > job.epoch:
        return False
    if any(low is not None and low > flow.position + 1 for low in job.since.values()):
        return False
    held.advanced(job, job.position, job.epoch)
    return True


def _same_relations(job: AdvanceJob, one: int, other: int) -> bool:
    """Whether a job's relations as of two epochs are the same."""
    low, high = sorted((one, other))
    files = (file for relation in job.relations.values() for file in relation.files)
    return not any(low < file.epoch <= high for file in files)


def _made(job: AdvanceJob, plans: Sequence[Plan]) -> _Kept:
    """A dataflow at the job's position, fed with everything that still matters there."""
    made = _Kept(Dataflow(*plans, since=job.position), -1)
    if job.position > made.flow.position:
        made.advanced(job, job.position, job.epoch)
    return made


def _elements(
    job: AdvanceJob, stream: str, columns: Sequence[str], after: int, upto: int
) -> pa.Table:
    """The elements of (after, upto] that matter, in the order of timestamp and arrival."""
    low = job.since.get(stream)
    after = after if low is None else max(after, min(low - 1, job.position))
    parts: list[pa.Table] = []
    empty: pa.Table | None = None
    wanted = [*columns, "__ts", "__seq"]
    for file in job.streams[stream]:
        table = open_arrow(Path(job.store) / file.path, file.checksum).select(wanted)
        empty = table.slice(0, 0)
        if file.max_ts <= after or file.min_ts > upto:
            continue
        ts = table["__ts"].to_numpy()
        lo, hi = np.searchsorted(ts, (after, upto), side="right")
        if lo < hi:
            part = table.slice(lo, hi - lo)
            sequence = global_seq(part["__seq"].to_numpy(), file.seq_runs)
            parts.append(part.set_column(len(wanted) - 1, "__seq", pa.array(sequence)))
    if not parts:
        if empty is None:
            return pa.table({name: pa.nulls(0) for name in wanted})
        return empty
    found = pa.concat_tables(parts)
    ts, seq = found["__ts"].to_numpy(), found["__seq"].to_numpy()
    if len(parts) > 1 or not bool((np.diff(ts) > 0).all()):
        found = found.take(pa.array(np.lexsort((seq, ts))))
    return found.combine_chunks()


def _updates(
    job: AdvanceJob,
    relation: str,
    columns: Sequence[str],
    known: tuple[int, int],
    wanted: tuple[int, int],
) -> pa.Table:
    """A relation's changes from one (instant, epoch) to another.

    The epoch -1 stands for knowing nothing of the relation.
    """
    source = job.relations[relation]

    def as_of(epoch: int) -> pa.Table:
        files = [f for f in source.files if f.epoch <= epoch]
        tables = [open_arrow(Path(job.store) / f.path, f.checksum) for f in files]
        return fold(tables, source.columns)

    after, before = known
    upto, now = wanted
    current = as_of(now)
    held = held_at(current if before == now else as_of(before), after)
    return changes_between(held, current, after, upto, columns)


def _elements_of(sink: Sink, delta: pa.Table) -> pa.Table:
    """Changes as elements: a derived stream has its own columns, a log also the signs."""
    stamps = delta["__at"].cast(pa.int64())
    elements = delta.drop_columns(["__at"])
    if sink.columns is not None:
        rows = elements.drop_columns(["__sign"])
        arrays = [rows.column(i).cast(f.type) for i, f in enumerate(sink.columns)]
        elements = pa.Table.from_arrays(arrays, schema=sink.columns)
    return elements.append_column("__ts", stamps)


def _parts(sink: Sink, elements: pa.Table) -> list[pa.Table]:
    """Elements in canonical order, numbered, in parts that make a segment each."""
    rows = elements.num_rows
    step = max(1, min(segment_rows(sink.slots), SEGMENT_BYTES * rows // max(elements.nbytes, 1)))
    parts = []
    for start in range(0, rows, step):
        part = elements.slice(start, step)
        numbers = pa.array(np.arange(part.num_rows, dtype=np.int64))
        parts.append(part.append_column("__seq", numbers).combine_chunks())
    return parts


def _segments(store: str, sink: Sink, parts: list[pa.Table]) -> Iterator[Built]:
    """A derived stream's segments, matched against its own standing queries."""
    stem = StemSnapshot.load(Path(sink.stem)) if sink.stem else None
    for number, part in enumerate(parts):
        router = task_router(sink.routing, number, sink.accounts)
        runs = [Run(0, (), number)]
        yield write_segment(store, sink.stream_id, part, stem, sink.upto, router, runs)


def _logs(store: str, logged: list[tuple[Sink, pa.Table]]) -> Iterator[Built]:
    """The segments of change logs, which no query is matched against: all written together."""
    paths = [new_path(store, "segments") for _ in logged]
    files = write_together([(path, part) for path, (_, part) in zip(paths, logged, strict=True)])
    for (sink, part), file in zip(logged, files, strict=True):
        at = part["__ts"]
        first, last = int(at[0].as_py()), int(at[-1].as_py())
        yield Built(sink.stream_id, DATA, file, first, last, (Run(0, (), 0),))
