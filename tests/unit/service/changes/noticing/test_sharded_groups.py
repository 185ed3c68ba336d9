"""When a group of derivations is divided among workers, and when it is made whole again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import plan_query

from millpond.planner.dataflow.plan import Plan
from millpond.runtime.advance_job import AdvanceJob, AdvanceResult, Sink, StateShare
from millpond.service.changes.noticing.sharded_groups import ShardedGroups

LONG, SHORT = AdvanceResult(seconds=0.5), AdvanceResult(seconds=0.01)


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    pond = OraclePond()
    pond.execute("CREATE STREAM s (ts TIMESTAMP, k VARCHAR, v INTEGER) TIMESTAMP BY ts")
    texts = {
        "by k": "SELECT k, count(*) AS n FROM s [RANGE 5 SECONDS] GROUP BY k",
        "by v": "SELECT v, count(*) AS n FROM s [RANGE 5 SECONDS] GROUP BY v",
        "by both": "SELECT k, v, count(*) AS n FROM s [RANGE 5 SECONDS] GROUP BY k, v",
        "of all": "SELECT count(*) AS n FROM s [RANGE 5 SECONDS]",
    }
    return {name: plan_query(pond.world, text) for name, text in texts.items()}


def make_job(*plans: Plan, group: str = "g", most: int | None = None) -> AdvanceJob:
    sinks = tuple(Sink(number, plan, None) for number, plan in enumerate(plans))
    share = StateShare(most=most)
    return AdvanceJob("store", "life", group, 0, 0, 9, 0, {}, {}, {}, sinks, share=share)


def test_two_long_steps_divide_and_many_short_ones_make_whole(plans: dict[str, Plan]) -> None:
    groups, job = ShardedGroups(lambda: 4), make_job(plans["by k"])
    for result in (LONG, SHORT, LONG):
        groups.note(job, result, 1)
        assert groups.cut([job]) == [[job]]
    groups.note(job, LONG, 1)
    [shards] = groups.cut([job])
    assert [shard.shard and shard.shard.number for shard in shards] == [0, 1, 2, 3]
    assert len({shard.group for shard in shards}) == 4
    for _ in range(63):
        groups.note(job, SHORT, 1)
    groups.note(job, LONG, 1)
    assert len(groups.cut([job])[0]) == 4
    for _ in range(64):
        groups.note(job, SHORT, 1)
    assert groups.cut([job]) == [[job]]


@pytest.mark.parametrize(
    ("name", "workers", "jobs"), [("of all", 4, 1), ("by k", 1, 1), ("by k", 4, 4)]
)
def test_what_cannot_be_divided_or_gains_nothing_stays_whole(
    plans: dict[str, Plan], name: str, workers: int, jobs: int
) -> None:
    groups, job = ShardedGroups(lambda: workers), make_job(plans[name])
    for _ in range(9):
        groups.note(job, LONG, jobs)
    assert groups.cut([job]) == [[job]]


def test_steps_that_are_long_because_of_their_changes_are_not_divided(
    plans: dict[str, Plan],
) -> None:
    """One task puts the changes together, whatever the number of shards."""
    many: Any = SimpleNamespace(file=SimpleNamespace(rows=500_000))
    groups, job = ShardedGroups(lambda: 2), make_job(plans["by k"])
    for _ in range(9):
        groups.note(job, replace(LONG, built=(many,)), 1)
    assert groups.cut([job]) == [[job]]


def test_other_plans_are_divided_by_what_all_of_them_have(plans: dict[str, Plan]) -> None:
    groups = ShardedGroups(lambda: 2)
    job = make_job(plans["by both"])
    for _ in range(2):
        groups.note(job, LONG, 1)
    assert [s.shard.columns for s in groups.cut([job])[0] if s.shard] == [{"s": "k"}] * 2
    more = make_job(plans["by both"], plans["by v"])
    named = groups.cut([more])[0]
    assert [s.shard.columns for s in named if s.shard] == [{"s": "v"}] * 2
    # A worker's state is of one division.
    assert not {s.group for s in named} & {s.group for s in groups.cut([job])[0]}
    assert len(groups.cut([make_job(*plans.values())])[0]) == 1


def test_what_shards_could_not_do_is_done_whole_from_then_on(plans: dict[str, Plan]) -> None:
    groups, job = ShardedGroups(lambda: 2), make_job(plans["by k"])
    for _ in range(2):
        groups.note(job, LONG, 1)
    assert len(groups.cut([job])[0]) == 2
    groups.note(job, replace(LONG, is_whole=True), 1)
    for _ in range(3):
        groups.note(job, LONG, 1)
    assert groups.cut([job]) == [[job]]


def test_shared_logs_and_looks_are_not_divided_and_state_is_shared_out(
    plans: dict[str, Plan],
) -> None:
    groups, job = ShardedGroups(lambda: 2), make_job(plans["by k"], most=1_001)
    groups.always = 3
    assert [shard.share.most for shard in groups.cut([job])[0]] == [333] * 3
    (sink,) = job.sinks
    other: Any = SimpleNamespace()
    for number, held in enumerate((replace(sink, members=other), replace(sink, look=other))):
        whole = replace(job, group=f"{number}", sinks=(held,))
        assert groups.cut([whole]) == [[whole]]
