"""Advances a job in shards: each where its dataflow is, then their changes are put together.

A shard's changes go through a scratch file from the worker that computed them to the one that
writes them; the driver sees figures. Put together they are the changes of the whole job, in the
same order (INV-SHARD-1): equal rows come from one shard, so nothing of one cancels anything of
another. What shards cannot do (an answer that cannot be computed, a limit) is done by the whole
job, which knows what becomes of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from millpond.engine.dataflow.net_changes import merge_changes
from millpond.engine.dataflow.state_limit import OperatorState
from millpond.engine.dataflow.work import OperatorWork, QueueFigures
from millpond.errors import MillpondError
from millpond.model.owner_only import make_directory
from millpond.operators.protocol.releasing import ReleaseFigures
from millpond.runtime.advance_job import AdvanceJob, AdvanceResult
from millpond.runtime.advance_task import advance, fail, run_dataflow, write_changes
from millpond.runtime.shards.shard import Shard
from millpond.state.arrow_file import FileMeta, open_arrow, translate_write_errors, write_bytes
from millpond.state.file_share import publish_scratch, withdraw_scratch
from millpond.state.scratch_folder import SCRATCH


@dataclass(frozen=True)
class ShardResult:
    """What a shard gave.

    Attributes:
        changes: By plan, the file of its changes; None: it could not be done.
        figures: What its operators did and keep; or that the storage gave no answer.
    """

    changes: Mapping[str, FileMeta] | None
    figures: AdvanceResult


def cut(job: AdvanceJob, columns: Mapping[str, str], number: int) -> list[AdvanceJob]:
    """Cut a job into shards by a column of each of its streams."""
    most, by = job.share.most, sorted(columns.items())
    share = replace(job.share, most=None if most is None else most // number)
    return [
        replace(
            job,
            group=f"{job.group}/{by}/{n} of {number}",
            share=share,
            shard=Shard(columns, n, number),
        )
        for n in range(number)
    ]


def advance_part(job: AdvanceJob) -> AdvanceResult | ShardResult:
    """Advance a job, or a shard of one."""
    if job.shard is None:
        return advance(job)
    ran = run_dataflow(job)
    if isinstance(ran, MillpondError):
        return ShardResult(None, fail({0: ran}))
    missing = {sink.plan.key for sink in job.sinks} - ran.changes.keys()
    if missing or ran.failures:
        errors = [*ran.failures.values(), *(ran.held.flow.failed[key] for key in missing)]
        return ShardResult(None, fail(dict(enumerate(errors))))
    _remove_left(job)
    try:
        files = {key: _write(job.store, table) for key, table in ran.changes.items()}
    except MillpondError as error:
        return ShardResult(None, AdvanceResult(unwritten=error))
    _left.setdefault(job.group, []).extend((job.now, file.path) for file in files.values())
    return ShardResult(files, ran.keep(every=True))


def finish(whole: tuple[AdvanceJob, Sequence[AdvanceResult | ShardResult]]) -> AdvanceResult:
    """Put the changes of a job's shards together, and write them."""
    job, parts = whole
    shards = [part for part in parts if isinstance(part, ShardResult)]
    given = [part.changes for part in shards if part.changes is not None]
    try:
        unwritten = [
            part.figures.unwritten for part in shards if part.figures.unwritten is not None
        ]
        if unwritten:
            return AdvanceResult(unwritten=unwritten[0])
        if len(given) < len(parts):
            return replace(advance(job), is_whole=True)
        merged = {}
        for sink in job.sinks:
            files = [changes[sink.plan.key] for changes in given]
            if sink.plan.key not in merged:
                merged[sink.plan.key] = merge_changes(
                    [open_arrow(file.path, file.checksum) for file in files]
                )
        result = write_changes(job, {s.stream_id: merged[s.plan.key] for s in job.sinks})
    finally:
        _remove([file.path for changes in given for file in changes.values()])
    if result.unwritten is not None:
        return result
    return _add_figures(result, [part.figures for part in shards])


#: By group, the files that this process wrote, each with the epoch its job was planned in. Whoever
#: put them together has removed them on its own machine alone.
_left: dict[str, list[tuple[int, Path]]] = {}


def _remove_left(job: AdvanceJob) -> None:
    """Remove the files of a group's earlier rounds; a round may have several jobs of the group."""
    left = _left.pop(job.group, [])
    _remove(file for epoch, file in left if epoch < job.now)
    if rest := [one for one in left if one[0] >= job.now]:
        _left[job.group] = rest


def _write(store: str, changes: pa.Table) -> FileMeta:
    folder = Path(store) / SCRATCH
    make_directory(folder)
    path = folder / f"{uuid.uuid4().hex}.arrow"
    with translate_write_errors(path):
        written = write_bytes(path, changes, sync=False)
    publish_scratch(path)
    return written


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
        withdraw_scratch(file)


def _add_figures(result: AdvanceResult, figures: Sequence[AdvanceResult]) -> AdvanceResult:
    """Add up what the shards did, by operator."""
    given: dict[str, int] = {}
    releases: dict[str, list[ReleaseFigures]] = {}
    state: dict[str, list[OperatorState]] = {}
    work: dict[str, list[OperatorWork]] = {}
    for one in figures:
        for key, rows in one.given.items():
            given[key] = given.get(key, 0) + rows
        for key, some in one.releases.items():
            releases.setdefault(key, []).extend(some)
        for key, kept in one.state.items():
            state.setdefault(key, []).append(kept)
        for key, did in one.work.items():
            work.setdefault(key, []).append(did)
    return replace(
        result,
        given=given,
        releases=releases,
        state={key: _add_state(some) for key, some in state.items()},
        work={key: _add_work(some) for key, some in work.items()},
        queues=max(
            (one.queues for one in figures), key=lambda q: q.most_bytes, default=QueueFigures()
        ),
        seconds=sum(one.seconds for one in figures),
    )


def _add_state(kept: Sequence[OperatorState]) -> OperatorState:
    return OperatorState(
        max(one.name for one in kept),
        sum(one.rows for one in kept),
        sum(one.memory for one in kept),
        sum(one.files for one in kept),
    )


def _add_work(did: Iterable[OperatorWork]) -> OperatorWork:
    total = OperatorWork()
    for one in did:
        total.runs += one.runs
        total.seconds += one.seconds
        total.taken += one.taken
        total.given += one.given
        total.bytes_taken += one.bytes_taken
        total.bytes_given += one.bytes_given
    return total
