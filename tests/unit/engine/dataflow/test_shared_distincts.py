"""DISTINCTs over windows of other lengths share the rows they keep, and differ in no change."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.oracle.changes import OracleChange
from tests.oracle.oracle_pond import OraclePond
from tests.oracle.world import World
from tests.tools.changes_play import (
    SCHEDULINGS,
    as_changes,
    check_changes,
    feeds,
    plan_query,
    run,
)
from tests.tools.no_memory import no_memory

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.engine.dataflow.lenders import find_lending
from millpond.operators.distinct_announcing import DistinctAnnouncing
from millpond.operators.protocol.node import Node
from millpond.operators.shared_distinct import KeepingDistinct, KeptDistinct, SharedDistinct
from millpond.planner.dataflow.plan import Plan, find_needed_columns, list_in_order

SECOND = 1_000_000
LAST = 40


@pytest.fixture(scope="module")
def world() -> World:
    pond = OraclePond()
    for stream in ("s", "t"):
        pond.execute(
            f"CREATE STREAM {stream} (at TIMESTAMP, k VARCHAR, v INTEGER, w DOUBLE) "
            "TIMESTAMP BY at DELAY 0 SECONDS"
        )
    for stream, step in (("s", 7), ("t", 4)):
        random = Random(step)
        rows = [
            {
                # In stretches some values are rare, and several elements have one timestamp.
                "at": f"1970-01-01 00:00:{i * LAST // 120:02d}.{i % 3 * 500_000:06d}",
                "k": random.choice((None, "a", "b", "c", *"defghij"[: i // 12])),
                "v": random.choice((None, 1, 2, 3)),
                "w": random.choice((None, 0.5, -0.0, 0.0)),
            }
            for i in range(110)
        ]
        pond.ingest(stream, sorted(rows, key=lambda row: str(row["at"])))
    return pond.world


WINDOWS = ("RANGE 3 SECONDS", "RANGE 9 SECONDS", "RANGE 1 SECONDS", "NOW", "RANGE 30 SECONDS")
SELECTS = (
    "SELECT DISTINCT k FROM s [{}]",
    "SELECT DISTINCT v, k FROM s [{}]",
    "SELECT DISTINCT k FROM s [{}] WHERE v > 1",
    "SELECT DISTINCT k, at FROM s [{} WHERE v < 3]",
    "SELECT upper(k) AS u FROM (SELECT DISTINCT k FROM s [{}]) AS d",
    "SELECT k, count(*) AS n FROM (SELECT DISTINCT k, v FROM s [{}]) AS d GROUP BY k",
    "SELECT d.k, v FROM (SELECT DISTINCT k FROM s [{}]) AS d JOIN t [RANGE 5 SECONDS] ON d.k = t.k",
    "SELECT DISTINCT k FROM s [{}] UNION ALL SELECT DISTINCT k FROM t [{}]",
)
TEXTS = [select.replace("{}", window) for select in SELECTS for window in WINDOWS]


def others(select: str, window: str) -> list[str]:
    return [select.replace("{}", other) for other in WINDOWS if other != window][:2]


def list_stores(flow: Dataflow) -> list[KeepingDistinct]:
    return [o for o in map(flow.operator, flow.sizes()) if isinstance(o, KeepingDistinct)]


@pytest.mark.parametrize("window", WINDOWS[1:4])
@pytest.mark.parametrize("select", SELECTS)
def test_distinct_rows_over_kept_rows_are_right(world: World, select: str, window: str) -> None:
    text, beside = select.replace("{}", window), others(select, window)
    cuts = [0, 3 * SECOND, 3 * SECOND + 1, 20 * SECOND, LAST * SECOND]
    check_changes(world, text, cuts, pickled=True, beside=beside)
    plans = [plan_query(world, one) for one in (text, *beside)]
    if "JOIN" not in text:  # it wants rows with their expirations
        assert list_stores(Dataflow(*plans))


@pytest.mark.parametrize("select", SELECTS)
def test_however_steps_are_cut_and_wherever_rows_lie_they_are_right(
    world: World, select: str
) -> None:
    texts = [select.replace("{}", window) for window in WINDOWS[:3]]
    cuts = [0, 3 * SECOND, 20 * SECOND, LAST * SECOND]
    check_changes(world, texts[1], cuts, schedulings=SCHEDULINGS, spilled=True, beside=texts)


def test_one_that_runs_alone_is_that_of_its_plan(world: World) -> None:
    one, other = (plan_query(world, text) for text in TEXTS[:2])
    assert [n.key for n in one.nodes()] == list(Dataflow(one).sizes())
    flow = Dataflow(one)
    flow.attach(Dataflow(other))
    assert len(list_stores(flow)) == 1
    flow.detach(other.key)
    assert [n.key for n in one.nodes()] == list(flow.sizes())


def find_distinct(plan: Plan) -> str:
    return next(node.key for node in plan.nodes() if isinstance(node, DistinctAnnouncing))


@pytest.mark.parametrize("longer", [False, True])
def test_rows_go_to_the_store_and_back_with_what_is_said_of_them(
    world: World, longer: bool
) -> None:
    lengths = (9, 3) if longer else (3, 9)
    texts = [SELECTS[1].replace("{}", f"RANGE {n} SECONDS") for n in lengths]
    one, other = (plan_query(world, text, lazy_expiration=0) for text in texts)
    distincts = [find_distinct(plan) for plan in (one, other)]
    flows = []
    for plan in (one, other):
        flow = Dataflow(plan)
        flow.advance(feeds(world, flow, -1, 20 * SECOND), 20 * SECOND)
        flows.append(flow)
    rows = [f.list_state(every=True)[d].rows for f, d in zip(flows, distincts, strict=True)]
    flow = flows[0]
    flow.attach(flows[1])
    state, longest = flow.list_state(every=True), distincts[0] if longer else distincts[1]
    planned = {n.key for plan in (one, other) for n in plan.nodes()}
    assert state.keys() <= planned
    assert {key: state[key].rows for key in distincts if state[key].rows} == {longest: max(rows)}
    assert state[longest].memory > 0
    fed = feeds(world, flow, 20 * SECOND, 25 * SECOND)
    flow.advance(fed, 25 * SECOND)
    assert flow.list_work(every=True).keys() <= planned
    assert flow.count_given().keys() <= planned
    assert not flow.list_release_figures()  # constraints release no rows of theirs
    flow.detach(other.key)
    flow.advance({}, 25 * SECOND + 1)
    alone = run(world, [one], [25 * SECOND, 25 * SECOND + 1])[1]
    assert flow.sizes() == alone.sizes()
    assert 0 < flow.list_state(every=True)[distincts[0]].memory < 2 * alone.size.memory


def test_rows_are_kept_once_for_all_windows(world: World) -> None:
    plans = [plan_query(world, text) for text in TEXTS[:5]]
    cuts = [0, 7 * SECOND, 30 * SECOND, LAST * SECOND]
    together, flow = run(world, plans, cuts)
    (store,) = list_stores(flow)
    assert sum(flow.sizes().values()) == store.size()
    for plan in plans:
        alone, _ = run(world, [plan], cuts)
        assert together[plan.key] == alone[plan.key]


def test_shorter_windows_need_no_more_when_the_longest_is_dropped(world: World) -> None:
    texts = [SELECTS[3].replace("{}", f"RANGE {n} SECONDS") for n in (1, 2, 30)]
    *short, long = (plan_query(world, text, lazy_expiration=0) for text in texts)
    _, flow = run(world, [*short, long], range(0, 30 * SECOND, SECOND))
    (store,) = list_stores(flow)
    before = store.size()
    flow.detach(long.key)
    flow.advance({}, 29 * SECOND + 1)
    flow.advance({}, 29 * SECOND + 2)
    assert 0 < store.size() < before / 4
    flow.advance({}, 60 * SECOND)
    flow.advance({}, 60 * SECOND + 1)
    assert store.size() == 0


def test_rows_are_dropped_as_soon_as_any_query_wants(world: World) -> None:
    texts = [SELECTS[3].replace("{}", f"RANGE {n} SECONDS") for n in (4, 2)]
    sizes = []
    for intervals in ((None, None), (None, 0)):
        plans = [
            plan_query(world, one, lazy_expiration=interval)
            for one, interval in zip(texts, intervals, strict=True)
        ]
        _, flow = run(world, plans, [*range(0, 21 * SECOND, SECOND), 20 * SECOND + 1])
        sizes.append(list_stores(flow)[0].size())
    elements = world.streams["s"].elements
    there = [e for e in elements if 16 < e.at / SECOND <= 20 and (e.row["v"] or 9) < 3]
    assert sizes[0] > sizes[1] == len({(e.row["k"], e.at) for e in there})


def test_what_several_keep_has_the_memory_of_the_longest(world: World) -> None:
    plans = [plan_query(world, text) for text in TEXTS[:2]]
    distincts = [find_distinct(plan) for plan in plans]
    flow = Dataflow(*plans)
    flow.limit_memory(replace(no_memory(), limit=1 << 40, own=dict.fromkeys(distincts, 1)))
    flow.advance(feeds(world, flow, -1, 20 * SECOND), 20 * SECOND)
    state = flow.list_state(every=True)
    assert [state[one].files > 0 for one in distincts] == [False, True]


def test_explain_says_that_rows_are_kept_once(world: World) -> None:
    roots = [plan_query(world, text).root for text in (*TEXTS[:3], TEXTS[5])]
    said = find_lending(list(list_in_order(roots)), find_needed_columns(roots)).describe()
    assert list(said.values()) == ["kept once for 3 DISTINCTs"] * 3
    assert said.keys() <= {root.key for root in roots}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT DISTINCT k FROM s [RANGE 3 SECONDS SLIDE 2 SECONDS]",
        "SELECT k FROM s [RANGE 3 SECONDS] UNION SELECT k FROM t [RANGE 3 SECONDS]",
        # Equal ones are shown as the first of them was, which may be in no window any more.
        "SELECT CAST(w AS VARCHAR) AS x FROM (SELECT DISTINCT w FROM s [RANGE 3 SECONDS]) AS d",
        # On a row that nobody is given it may fail.
        "SELECT DISTINCT 6 / v AS x FROM s [RANGE 3 SECONDS]",
        "SELECT DISTINCT k FROM s",
    ],
)
def test_others_keep_rows_of_their_own(world: World, text: str) -> None:
    other = text.replace("RANGE 3 SECONDS", "RANGE 5 SECONDS")
    assert not list_stores(Dataflow(*(plan_query(world, one) for one in (text, other))))
    if "CAST" not in text:  # which of two zeros is shown is not said
        check_changes(world, text, [0, 20 * SECOND, LAST * SECOND], beside=[other])


@pytest.mark.parametrize("kind", [KeptDistinct, SharedDistinct])
def test_a_failure_is_of_those_that_need_what_failed(
    world: World, kind: type[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [plan_query(world, text) for text in (*TEXTS[:3], TEXTS[5])]
    alone, _ = run(world, plans, [LAST * SECOND])
    flow = Dataflow(*plans, since=-1)
    node = next(n for n in flow._flow.nodes if isinstance(n, kind))
    hit = {p.key for p in plans[:3]} if kind is KeptDistinct else {plans[0].key}

    def fail(*given: object) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(flow.operator(node.key), "advance", fail)
    flow.advance(feeds(world, flow, -1, 20 * SECOND), 20 * SECOND)
    assert flow.failed.keys() == hit
    given = flow.advance(feeds(world, flow, 20 * SECOND, LAST * SECOND), LAST * SECOND)
    for key, table in given.items():
        assert as_changes(table) == [c for c in alone[key] if c.at > 20 * SECOND]


def begin(world: World, plan: Plan, at: int) -> Dataflow:
    """A dataflow that was fed what matters after an instant, and stands there."""
    flow = Dataflow(plan, since=at)
    given = feeds(world, flow, flow.position, at)
    for stream, low in plan.reach(at).items():
        if low is not None:
            stamps = given[stream]["__ts"].to_pylist()
            given[stream] = given[stream].filter([stamp >= low for stamp in stamps])
    found = flow.advance(given, at)
    assert not any(table.num_rows for table in found.values())
    return flow


@pytest.mark.parametrize("purged", [None, 0, 2_500_000])
@pytest.mark.parametrize("seed", range(8))
def test_queries_that_come_and_go_differ_in_no_change(
    world: World, seed: int, purged: int | None
) -> None:
    random = Random(f"come and go {seed}")
    windows = [*WINDOWS, "RANGE 5 SECONDS", "RANGE 12 SECONDS"]
    select = random.choice(SELECTS[:6])
    texts = [select.replace("{}", window) for window in windows]
    texts += random.sample([text for text in TEXTS if text not in texts], 3)
    plans = {text: plan_query(world, text, lazy_expiration=purged) for text in texts}
    expected = {
        text: run(world, [plan], range(0, LAST * SECOND, SECOND))[0][plan.key]
        for text, plan in plans.items()
    }
    assert sum(map(len, expected.values())) > 300
    flow = begin(world, plans[min(plans)], 0)
    since = {min(plans): 0}
    given: dict[str, list[OracleChange]] = {min(plans): []}
    most = 0
    for step in range(1, 2 * LAST - 1):
        upto = step * SECOND // 2
        fed = feeds(world, flow, flow.position, upto)
        for key, table in flow.advance(fed, upto).items():
            text = next(text for text in since if plans[text].key == key)
            given[text] += as_changes(table)
        most = max(most, len(list_stores(flow)))
        if (waiting := sorted(plans.keys() - since.keys())) and random.random() < 0.3:
            # One by one, or some that run together already.
            some = random.sample(waiting, min(len(waiting), random.choice((1, 1, 3))))
            added = begin(world, plans[some[0]], upto)
            for text in some[1:]:
                added.attach(begin(world, plans[text], upto))
            flow.attach(added)
            for text in some:
                since[text], given[text] = upto, []
        elif len(since) > 1 and random.random() < 0.4:
            gone = random.choice(sorted(since))
            own = [c for c in expected[gone] if since[gone] < c.at <= upto]
            assert given[gone] == own, gone
            flow.detach(plans[gone].key)
            del since[gone]
    assert most
    assert not flow.failed
    for text, after in since.items():
        assert given[text] == [c for c in expected[text] if c.at > after], text


def test_what_is_kept_for_several_is_purged_whenever_one_of_them_wants(world: World) -> None:
    intervals = (None, 2 * SECOND)
    plans = [
        plan_query(world, SELECTS[0].replace("{}", window), lazy_expiration=interval)
        for window, interval in zip(WINDOWS, intervals, strict=False)
    ]
    flow = begin(world, plans[0], 0)
    flow.attach(begin(world, plans[1], 0))
    (store,) = list_stores(flow)
    assert store.purging.by_share
    assert [store.purging.is_due(at * SECOND) for at in (1, 2, 3, 4)] == [True, True, False, True]
    flow.purge({plan.key: (0,) for plan in plans})
    assert not store.purging.by_share
    assert store.purging.is_due(4 * SECOND + 1)
