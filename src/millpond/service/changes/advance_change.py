"""The epoch that holds what a round of the advancer computed: changes, and new positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millpond.catalog.objects import RelationDef
from millpond.planner.approximate.reductions import measure_given_up
from millpond.runtime.advance_job import AdvanceJob, AdvanceResult
from millpond.runtime.batch_tasks import BuiltSegment
from millpond.service.changes.advance_jobs import Runnable
from millpond.service.changes.giving_way.reducing import (
    begin_period,
    describe_period,
    reduction_of,
)
from millpond.service.changes.shared_logs import count_changes
from millpond.service.ingest.actions import Step
from millpond.service.ingest.pressure import REDUCE
from millpond.service.ingest.relations import Relations
from millpond.service.ingest.segment_refs import match_ref, segment_ref
from millpond.state.epoch.epoch_change import EpochChange, new_segment_id
from millpond.state.version import WAITING, MatchRef, SegmentRef, StreamClock, Version

#: Derivations that were advanced together, the job that did it, and what it gave.
Gained = tuple[list[Runnable], AdvanceJob, AdvanceResult]


def make_change(
    now: Version, gained: Sequence[Gained], relations: Relations
) -> tuple[EpochChange, list[AdvanceJob]]:
    """Make the epoch of what jobs gave, as of the version it is committed to.

    INV-BACKDATED-1: of an update of a non-retroactive relation and the delivery of the instants
    it speaks of, whichever commits second sees the first. An update is refused or dated anew
    (`Relations`); a job that did not see an update is planned again.

    Returns:
        The epoch, and the jobs that have to be planned again: nothing of theirs is in it.
    """
    overtaken: list[AdvanceJob] = []
    segments: list[SegmentRef] = []
    matches: list[MatchRef] = []
    clocks: dict[int, StreamClock] = {}
    outdated: list[int] = []
    for members, job, result in gained:
        if _is_overtaken(now, members, job, relations):
            overtaken.append(job)
            continue
        outdated += _move_positions(now, members, job, result, clocks)
        for id, logged in result.logged.items():
            if id in clocks:
                count_changes(now, logged, clocks)
        for piece in result.built:
            if piece.stream_id not in clocks:
                continue  # dropped meanwhile
            if piece.matches is not None:
                owner = new_segment_id(len(segments))
                matches.append(match_ref(owner, 0, piece.upto, piece.matches))
            is_shared = piece.stream_id in result.logged
            segments.append(_add_segment(piece, clocks, is_shared))
    switched = [
        begin_period(now, now.streams[d.id], item.clock.position, d.reduction)
        for members, _, _ in gained
        for item in members
        if (d := item.derivation).leaves is not None and d.id in clocks
    ]
    change = EpochChange(
        kind="advance",
        replace=switched,
        segments=segments,
        matches=matches,
        clocks=clocks,
        expired=outdated,
    )
    return change, overtaken


def list_switches(version: Version, gained: Sequence[Gained], fill: float) -> list[Step]:
    """List the steps to record for queries that are reduced otherwise from these changes on."""
    steps = []
    for members, _, result in gained:
        for item in members:
            derivation = item.derivation
            stream = version.streams.get(derivation.id)
            if derivation.leaves is None or stream is None or derivation.id in result.failures:
                continue
            before = reduction_of(stream, version.query_of(stream))
            after, name = derivation.reduction, version.name_of(stream)
            why = describe_period(name, before, after, item.clock.position)
            reduced = derivation.reduced
            whole = derivation.bound if reduced is None else reduced.whole
            shares = measure_given_up(before, whole), measure_given_up(after, whole)
            steps.append((REDUCE, name, *shares, fill, why))
    return steps


def _move_positions(
    now: Version,
    members: Sequence[Runnable],
    job: AdvanceJob,
    result: AdvanceResult,
    clocks: dict[int, StreamClock],
) -> list[int]:
    """Put the clocks that a job moves into `clocks`; return the segments that it makes outdated."""
    outdated: list[int] = []
    for item in members:
        id = item.derivation.id
        if id in result.failures or id not in now.streams:
            continue
        if now.clock(id).position == item.clock.position:
            upto = result.reached.get(id, job.upto)
            clocks[id] = replace(now.clock(id), heartbeat=upto + 1, relations_epoch=job.now)
            if id not in result.unchanged:
                outdated += [s.id for s in now.segments(id, WAITING)]
    return outdated


def _add_segment(
    piece: BuiltSegment, clocks: dict[int, StreamClock], is_shared: bool
) -> SegmentRef:
    """Describe a segment of changes, and count its changes in its stream's clock.

    Args:
        piece: The segment.
        clocks: By stream, the clocks that move; the segment's stream is among them.
        is_shared: Whether its stream is a shared log: then the numbers are those of its members.
    """
    clock = clocks[piece.stream_id]
    if piece.kind != WAITING:
        clocks[piece.stream_id] = replace(
            clock,
            high=max(piece.max_ts, clock.high or piece.max_ts),
            next_seq=clock.next_seq + piece.file.rows,
        )
    return segment_ref(piece, ((0, 0 if is_shared else clock.next_seq),))


def _is_overtaken(
    now: Version, members: Sequence[Runnable], job: AdvanceJob, relations: Relations
) -> bool:
    """Whether a relation was told, after a job was planned, of an instant that the job delivers.

    Of non-retroactive relations alone: an update of another one counts from its commit on.
    """
    read = {id for item in members for id in item.derivation.relations}
    return any(
        isinstance(relation := now.relations.get(id), RelationDef)
        and relation.non_retroactive
        and relations.was_told(now, id, job.now, job.upto)
        for id in read
    )
