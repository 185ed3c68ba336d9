"""Advances derivations in a worker: reads new elements, advances the dataflow, writes changes.

A derivation is a standing query that is followed, or a derived stream. Derivations with equal
sharing keys and equal positions are advanced together, by one dataflow, in which equal parts of
their plans are one operator (`dataflow_cache`).

INV-ADVANCE-1: what a job writes is a function of the kept history and of the job. It does not
depend on which worker runs the job, nor on what that worker did before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from millpond.engine.dataflow.failures import to_millpond_error
from millpond.errors import MillpondError
from millpond.runtime.advance_job import AdvanceJob, AdvanceResult, Sink
from millpond.runtime.batch_tasks import (
    SEGMENT_BYTES,
    SEGMENT_ROWS,
    BuiltSegment,
    SplitRun,
    task_router,
    write_segment,
)
from millpond.runtime.chunks import divide
from millpond.runtime.dataflow_cache import (
    CachedDataflow,
    LateStart,
    needs_no_past,
    prepare_dataflow,
    put_dataflow,
    start_late,
    switch_plans,
    take_dataflow,
)
from millpond.runtime.files.log_files import write_logs
from millpond.runtime.files.stem_files import load_stem
from millpond.runtime.look_task import LookJob
from millpond.runtime.shared_log_task import LoggedChanges, lay_out


def advance(job: AdvanceJob) -> AdvanceResult:
    """Advance a job's derivations and write their new changes."""
    if job.sinks and job.sinks[0].look is not None:
        return _look(job)
    ran = run_dataflow(job)
    if isinstance(ran, MillpondError):
        return fail(dict.fromkeys((sink.stream_id for sink in job.sinks), ran))
    failures = dict(ran.failures)
    reached: dict[int, int] = {}
    waiting: dict[int, MillpondError] = {}
    late: dict[str, LateStart | MillpondError] = {}
    found: dict[int, pa.Table] = {}
    for sink in job.sinks:
        key, flow = sink.plan.key, ran.held.flow
        if sink.stream_id in failures:
            continue
        is_undefined = key not in ran.changes and key in flow.undefined_until
        if is_undefined and (not sink.has_begun or needs_no_past(sink.plan, job.position)):
            if key not in late:
                late[key] = start_late(job, sink.plan, ran.held)
            start = late[key]
            if isinstance(start, MillpondError):
                failures[sink.stream_id] = start
                continue
            reached[sink.stream_id] = start.upto
            if start.changes is None:
                waiting[sink.stream_id] = flow.failed[key]
                continue
            found[sink.stream_id] = start.changes
        elif key not in ran.changes:
            failures[sink.stream_id] = flow.failed[key]
        else:
            found[sink.stream_id] = ran.changes[key]
    if any(_is_storage(error) for error in (*failures.values(), *waiting.values())):
        return fail({**failures, **waiting})
    result = write_changes(job, found)
    if result.unwritten is not None:
        # The dataflow has passed the changes that could not be written: the next job makes it anew.
        return result
    figures = ran.keep()
    failures |= result.failures
    return replace(
        figures,
        built=result.built,
        failures=failures,
        reached=reached,
        waiting=waiting,
        logged=result.logged,
    )


def fail(failures: Mapping[int, MillpondError]) -> AdvanceResult:
    """The result of a job that gave nothing: if the storage did not, that is no query's fault."""
    silent = next((error for error in failures.values() if _is_storage(error)), None)
    return (
        AdvanceResult(unwritten=silent) if silent is not None else AdvanceResult(failures=failures)
    )


def _is_storage(error: MillpondError) -> bool:
    """Whether an error says that the storage, or the disk, gives no answer now."""
    return error.code == "STORE-603"


@dataclass(frozen=True)
class RanDataflow:
    """A dataflow that was advanced, and is kept for the next job when its changes are out.

    Attributes:
        job: The job.
        held: The dataflow.
        changes: By plan, its changes; without those that failed.
        failures: Of the derivations that the limit of state suspends.
        before: By node key, how many rows its operator had put out before.
        seconds: How long it took.
    """

    job: AdvanceJob
    held: CachedDataflow
    changes: Mapping[str, pa.Table]
    failures: Mapping[int, MillpondError]
    before: Mapping[str, int]
    seconds: float

    def keep(self, *, every: bool = False) -> AdvanceResult:
        """Keep the dataflow for the next job.

        Returns:
            Its figures: of every operator, or of those of which they are others than before.
        """
        flow = self.held.flow
        state, given = flow.list_state(every=every), flow.count_given()
        put_dataflow(self.job, self.held)
        return AdvanceResult(
            releases=flow.list_release_figures(),
            work=flow.list_work(every=every),
            queues=flow.queues,
            state=state,
            given={key: rows - self.before.get(key, 0) for key, rows in given.items()},
            seconds=self.seconds,
        )


def run_dataflow(job: AdvanceJob) -> RanDataflow | MillpondError:
    """Take a job's dataflow, and advance it; an error if that cannot be done at all."""
    begun = time.perf_counter()
    try:
        held = take_dataflow(job)
        held.flow.purge(_purge_intervals(job))
        held.flow.constrain(job.constraints)
        before = held.flow.count_given()
        changes = held.advance(job, job.upto, job.now)
    except Exception as error:
        return to_millpond_error(error)
    failures = _suspend_beyond_limit(job, held)
    return RanDataflow(job, held, changes, failures, before, time.perf_counter() - begun)


def write_changes(job: AdvanceJob, changes: Mapping[int, pa.Table]) -> AdvanceResult:
    """Write the changes of a job's derivations, by stream; those left out have none."""
    failures: dict[int, MillpondError] = {}
    derived: list[tuple[Sink, list[pa.Table]]] = []
    shared: dict[int, LoggedChanges] = {}
    logged: list[tuple[Sink, pa.Table]] = []
    for sink in job.sinks:
        if sink.stream_id not in changes:
            continue
        own = changes[sink.stream_id]
        try:
            if sink.leaves is not None:
                own = switch_plans(job, sink.leaves, sink.plan, own)
            elements = _elements_of(sink, own)
            if sink.members is not None:
                elements, shared[sink.stream_id] = lay_out(elements, sink.members)
            parts = _parts(sink, elements)
        except Exception as error:
            failures[sink.stream_id] = to_millpond_error(error)
            continue
        if sink.columns is None:
            logged += [(sink, part) for part in parts]
        else:
            derived.append((sink, parts))
    if any(map(_is_storage, failures.values())):
        return fail(failures)
    try:
        built = _logs(job.store, logged)
        for sink, parts in derived:
            built += _segments(job.store, sink, parts)
    except MillpondError as error:
        return AdvanceResult(unwritten=error)
    return AdvanceResult(tuple(built), failures, logged=shared)


def prepare(job: AdvanceJob) -> MillpondError | None:
    """Make the dataflow of plans that are about to run, or bring it up to the job's position.

    Nothing is written. The worker keeps the dataflow until the plans run (`dataflow_cache`).

    Returns:
        Why that failed; then the job that runs the plans tries for itself.
    """
    try:
        prepare_dataflow(job)
    except Exception as error:
        return to_millpond_error(error)
    return None


def _suspend_beyond_limit(job: AdvanceJob, held: CachedDataflow) -> dict[int, MillpondError]:
    """Drop plans of the lightest queries until the dataflow's state is within its limit.

    Returns:
        The failures of their sinks.
    """
    found: dict[int, MillpondError] = {}
    most, flow = job.share.most, held.flow
    if most is None:
        return found
    weights: dict[str, float] = {}
    for sink in job.sinks:
        weights[sink.plan.key] = max(weights.get(sink.plan.key, 0.0), sink.weight)
    for key in sorted(weights, key=lambda key: weights[key]):
        needed = flow.size.memory + flow.size.files
        if needed <= most:
            break
        error = MillpondError(
            "POND-405",
            "there is no room for the state of the query's changes",
            detail=f"The state of the dataflow takes {needed:,} bytes, and state_limit allows "
            f"{most:,} beside what queries of its weight, and heavier ones, keep.",
            hint="ALTER SYSTEM SET (state_limit = '…'), shorten windows, or give it more weight.",
        )
        found |= {sink.stream_id: error for sink in job.sinks if sink.plan.key == key}
        if key in flow.sinks:
            flow.detach(key)
    return found


def _look(job: AdvanceJob) -> AdvanceResult:
    """Look at the most promising part, for queries with a budget."""

    def write(found: Sequence[tuple[Sink, pa.Table]]) -> list[BuiltSegment]:
        return _logs(
            job.store,
            [
                (sink, part)
                for sink, changes in found
                for part in _parts(sink, _elements_of(sink, changes))
            ],
        )

    looks = LookJob(job, write)
    try:
        built, unchanged = looks.run()
    except MillpondError as error:
        looks.discard()
        if error.code == "STORE-603":
            return AdvanceResult(unwritten=error)
        return AdvanceResult(failures={sink.stream_id: error for sink in job.sinks})
    except Exception as error:
        looks.discard()
        reason = to_millpond_error(error)
        return AdvanceResult(failures={sink.stream_id: reason for sink in job.sinks})
    return AdvanceResult(tuple(built), looks.failures, unchanged=unchanged)


def _purge_intervals(job: AdvanceJob) -> dict[str, set[int | None]]:
    """Collect the lazy expiration intervals of each plan's derivations."""
    found: dict[str, set[int | None]] = {}
    for sink in job.sinks:
        found.setdefault(sink.plan.key, set()).add(sink.plan.lazy_expiration)
    return found


def _elements_of(sink: Sink, delta: pa.Table) -> pa.Table:
    """Turn changes into elements: of a derived stream's columns, or of a log's, with the signs."""
    stamps = delta["__at"].cast(pa.int64())
    elements = delta.drop_columns(["__at"])
    if sink.columns is not None:
        rows = elements.drop_columns(["__sign"])
        arrays = [rows.column(i).cast(f.type) for i, f in enumerate(sink.columns)]
        elements = pa.Table.from_arrays(arrays, schema=sink.columns)
    return elements.append_column("__ts", stamps)


def _parts(sink: Sink, elements: pa.Table) -> list[pa.Table]:
    """Split elements in canonical order into parts of a segment; number those that are not yet."""
    parts: list[pa.Table] = []
    if not elements.num_rows:
        return parts
    for _, part in divide(elements, SEGMENT_ROWS, SEGMENT_BYTES):
        if sink.members is not None:
            parts.append(part.combine_chunks())
            continue
        numbers = pa.array(np.arange(part.num_rows, dtype=np.int64))
        parts.append(part.append_column("__seq", numbers).combine_chunks())
    return parts


def _segments(store: str, sink: Sink, parts: list[pa.Table]) -> Iterator[BuiltSegment]:
    """Write a derived stream's segments, matched against the stream's own standing queries."""
    stem = load_stem(sink.stem) if sink.stem else None
    for number, part in enumerate(parts):
        router = task_router(sink.routing, number, sink.accounts)
        runs = [SplitRun(0, (), number)]
        yield write_segment(store, sink.stream_id, part, stem, sink.upto, router, runs)


def _logs(store: str, logged: Sequence[tuple[Sink, pa.Table]]) -> list[BuiltSegment]:
    """Write the segments of change logs; those of shared logs have numbers of their own."""
    parts = [(sink.stream_id, part) for sink, part in logged]
    return write_logs(store, parts, [n for n, (s, _) in enumerate(logged) if s.members is not None])
