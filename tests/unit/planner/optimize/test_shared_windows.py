"""Queries over windows of other lengths and columns share what is kept, and differ in no change."""

from __future__ import annotations

from random import Random

import pyarrow.compute as pc
import pytest
from tests.oracle.changes import OracleChange
from tests.oracle.oracle_pond import OraclePond
from tests.oracle.world import World
from tests.tools.changes_play import as_changes, check_changes, feeds, plan_query, run

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.operators.group_by import Grouping
from millpond.operators.structures.element_runs import ElementRun, Places
from millpond.operators.windows.shared_window import KeepingElements
from millpond.planner.dataflow.plan import Plan

SECOND = 1_000_000
LAST = 40


@pytest.fixture(scope="module")
def world() -> World:
    pond = OraclePond()
    pond.execute(
        "CREATE STREAM s (at TIMESTAMP, k VARCHAR, v INTEGER, w DOUBLE, x VARCHAR) "
        "TIMESTAMP BY at DELAY 0 SECONDS"
    )
    rows = []
    for i in range(120):
        rows.append(
            {
                "at": f"1970-01-01 00:00:{i * LAST // 150:02d}",
                "k": (None, "a", "b", "c")[(i * 7) % 4],
                "v": None if i % 7 == 3 else (i * 31) % 13 - 4,
                "w": None if i % 11 == 5 else (i * 37 % 23) / 4,
                "x": f"x{i % 5}",
            }
        )
    pond.ingest("s", rows)
    return pond.world


WINDOWS = (
    "RANGE 3 SECONDS",
    "RANGE 11 SECONDS",
    "RANGE 9 SECONDS SLIDE 4 SECONDS",
    "RANGE 5 SECONDS SLIDE 7 SECONDS",
    "NOW",
)
SELECTS = (
    "SELECT k, sum(v) AS a FROM s [{}] GROUP BY k",
    "SELECT k, max(w) AS a, count(*) AS n FROM s [{}] GROUP BY k",
    "SELECT k, min(x) AS a FROM s [{}] GROUP BY k HAVING count(v) > 1",
    "SELECT count(*) AS n FROM s [{}]",
    "SELECT upper(x) AS u, sum(v + 1) FILTER (w > 2) AS a FROM s [{}] GROUP BY upper(x)",
    "SELECT v, x FROM s [{}]",
    "SELECT k FROM s [{}] EXCEPT ALL SELECT x FROM s [RANGE 4 SECONDS]",
    "SELECT r.k AS j, sum(r.v) AS a FROM s [{}] AS r (at, k, v, w, x) GROUP BY r.k",
)
PERIOD = "BEGIN NOW - INTERVAL 8 SECONDS END NOW - INTERVAL 2 SECONDS"
TEXTS = [select.format(window) for window in WINDOWS for select in SELECTS]
TEXTS += [f"{select.replace(' [{}]', '')} {PERIOD}" for select in SELECTS[:3]]


@pytest.mark.parametrize("text", TEXTS)
def test_windows_over_kept_elements_are_right(world: World, text: str) -> None:
    cuts = [0, 3 * SECOND, 3 * SECOND + 1, 20 * SECOND, LAST * SECOND]
    plan = check_changes(world, text, cuts, pickled=True)
    assert plan.fallback is None
    assert "kept elements" in plan.explained


def test_elements_are_kept_once_and_groups_found_once_for_each_window(world: World) -> None:
    plans = [plan_query(world, text) for text in TEXTS]
    cuts = [0, 7 * SECOND, 30 * SECOND, LAST * SECOND]
    together, flow = run(world, plans, cuts)
    stores = [o for o in map(flow.operator, flow.sizes()) if isinstance(o, KeepingElements)]
    assert len(stores) == 1
    groupings = {n.key for plan in plans for n in plan.nodes() if isinstance(n, Grouping)}
    # By k, by x, and all rows as one group; and by k over the period.
    assert len(groupings) == 3 * len(WINDOWS) + 1
    for plan in plans:
        alone, _ = run(world, [plan], cuts)
        assert together[plan.key] == alone[plan.key]


def begin(world: World, plan: Plan, at: int) -> Dataflow:
    """A dataflow that was fed what matters after an instant, and stands there."""
    flow = Dataflow(plan, since=at)
    low = plan.reach(at)["s"]
    given = feeds(world, flow, flow.position, at)
    if low is not None:
        given["s"] = given["s"].filter(pc.greater_equal(given["s"]["__ts"], low))
    assert not any(table.num_rows for table in flow.advance(given, at).values())
    return flow


#: Some imply others; windows of the wider may be longer or shorter.
SELECTIONS = (
    "",
    "WHERE v > -2",
    "WHERE v > 2",
    "WHERE v BETWEEN 3 AND 6",
    "WHERE v BETWEEN 6 AND 3",
    "WHERE v > 2 AND k = 'a'",
    "WHERE k IN ('a', 'b')",
    "WHERE k = 'a'",
    "WHERE k = 'a' AND w / 2 > 1",
    "WHERE v + 1 > 3",
)
SELECTED = [
    f"{text.replace('GROUP BY', f'{selection} GROUP BY')}"
    if "GROUP BY" in text
    else f"{text} {selection}"
    for select in (SELECTS[0], SELECTS[1], SELECTS[3], SELECTS[5])
    for window in WINDOWS
    for text in [select.format(window)]
    for selection in SELECTIONS
]


def count_lent(flow: Dataflow) -> int:
    """How many elements are kept by their numbers at another store."""
    stores = [o for o in map(flow.operator, flow.sizes()) if isinstance(o, KeepingElements)]
    return sum(len(run) for store in stores for run in store._runs if isinstance(run, Places))


def test_selections_that_imply_each_other_keep_their_elements_once(world: World) -> None:
    plans = [plan_query(world, text) for text in SELECTED]
    cuts = [0, 7 * SECOND, 7 * SECOND + 1, 30 * SECOND, LAST * SECOND]
    together, flow = run(world, plans, cuts)
    stores = [o for o in map(flow.operator, flow.sizes()) if isinstance(o, KeepingElements)]
    own = [s for s in stores if any(isinstance(run, ElementRun) for run in s._runs)]
    # Every element is with the store of all; the others know numbers.
    assert len(stores) == len(SELECTIONS)
    assert len(own) == 1
    assert count_lent(flow) > 15
    for plan in plans:
        alone, _ = run(world, [plan], cuts)
        assert together[plan.key] == alone[plan.key]


@pytest.mark.parametrize("texts", [TEXTS, SELECTED], ids=["windows", "selections"])
@pytest.mark.parametrize("seed", range(30))
def test_queries_that_come_and_go_differ_in_no_change(
    world: World, texts: list[str], seed: int
) -> None:
    random = Random(f"come and go {seed}")
    plans = {text: plan_query(world, text) for text in random.sample(texts, 9)}
    expected = {
        text: run(world, [plan], range(0, LAST * SECOND, SECOND))[0][plan.key]
        for text, plan in plans.items()
    }
    flow = begin(world, plans[min(plans)], 0)
    since = {min(plans): 0}
    given: dict[str, list[OracleChange]] = {min(plans): []}
    for second in range(1, LAST):
        upto = second * SECOND
        fed = feeds(world, flow, flow.position, upto)
        for key, table in flow.advance(fed, upto).items():
            text = next(text for text in since if plans[text].key == key)
            given[text] += as_changes(table)
        if (waiting := sorted(plans.keys() - since.keys())) and random.random() < 0.4:
            text = random.choice(waiting)
            flow.attach(begin(world, plans[text], upto))
            since[text], given[text] = upto, []
        elif len(since) > 1 and random.random() < 0.3:
            gone = random.choice(sorted(since))
            own = [c for c in expected[gone] if since[gone] < c.at <= upto]
            assert given[gone] == own, gone
            flow.detach(plans[gone].key)
            del since[gone]
    assert not flow.failed
    for text, after in since.items():
        assert given[text] == [c for c in expected[text] if c.at > after], text
