"""Steps that are cut into slices: what waits, what is given, and what failures do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import BEFORE, SCHEDULINGS, TIGHT, Ticks, plan_query

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.engine.dataflow.inputs import GivenInputs, find_end
from millpond.engine.dataflow.scheduling.policies import NAMES
from millpond.engine.dataflow.step import Scheduling

#: A thousand seconds with two elements each.
AT = np.repeat(np.arange(1_000), 2) * 1_000_000
LAST = int(AT[-1])
#: With so much memory slices have some dozen rows.
MEMORY = 1 << 16


@pytest.fixture(scope="module")
def pond() -> OraclePond:
    pond = OraclePond()
    for name in "st":
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts")
    return pond


def make_feed(k: Any = None) -> pa.Table:
    places = np.arange(len(AT))
    return pa.table(
        {"__ts": AT, "__seq": places, "k": places % 50 if k is None else k, "v": places}
    )


def advance(flow: Dataflow, scheduling: Scheduling | None, **feeds: pa.Table) -> Any:
    if scheduling is not None:
        flow.schedule(scheduling)
    few = 1 << 40 if scheduling is None else 0
    return flow.advance(GivenInputs(feeds, few), LAST)


LINE = "SELECT k, count(*) AS n, sum(v) AS t FROM s [RANGE 30 SECONDS] WHERE v % 3 = 0 GROUP BY k"
JOIN = (
    "SELECT s.k, t.v FROM s [RANGE 20 SECONDS], t [RANGE 20 SECONDS]"
    " WHERE s.k = t.k AND s.v % 2 = 0"
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", [LINE, JOIN], ids=["line", "join"])
def test_any_policy_gives_the_changes_of_a_whole_step_within_the_memory(
    pond: OraclePond, text: str, name: str
) -> None:
    plan, feed = plan_query(pond.world, text), make_feed()
    whole = Dataflow(plan, since=BEFORE)
    expected = advance(whole, None, s=feed, t=feed)
    assert whole.queues.slices == 0
    flow = Dataflow(plan, since=BEFORE)
    found = advance(flow, Scheduling(name, memory=MEMORY, clock=Ticks()), s=feed, t=feed)
    assert found == expected
    assert flow.position == LAST
    queues = flow.queues
    assert queues.slices > (2 if name == "fifo" else 20)
    assert 0 < queues.most_bytes <= MEMORY + 2 * queues.largest
    assert queues.most_slices > (name in ("greedy", "chain"))
    work = flow.list_work()
    assert all(one.runs == queues.slices for one in work.values())
    rows = {key: (one.taken, one.given) for key, one in whole.list_work().items()}
    assert {key: (one.taken, one.given) for key, one in work.items()} == rows
    assert flow.list_work() == {}


def test_what_may_wait_is_bounded_where_output_is_larger_than_input(pond: OraclePond) -> None:
    """Each element is joined with hundreds: as slices give more than they are, they get smaller."""
    plan = plan_query(
        pond.world,
        "SELECT DISTINCT a.v + b.v AS w FROM s [RANGE 300 SECONDS] a, s [RANGE 300 SECONDS] b"
        " WHERE a.k = b.k",
    )
    feed = make_feed(np.arange(len(AT)) % 2).slice(0, 400)
    for name in ("round robin", "chain"):
        flow = Dataflow(plan, since=BEFORE)
        advance(flow, Scheduling(name, memory=MEMORY, clock=Ticks()), s=feed)
        assert flow.queues.most_bytes <= MEMORY + 2 * flow.queues.largest


@pytest.mark.parametrize("name", NAMES)
def test_slices_stay_large_behind_one_in_which_much_expires(pond: OraclePond, name: str) -> None:
    """Hardly an element comes in an hour, but a window of them goes: that is soon over."""
    plan = plan_query(pond.world, "SELECT k, count(*) AS n FROM s [RANGE 300 SECONDS] GROUP BY k")
    counts = []
    for gap in (0, 3_600):
        stamps = AT + np.where(np.arange(len(AT)) < 700, 0, gap * 1_000_000)
        feed = make_feed().set_column(0, "__ts", pa.array(stamps))
        flow = Dataflow(plan, since=BEFORE)
        flow.schedule(Scheduling(name, memory=MEMORY, clock=Ticks()))
        flow.advance(GivenInputs({"s": feed}, 0), int(stamps[-1]))
        assert flow.queues.most_bytes <= MEMORY + 2 * flow.queues.largest
        counts.append(flow.queues.slices)
    assert counts[1] < 2 * counts[0] + 20


def test_a_row_that_fails_before_changes_are_given_does_not_count(pond: OraclePond) -> None:
    """The row leaves before `since`; the slices cannot know that, the whole step can."""
    places = np.arange(len(AT))
    feed = make_feed(np.where(places == 100, 0, places + 1))
    failing = "CASE WHEN k = 0 THEN ('x' || v)::BIGINT ELSE v END"
    text = f"SELECT sum({failing}) AS q FROM s [RANGE 5 SECONDS]"
    plan = plan_query(pond.world, text)
    for scheduling in (None, replace(SCHEDULINGS[3], clock=Ticks())):
        flow = Dataflow(plan, since=LAST - 10_000_000)
        changes = advance(flow, scheduling, s=feed)
        assert not flow.failed
        assert flow.queues.slices <= 1
        if scheduling is None:
            expected = changes
    assert changes == expected


@pytest.mark.parametrize("scheduling", SCHEDULINGS, ids=lambda one: f"{one.policy}-{one.memory}")
def test_a_failure_stops_the_plans_that_have_the_node_and_no_other(
    pond: OraclePond, scheduling: Scheduling
) -> None:
    failing = "SELECT CASE WHEN v = {at} THEN ('x' || v)::BIGINT ELSE v END AS v FROM s"
    both = "SELECT a.v FROM ({one}) a, ({other}) b WHERE a.v = b.v"
    one, other = failing.format(at=90), failing.format(at=40)
    bad = plan_query(pond.world, both.format(one=one, other=other))
    good = plan_query(pond.world, LINE)
    flow, alone = Dataflow(bad, good, since=BEFORE), Dataflow(good, since=BEFORE)
    feed = make_feed().slice(0, 100)
    changes = advance(flow, scheduling, s=feed)
    assert changes == advance(alone, None, s=feed)
    # Of the failures below a node, that of the first input counts, though it comes later.
    assert list(flow.failed) == [bad.key]
    assert "x90" in (flow.failed[bad.key].detail or "")
    assert flow.sinks == (good.key,)


def test_slices_end_where_the_rows_before_are_not_too_large() -> None:
    some = [(np.array([1, 1, 2, 5]), 10.0), (np.array([2, 3, 9]), 1.0)]
    assert find_end(some, 20, 100) == 20
    assert find_end(some, 20, 31) == 2
    assert find_end(some, 20, 32) == 4
    assert find_end(some, 20, 0) == 1  # one instant, however large
    assert GivenInputs({"s": make_feed()}, few=10**6).find_end(BEFORE, LAST, 0) == LAST
    assert TIGHT < MEMORY
