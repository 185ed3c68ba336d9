"""Joins of windows of other lengths share the rows they keep, and differ in no change."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pyarrow.compute as pc
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
from millpond.errors import MillpondError
from millpond.model.constraints import UNIQUE, Constraint
from millpond.operators.join import Join
from millpond.operators.protocol.node import Node
from millpond.operators.shared_join import KeepingSides, KeptSides, SharedJoin
from millpond.operators.structures import pairs, releases
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
        rows = [
            {
                "at": f"1970-01-01 00:00:{i * LAST // 120:02d}",
                "k": (None, "a", "b", "c", "d")[(i * i * step + i // 7) % 5],
                "v": None if i % 7 == 3 else (i * 31) % 13 - 4,
                "w": None if i % 11 == step else (i * 37 % 23) / 4,
            }
            for i in range(90)
        ]
        pond.ingest(stream, rows)
    return pond.world


WINDOWS = (
    ("RANGE 3 SECONDS", "RANGE 3 SECONDS"),
    ("RANGE 9 SECONDS", "RANGE 2 SECONDS"),
    ("RANGE 1 SECONDS", "RANGE 14 SECONDS"),
    ("RANGE 11 SECONDS", "NOW"),
    ("NOW", "NOW"),
    ("RANGE 6 SECONDS", "RANGE UNBOUNDED"),
    ("RANGE UNBOUNDED", "RANGE UNBOUNDED"),
)
SELECTS = (
    "SELECT s.k, s.v, t.w FROM s [{}] JOIN t [{}] ON s.k = t.k",
    "SELECT s.v, t.v AS u FROM s [{}] JOIN t [{}] ON s.k = t.k AND s.v < t.v",
    "SELECT s.v, t.w FROM s [{}], t [{}] WHERE s.k = t.k AND s.v = t.v",
    "SELECT s.v, t.v AS u FROM s [{}], t [{}] WHERE s.v < 0 AND t.v > 6",
    "SELECT upper(s.k) AS u, s.v + t.v AS x FROM s [{}] JOIN t [{}] ON s.k = t.k",
    "SELECT s.k, max(t.w - s.v) AS m FROM s [{}] JOIN t [{}] ON s.k = t.k GROUP BY s.k",
    "SELECT DISTINCT s.k FROM s [{}] JOIN t [{}] ON s.k = t.k",
    "SELECT one.v, other.v AS u FROM s [{}] AS one JOIN s [{}] AS other ON one.k = other.k",
    "SELECT s.v, t.w FROM s [{}] LEFT JOIN t [{}] ON s.k = t.k",
    "SELECT s.v, t.w, r.v AS x FROM s [{}], t [{}], t [RANGE 4 SECONDS] AS r "
    "WHERE s.k = t.k AND r.k = t.k",
)
TEXTS = [
    select.format(*WINDOWS[(number + more) % len(WINDOWS)])
    for number, select in enumerate(SELECTS)
    for more in (0, 2, 5)
]


#: By query, the same one over other windows.
OTHERS = {
    select.format(*windows): select.format(*WINDOWS[number - 1])
    for number, windows in enumerate(WINDOWS)
    for select in SELECTS
}


def list_stores(flow: Dataflow) -> list[KeepingSides]:
    return [o for o in map(flow.operator, flow.sizes()) if isinstance(o, KeepingSides)]


@pytest.mark.parametrize("text", TEXTS)
def test_joins_over_kept_rows_are_right(world: World, text: str) -> None:
    cuts = [0, 3 * SECOND, 3 * SECOND + 1, 20 * SECOND, LAST * SECOND]
    check_changes(world, text, cuts, pickled=True, beside=[OTHERS[text]])
    plans = [plan_query(world, one) for one in (text, OTHERS[text])]
    # Beside a window without an end, expirations are announced by the other one.
    if not any(word in text for word in ("GROUP BY", "DISTINCT", "UNBOUNDED", "NOW")):
        assert list_stores(Dataflow(*plans))


@pytest.mark.parametrize("select", SELECTS)
def test_however_steps_are_cut_and_wherever_rows_lie_they_are_right(
    world: World, select: str
) -> None:
    texts = [select.format(*windows) for windows in WINDOWS[:3]]
    cuts = [0, 3 * SECOND, 20 * SECOND, LAST * SECOND]
    check_changes(world, texts[1], cuts, schedulings=SCHEDULINGS, spilled=True, beside=texts)


def test_a_join_that_runs_alone_is_the_join_of_its_plan(world: World) -> None:
    texts = [SELECTS[0].format(*windows) for windows in WINDOWS[:2]]
    one, other = (plan_query(world, text) for text in texts)
    assert [n.key for n in one.nodes()] == list(Dataflow(one).sizes())
    flow = Dataflow(one)
    flow.attach(Dataflow(other))
    assert len(list_stores(flow)) == 1
    flow.detach(other.key)
    assert [n.key for n in one.nodes()] == list(flow.sizes())


@pytest.mark.parametrize("longer", [False, True])
def test_rows_go_to_the_store_and_back_with_what_is_said_of_them(
    world: World, longer: bool
) -> None:
    lengths = (9, 3) if longer else (3, 9)
    texts = [SELECTS[0].format(f"RANGE {n} SECONDS", f"RANGE {n} SECONDS") for n in lengths]
    one, other = (plan_query(world, text, lazy_expiration=0) for text in texts)
    joins = [next(n.key for n in p.nodes() if isinstance(n, Join)) for p in (one, other)]
    flows = []
    for plan in (one, other):
        flow = Dataflow(plan)
        flow.advance(feeds(world, flow, -1, 20 * SECOND), 20 * SECOND)
        flows.append(flow)
    rows = [f.list_state(every=True)[j].rows for f, j in zip(flows, joins, strict=True)]
    flow = flows[0]
    flow.attach(flows[1])
    state, longest = flow.list_state(every=True), joins[0] if longer else joins[1]
    planned = {n.key for plan in (one, other) for n in plan.nodes()}
    assert state.keys() <= planned
    assert {key: state[key].rows for key in joins if state[key].rows} == {longest: max(rows)}
    assert state[longest].memory > 0
    fed = feeds(world, flow, 20 * SECOND, 25 * SECOND)
    flow.advance(fed, 25 * SECOND)
    assert flow.list_work(every=True).keys() <= planned
    assert flow.count_given().keys() <= planned
    flow.detach(other.key)
    flow.advance({}, 25 * SECOND + 1)
    alone = run(world, [one], [25 * SECOND, 25 * SECOND + 1])[1]
    assert flow.sizes() == alone.sizes()
    assert 0 < flow.list_state(every=True)[joins[0]].memory < 2 * alone.size.memory


def test_rows_are_kept_once_for_all_windows(world: World) -> None:
    plans = [plan_query(world, SELECTS[0].format(*windows)) for windows in WINDOWS]
    cuts = [0, 7 * SECOND, 30 * SECOND, LAST * SECOND]
    together, flow = run(world, plans, cuts)
    assert len(list_stores(flow)) == 1
    for plan in plans:
        alone, _ = run(world, [plan], cuts)
        assert together[plan.key] == alone[plan.key]


def test_shorter_windows_need_no_more_when_the_longest_is_dropped(world: World) -> None:
    texts = [SELECTS[0].format(f"RANGE {n} SECONDS", f"RANGE {n} SECONDS") for n in (2, 30)]
    short, long = (plan_query(world, text, lazy_expiration=0) for text in texts)
    _, flow = run(world, [short, long], range(0, 30 * SECOND, SECOND))
    (store,) = list_stores(flow)
    before = store.size()
    flow.detach(long.key)
    flow.advance({}, 29 * SECOND + 1)
    assert 0 < store.size() < before / 4
    flow.advance({}, 60 * SECOND)
    assert store.size() == 0


def test_rows_are_dropped_as_soon_as_any_query_wants(world: World) -> None:
    text = SELECTS[0].format("RANGE 4 SECONDS", "RANGE 4 SECONDS")
    other = SELECTS[0].format("RANGE 2 SECONDS", "RANGE 2 SECONDS")
    sizes = []
    for intervals in ((None, None), (None, 0)):
        plans = [
            plan_query(world, one, lazy_expiration=interval)
            for one, interval in zip((text, other), intervals, strict=True)
        ]
        _, flow = run(world, plans, range(0, 21 * SECOND, SECOND))
        sizes.append(list_stores(flow)[0].size())
    # Rows leave when the next step begins.
    there = [e for s in world.streams.values() for e in s.elements if 15 < e.at / SECOND <= 20]
    assert sizes[0] > sizes[1] == sum(e.row["k"] is not None for e in there)


def test_what_several_joins_keep_has_the_memory_of_the_longest(world: World) -> None:
    texts = [SELECTS[0].format(f"RANGE {n} SECONDS", f"RANGE {n} SECONDS") for n in (9, 3)]
    plans = [plan_query(world, text) for text in texts]
    joins = [next(n.key for n in p.nodes() if isinstance(n, Join)) for p in plans]
    flow = Dataflow(*plans)
    flow.limit_memory(replace(no_memory(), limit=1 << 40, own=dict.fromkeys(joins, 1)))
    flow.advance(feeds(world, flow, -1, 20 * SECOND), 20 * SECOND)
    state = flow.list_state(every=True)
    assert [state[join].files > 0 for join in joins] == [True, False]


def test_explain_says_that_rows_are_kept_once(world: World) -> None:
    texts = [SELECTS[0].format(*windows) for windows in WINDOWS[:3]]
    roots = [plan_query(world, text).root for text in (*texts, SELECTS[3].format(*WINDOWS[4]))]
    said = find_lending(list(list_in_order(roots)), find_needed_columns(roots)).describe()
    assert list(said.values()) == ["kept once for 3 joins"] * 3
    assert said.keys() <= {n.key for n in list_in_order(roots) if isinstance(n, Join)}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT s.v FROM s [RANGE 4 SECONDS SLIDE 3 SECONDS] JOIN t [RANGE 3 SECONDS] ON s.k = t.k",
        "SELECT s.v FROM s [ROWS 4] JOIN t [RANGE 3 SECONDS] ON s.k = t.k",
        # On a pair that nobody is given it may fail.
        "SELECT s.v FROM s [RANGE 4 SECONDS] JOIN t [RANGE 3 SECONDS] ON s.k = t.k "
        "AND s.v / t.v > 1",
    ],
)
def test_other_joins_keep_rows_of_their_own(world: World, text: str) -> None:
    other = text.replace("RANGE 3 SECONDS", "RANGE 5 SECONDS")
    check_changes(world, text, [0, 20 * SECOND, LAST * SECOND], beside=[other])
    assert not list_stores(Dataflow(*(plan_query(world, one) for one in (text, other))))


def test_who_joins_too_many_rows_fails_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    short = plan_query(world, SELECTS[0].format("RANGE 3 SECONDS", "RANGE 3 SECONDS"))
    long = plan_query(world, SELECTS[0].format("RANGE 30 SECONDS", "RANGE 30 SECONDS"))
    alone, flow = run(world, [short], [LAST * SECOND])
    (joined,) = (n.key for n in short.nodes() if isinstance(n, Join))
    assert flow.count_given()[joined] > 10
    monkeypatch.setattr(pairs, "MOST_ROWS", flow.count_given()[joined])
    flow = Dataflow(short, long, since=-1)
    given = flow.advance(feeds(world, flow, flow.position, LAST * SECOND), LAST * SECOND)
    assert {key: error.code for key, error in flow.failed.items()} == {long.key: "POND-405"}
    assert as_changes(given[short.key]) == alone[short.key]
    assert isinstance(flow.failed[long.key], MillpondError)


@pytest.mark.parametrize("kind", [KeptSides, SharedJoin])
def test_a_failure_is_of_those_that_need_what_failed(
    world: World, kind: type[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [plan_query(world, SELECTS[0].format(*windows)) for windows in WINDOWS[:3]]
    plans.append(plan_query(world, SELECTS[1].format(*WINDOWS[3])))
    alone, _ = run(world, plans, [LAST * SECOND])
    flow = Dataflow(*plans, since=-1)
    node = next(n for n in flow._flow.nodes if isinstance(n, kind))
    hit = {p.key for p in plans[:3]} if kind is KeptSides else {plans[0].key}

    def fail(*given: object) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(flow.operator(node.key), "advance", fail)
    flow.advance(feeds(world, flow, -1, 20 * SECOND), 20 * SECOND)
    assert flow.failed.keys() == hit
    given = flow.advance(feeds(world, flow, 20 * SECOND, LAST * SECOND), LAST * SECOND)
    for key, table in given.items():
        assert as_changes(table) == [c for c in alone[key] if c.at > 20 * SECOND]


def history(world: World, flow: Dataflow, low: int | None):
    """Reads back what is kept of a stream's elements."""

    def read(name: str, upto: int):
        table = feeds(world, flow, -1, upto)[name]
        yield table if low is None else table.filter(pc.greater_equal(table["__ts"], low))

    return read


def begin(world: World, plan: Plan, at: int, constraints: dict) -> Dataflow:
    """A dataflow that was fed what matters after an instant, and stands there."""
    flow = Dataflow(plan, since=at)
    flow.constrain(constraints)
    given = feeds(world, flow, flow.position, at)
    for stream, low in plan.reach(at).items():
        if low is not None:
            given[stream] = given[stream].filter(pc.greater_equal(given[stream]["__ts"], low))
    found = flow.advance(given, at, history(world, flow, None))
    assert not any(table.num_rows for table in found.values())
    return flow


#: What elements adhere to seldom: rows are released, and read back.
CONSTRAINTS = {name: (Constraint("once", UNIQUE, ("k",)),) for name in ("s", "t")}


@pytest.mark.parametrize("constraints", [{}, CONSTRAINTS], ids=["free", "released"])
@pytest.mark.parametrize("seed", range(8))
def test_queries_that_come_and_go_differ_in_no_change(
    world: World, seed: int, constraints: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "_LEAST_ROWS", 4)
    random = Random(f"come and go {seed}")
    texts = [SELECTS[0].format(*windows) for windows in WINDOWS]
    texts += random.sample([text for text in TEXTS if text not in texts], 5)
    plans = {text: plan_query(world, text) for text in random.sample(texts, 9)}
    expected = {
        text: run(world, [plan], range(0, LAST * SECOND, SECOND))[0][plan.key]
        for text, plan in plans.items()
    }
    assert sum(map(len, expected.values())) > 500
    flow = begin(world, plans[min(plans)], 0, constraints)
    since = {min(plans): 0}
    given: dict[str, list[OracleChange]] = {min(plans): []}
    for second in range(1, LAST):
        upto = second * SECOND
        fed = feeds(world, flow, flow.position, upto)
        for key, table in flow.advance(fed, upto, history(world, flow, None)).items():
            text = next(text for text in since if plans[text].key == key)
            given[text] += as_changes(table)
        if (waiting := sorted(plans.keys() - since.keys())) and random.random() < 0.4:
            text = random.choice(waiting)
            flow.attach(begin(world, plans[text], upto, constraints))
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
