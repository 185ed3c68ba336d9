"""Rounds of a shared join: which tuples it looks for next, and in which segments.

In one kind of round, uses that came since probe what was covered before them (new queries probe old
data). In the other, everything that arrived since probes and is probed, for all uses there are (new
data probes old data, and what is new of the other streams). Functions of a version alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millpond.catalog.options import OPTIONS
from millpond.engine.eddy.routing import Account
from millpond.engine.joins.plan import JoinPlan
from millpond.model.time import BEGINNING
from millpond.runtime.join_segments import SegmentPart
from millpond.runtime.join_tasks import ProbeJob
from millpond.state.join_state import JoinCore, JoinUse
from millpond.state.version import SegmentRef, Version


@dataclass(frozen=True)
class JoinSettings:
    """How joins are run; none of it changes an answer.

    Attributes:
        shards: Tasks a core is probed by; its SteMs' runs are partitioned by the key's hash.
        routing: The eddy's policy.
        max_pairs: Pairs one task may find in one batch; of a query whose own join finds more none
            are stored.
        max_cores: Joins that are kept up to date; of more, those with the most queries. The others
            are joined at invocation.
    """

    shards: int = OPTIONS["shards"].default
    routing: str = OPTIONS["routing"].default
    max_pairs: int = OPTIONS["max_pairs"].default
    max_cores: int = OPTIONS["max_cores"].default


@dataclass(frozen=True)
class Round:
    """The tuples to look for in one round: for some uses of a core, over some elements.

    Attributes:
        low, upto: Uses whose numbers are in [low, upto).
        old: For each stream the arrival number from which on elements are new; tuples of old ones
            alone are not looked for.
        limit: For each stream the arrival number up to which elements are looked at.
        epoch: The epoch up to which they were committed.
        since: Tuples with a constituent older than this instant, in µs since 1970 UTC, are not
            looked for.
        spans: For each stream how long, in µs, an element can have partners; None: for ever.
        uses: The uses.
    """

    low: int
    upto: int
    old: tuple[int, ...]
    limit: tuple[int, ...]
    epoch: int
    since: int
    spans: tuple[int | None, ...]
    uses: tuple[JoinUse, ...]


def find_round_of_uses(version: Version, core: JoinCore) -> Round | None:
    """The round that brings a core's new uses to where the others are; None without new uses.

    The first uses of a core look at all there is.
    """
    if core.upto == core.next_use:
        return None
    positions = _positions(version, core)
    limit, epoch = (core.covered, core.epoch) if core.upto else (positions, version.epoch)
    old = (0,) * len(positions)
    return _round(version, core, (core.upto, core.next_use), old, limit, epoch)


def find_round_of_elements(version: Version, core: JoinCore) -> Round | None:
    """The round in which a core's uses look at what has come since; None if nothing has."""
    positions = _positions(version, core)
    if not core.upto or positions == core.covered:
        return None
    return _round(version, core, (0, core.upto), core.covered, positions, version.epoch)


def _positions(version: Version, core: JoinCore) -> tuple[int, ...]:
    return tuple(version.clock(id).next_seq for id in core.stream_ids)


def _round(
    version: Version,
    core: JoinCore,
    numbers: tuple[int, int],
    old: tuple[int, ...],
    limit: tuple[int, ...],
    epoch: int,
) -> Round:
    """A round of the uses whose numbers are in [low, upto)."""
    low, upto = numbers
    members = version.joins.users(core.id)
    uses = tuple(
        use
        for number, query_id in members.items()
        if low <= number < upto and (use := version.joins.uses.get(query_id)) is not None
    )
    spans = tuple(
        None if None in own else max(s for s in own if s is not None)
        for own in zip(*(use.spans for use in uses), strict=True)
    )
    # With old elements, whatever is near enough to a new one is looked at.
    needed = () if any(old) else (needed_from(version, core, use) for use in uses)
    since = min(needed, default=BEGINNING)
    return Round(low, upto, old, limit, epoch, since, spans, uses)


def needed_from(version: Version, core: JoinCore, use: JoinUse) -> int:
    """From which instant on a use needs pairs to be answered as of now."""
    instant: int | None = None
    for stream_id, span in zip(core.stream_ids, use.spans, strict=True):
        high = version.clock(stream_id).high
        if span is None or high is None:
            return BEGINNING
        instant = high - span if instant is None else min(instant, high - span)
    return BEGINNING if instant is None else max(instant, BEGINNING)


def jobs_of(
    version: Version,
    core: JoinCore,
    due: Round,
    plan: JoinPlan,
    settings: JoinSettings,
    accounts: Mapping[str, Account],
    store: str,
) -> list[ProbeJob]:
    """The jobs of a round, one a shard; none where nothing can be found.

    Args:
        version: A version that is pinned until the jobs are done.
        core: The core.
        due: The round.
        plan: The core's plan.
        settings: How joins are run.
        accounts: What the eddies have learnt of the core's modules.
        store: The store's directory.
    """
    if not due.uses or not all(version.segments(id) for id in core.stream_ids):
        return []
    uses = tuple((use.number, _slots(version, use)) for use in due.uses)
    leaves = tuple(
        tuple(_part(version, core, s, due) for s in segments)
        for segments in _find_segments_near(version, core, due)
    )
    return [
        ProbeJob(
            store,
            core.id,
            plan,
            shard,
            settings.shards,
            leaves,
            due.old,
            due.limit,
            uses,
            due.spans,
            settings.max_pairs,
            settings.routing,
            dict(accounts),
        )
        for shard in range(settings.shards)
    ]


def _find_segments_near(version: Version, core: JoinCore, due: Round) -> list[list[SegmentRef]]:
    """For each stream the segments that can have a part in what is looked for."""
    every = [version.segments(id) for id in core.stream_ids]
    if not any(due.old):
        return [[s for s in own if s.max_ts >= due.since] for own in every]
    fresh = []
    for leaf, own in enumerate(every):
        if new := [s for s in own if s.epoch > core.epoch]:
            fresh.append((leaf, new[0].min_ts, max(s.max_ts for s in new)))
    return [
        [
            segment
            for segment in own
            if len(every) > 2
            or segment.epoch > core.epoch
            or _meets(segment, leaf, fresh, due.spans)
        ]
        for leaf, own in enumerate(every)
    ]


def _meets(
    segment: SegmentRef,
    leaf: int,
    fresh: Sequence[tuple[int, int, int]],
    spans: tuple[int | None, ...],
) -> bool:
    """Whether an old segment may have elements in a window together with new ones.

    Args:
        segment: The segment.
        leaf: Its stream's number in the join.
        fresh: The streams that have new elements, and the least and greatest of their timestamps.
        spans: As of the round.
    """
    behind = spans[leaf]
    for start, first, last in fresh:
        if start == leaf:
            continue
        ahead = spans[start]
        is_after = behind is None or segment.max_ts > first - behind
        if is_after and (ahead is None or segment.min_ts < last + ahead):
            return True
    return False


def _part(version: Version, core: JoinCore, segment: SegmentRef, due: Round) -> SegmentPart:
    return SegmentPart(
        segment.id,
        segment.path,
        segment.checksum,
        segment.seq_runs,
        segment.min_ts,
        segment.max_ts,
        bool(any(due.old)) and segment.epoch <= core.epoch,
        tuple(
            (run.key, run.shard, run.shards, run.path, run.checksum)
            for run in version.joins.runs(segment.id)
        ),
        tuple((m.low, m.upto, m.path, m.checksum) for m in version.matches(segment.id)),
        version.added_columns(segment.stream_id),
    )


def _slots(version: Version, use: JoinUse) -> tuple[int | None, ...]:
    slots = [leaf.slot for leaf in version.leaves(use.query_id)]
    return tuple(slots[leaf] for leaf in use.leaves)
