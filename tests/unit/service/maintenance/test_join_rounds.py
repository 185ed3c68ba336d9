"""Rounds of shared joins: what is looked for next, how far back, and in which segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.service.versions import segment, stream, version_of

from millpond.model.time import BEGINNING
from millpond.runtime.join_tasks import ProbeJob
from millpond.service.maintenance.join_rounds import (
    JoinSettings,
    Round,
    find_round_of_elements,
    find_round_of_uses,
    jobs_of,
    needed_from,
)
from millpond.state.id_map import IdMap
from millpond.state.join_state import JoinCore, Joins, JoinUse
from millpond.state.version import LeafRef, SegmentRef, StreamClock, StreamState, Version

CORE = JoinCore(5, "a.k = b.k", b"", (1, 2))
USES = (
    JoinUse(10, 5, (0, 1), (10, 20), 0),
    JoinUse(11, 5, (1, 0), (30, 5), 1),
)


def version(
    core: JoinCore,
    uses: tuple[JoinUse, ...] = USES,
    *,
    seen: tuple[int, int] = (4, 6),
    high: tuple[int | None, int | None] = (100, 90),
    segments: Mapping[int, tuple[SegmentRef, ...]] | None = None,
) -> Version:
    """A version in which two streams have come so far, and a core has uses."""
    held = segments or {}
    states = {
        id: StreamState(data=held.get(id, ()), clock=StreamClock(high=at, next_seq=count))
        for id, count, at in zip((1, 2), seen, high, strict=True)
    }
    joins = Joins(
        {core.id: core},
        uses=IdMap[JoinUse]().with_changes({use.query_id: use for use in uses}),
        members={core.id: IdMap[int]().with_changes({use.number: use.query_id for use in uses})},
    )
    leaves = {
        use.query_id: tuple(LeafRef(use.query_id, n, n + 1, 7 + n) for n in (0, 1)) for use in uses
    }
    return version_of(
        stream(1, "a"), stream(2, "b"), epoch=9, states=states, leaves=leaves, joins=joins
    )


def of(core: JoinCore, **others: Any) -> Round:
    at = version(core, **others)
    found = find_round_of_uses(at, core) or find_round_of_elements(at, core)
    assert found is not None
    return found


def test_the_first_uses_look_at_everything() -> None:
    due = of(replace(CORE, next_use=2))
    assert (due.low, due.upto, due.old, due.limit, due.epoch) == (0, 2, (0, 0), (4, 6), 9)
    assert [use.query_id for use in due.uses] == [10, 11]
    assert due.spans == (30, 20)


def test_new_uses_look_at_what_was_covered_before_them() -> None:
    core = replace(CORE, next_use=2, upto=1, covered=(3, 5), epoch=6)
    due = of(core)
    assert (due.low, due.upto, due.old, due.limit, due.epoch) == (1, 2, (0, 0), (3, 5), 6)
    assert [use.query_id for use in due.uses] == [11]


def test_then_all_uses_look_at_what_is_new() -> None:
    core = replace(CORE, next_use=2, upto=2, covered=(3, 6), epoch=6)
    due = of(core)
    assert (due.low, due.upto, due.old, due.limit, due.epoch) == (0, 2, (3, 6), (4, 6), 9)
    core = replace(core, covered=(4, 6))
    assert find_round_of_uses(version(core), core) is None
    assert find_round_of_elements(version(core), core) is None


def test_what_is_new_waits_for_no_new_use() -> None:
    core = replace(CORE, next_use=2, upto=1, covered=(3, 5), epoch=6)
    due = find_round_of_elements(version(core), core)
    assert due is not None
    assert (due.low, due.upto, due.old, due.limit, due.epoch) == (0, 1, (3, 5), (4, 6), 9)
    assert due.since == BEGINNING
    # The first use of all looks at what there is, old and new.
    assert find_round_of_elements(version(CORE), CORE) is None


def test_without_old_elements_the_new_ones_are_looked_at_as_far_back_as_windows_reach() -> None:
    core = replace(CORE, next_use=2, upto=2, covered=(0, 0), epoch=1)
    due = of(core)
    assert (due.low, due.upto, due.old, due.since) == (0, 2, (0, 0), 70)


def test_one_window_without_an_end_has_partners_for_ever() -> None:
    forever = (USES[0], replace(USES[1], spans=(None, 5)))
    due = of(replace(CORE, next_use=2), uses=forever)
    assert due.spans == (None, 20)
    assert due.since == BEGINNING


@pytest.mark.parametrize(
    ("high", "spans", "instant"),
    [
        ((100, 90), (10, 20), 70),
        ((100, 90), (50, 20), 50),
        ((100, None), (10, 20), BEGINNING),
        ((100, 90), (10, None), BEGINNING),
        ((BEGINNING + 3, 90), (10, 20), BEGINNING),
    ],
)
def test_pairs_are_needed_as_far_back_as_windows_reach(
    high: tuple[int | None, int | None], spans: tuple[int | None, int | None], instant: int
) -> None:
    use = replace(USES[0], spans=spans)
    assert needed_from(version(CORE, high=high), CORE, use) == instant


def test_the_use_that_reaches_furthest_counts() -> None:
    assert of(replace(CORE, next_use=2)).since == 70
    assert of(replace(CORE, next_use=2), uses=USES[:1]).since == 70
    assert of(replace(CORE, next_use=2), uses=(replace(USES[1], number=0),)).since == 70
    assert (
        of(replace(CORE, next_use=2), uses=(replace(USES[1], number=0, spans=(5, 5)),)).since == 85
    )


SEGMENTS = {
    1: (
        segment(1, 0, 40, id=1, epoch=3),
        segment(1, 50, 60, id=2, epoch=4),
        segment(1, 100, 100, id=3, epoch=8),
    ),
    2: (
        segment(2, 0, 60, id=4, epoch=3),
        segment(2, 70, 80, id=5, epoch=6),
        segment(2, 81, 90, id=6, epoch=6),
    ),
}


def jobs(core: JoinCore, settings: JoinSettings | None = None, **others: Any) -> list[ProbeJob]:
    at = version(core, **{"segments": SEGMENTS, **others})
    due = find_round_of_uses(at, core) or find_round_of_elements(at, core)
    assert due is not None
    plan: Any = None
    return jobs_of(at, core, due, plan, settings or JoinSettings(), {}, "store")


def parts(job: ProbeJob) -> list[list[int]]:
    return [[part.segment_id for part in own] for own in job.leaves]


def test_a_first_look_is_at_all_that_windows_reach() -> None:
    (job, other) = jobs(replace(CORE, next_use=2))
    assert parts(job) == [[3], [5, 6]]  # from 70 on
    assert (job.shard, other.shard, job.shards) == (0, 1, 2)
    assert job.uses == ((0, (7, 8)), (1, (8, 7)))
    assert not any(part.is_old for own in job.leaves for part in own)


def test_new_elements_meet_the_old_ones_that_can_be_with_them() -> None:
    core = replace(CORE, next_use=2, upto=2, covered=(3, 6), epoch=6)
    (job,) = jobs(core, JoinSettings(shards=1))
    # The new element of `a` is at 100; one of `b` lives for 20, so from 81 on it can be with it.
    assert parts(job) == [[3], [6]]
    assert [[part.is_old for part in own] for own in job.leaves] == [[False], [True]]
    assert job.old == (3, 6)


def test_without_elements_or_uses_there_are_no_jobs() -> None:
    core = replace(CORE, next_use=2)
    assert jobs(core, segments={1: SEGMENTS[1]}) == []
    assert jobs(replace(core, upto=1, next_use=2), uses=USES[:1]) == []
