"""Plans are moved as rates turn over, and no answer, no pin and no switch of plans is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.tools.plan_moves import move_plans
from tests.unit.service.conftest import components_of

from millpond.planner.dataflow.plan import Plan
from millpond.planner.optimize.choices import find_choices, find_noticed_choices
from millpond.planner.optimize.cost import sum_cost
from millpond.runtime import dataflow_cache
from millpond.service.changes.noticing.flows import Flows
from millpond.service.changes.noticing.plan_monitor import read_move
from millpond.service.changes.noticing.reconsider import CheaperPlans
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
WINDOW = "[RANGE 1 SECOND]"
THREE = (
    f"SELECT a.v, c.v AS w FROM a {WINDOW}, b {WINDOW}, c {WINDOW} WHERE a.k = b.k AND b.v = c.v"
)
#: Elements a second of a, b and c: the last stream is slow, then the first.
BEFORE, AFTER = (60, 60, 4), (4, 60, 60)


def start(store: Path) -> Pond:
    pond = open_local(store, ManualClock())
    for name in "abc":
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY ts")
    pond.execute(f"CREATE STREAM derived AS ISTREAM({THREE})")
    pond.execute(f"CREATE QUERY three WITH (changes = 'from beginning') AS {THREE}")
    pond.query("three").fetch()
    components_of(pond).plan_monitor.least_elements = 10**9
    return pond


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with start(tmp_path / "store") as pond:
        yield pond


def feed(
    pond: Pond, first: int, last: int, rates: tuple[int, ...], *, settles: bool = True
) -> None:
    """Push each second's elements, and let the monitor look after each."""
    parts = components_of(pond)
    parts.plan_monitor.least_elements = 100 if settles else 10**9
    for second in range(first, last):
        chance = np.random.default_rng(second)
        for name, rate in zip("abc", rates, strict=True):
            stamps = np.sort(chance.integers(0, SECOND, rate)) + second * SECOND
            columns = {
                "ts": pa.array(stamps, pa.timestamp("us")),
                "k": pa.array(chance.integers(0, 6, rate), pa.int32()),
                "v": pa.array(chance.integers(0, 6, rate), pa.int32()),
            }
            pond.ingest(name, pa.table(columns))
        pond.catch_up()
        if settles:
            parts.plan_monitor._rests_until = 0.0
            assert parts.plan_monitor.wait_until_idle(60)


def plan_of(pond: Pond, name: str = "three") -> Plan:
    parts = components_of(pond)
    version = parts.log.version
    found = {version.name_of(s): s for s in parts.derivations.list_streams(version)}[name]
    return parts.derivations.of(version, found).plan


def orders(plan: Plan) -> list[tuple[int, ...]]:
    return [node.order for node in plan.nodes() if getattr(node, "group", "")]


def list_moves(pond: Pond) -> list[tuple[Any, ...]]:
    pond.catch_up()
    asked = "SELECT name, before, after, why FROM system$actions WHERE action = 'replan'"
    return pond.ask(asked).rows()


def test_a_feed_that_turns_over_ends_with_the_best_plan_and_equal_changes(
    pond: Pond, tmp_path: Path
) -> None:
    feed(pond, 0, 8, BEFORE)
    assert list_moves(pond), "made before its data, the plan was a guess"
    first = plan_of(pond)
    feed(pond, 8, 18, AFTER)
    parts = components_of(pond)
    last = plan_of(pond)
    assert orders(last) != orders(first)
    assert plan_of(pond, "derived").root.key == last.root.key, "they share it still"
    for _, before, after, why in list_moves(pond):
        assert after < before
        assert read_move(why)

    # It costs no more than 10 % more than the best of all fixed plans, by what is so now.
    version = parts.log.version
    monitor = parts.plan_monitor
    log = version.change_log(pond.query("three").definition.id)
    assert log is not None
    one = parts.derivations.of(version, log)
    nodes = [n for n in last.nodes() if n.feed is not None]
    rates = {n.key: float(r) for n, r in zip(nodes, AFTER, strict=True)}
    flows = Flows("", frozenset({log.id}), 124, 1.0, 1, rates)
    known = monitor._reconsideration._measure(version, [one], flows)
    known = monitor._reconsideration._correct(one, known, flows)
    fixed = monitor._reconsideration._plan(version, one, known, {})
    assert sum_cost(last.root, known) <= 1.1 * sum_cost(fixed.root, known)

    with start(tmp_path / "other") as other:
        other.execute("ALTER SYSTEM SET (replanning = 'never')")
        feed(other, 0, 8, BEFORE, settles=False)
        feed(other, 8, 18, AFTER, settles=False)
        assert not list_moves(other)
        changes = [p.query("three").fetch().rows() for p in (pond, other)]
        assert changes[0] == changes[1]

    # The plan stays over a restart, though samples are others.
    pond.close()
    with open_local(tmp_path / "store", ManualClock()) as again:
        assert plan_of(again).key == last.key


def test_what_was_decided_can_be_done_again(pond: Pond, tmp_path: Path) -> None:
    feed(pond, 0, 8, BEFORE)
    moves = list_moves(pond)
    with start(tmp_path / "other") as other:
        other.execute("ALTER SYSTEM SET (replanning = 'never')")
        parts = components_of(other)
        version = parts.log.version
        streams = {version.name_of(s): s for s in parts.derivations.list_streams(version)}
        for name, before, after, why in moves:
            stream, choices = streams[name], read_move(why)
            made = parts.derivations.replan(version, stream, choices, version.query_of(stream))
            parts.plan_monitor._move(
                parts.log.version, CheaperPlans((made,), {stream.id: choices}, before, after)
            )
        assert plan_of(other).key == plan_of(pond).key


def test_what_a_person_adopted_stays(pond: Pond) -> None:
    pond.adopt_plan(pond.export_plan())
    pinned = plan_of(pond).key
    feed(pond, 0, 8, BEFORE)  # by which plans move that nobody pinned, as above
    assert plan_of(pond).key == pinned
    assert not list_moves(pond)


def test_a_job_takes_over_what_was_prepared(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(pond, 0, 4, BEFORE, settles=False)
    made = []
    original = dataflow_cache._make

    def make(job: Any, plans: Any, memory: Any) -> Any:
        made.append([plan.key for plan in plans])
        return original(job, plans, memory)

    monkeypatch.setattr(dataflow_cache, "_make", make)
    for seed in range(20):
        if move_plans(pond, seed):
            break
    assert made, "workers have made the dataflows beside those that run"
    del made[:]
    feed(pond, 4, 6, BEFORE, settles=False)
    assert not made, "and no job had to"
    assert find_noticed_choices(components_of(pond).log.version.settings)


def test_choices_of_operators_that_are_gone_are_forgotten(pond: Pond) -> None:
    feed(pond, 0, 2, BEFORE, settles=False)
    pond.execute(f"CREATE QUERY kinds AS SELECT DISTINCT k FROM a {WINDOW}")
    pond.query("kinds").fetch()
    parts = components_of(pond)

    def has_kinds() -> bool:
        (key,) = {n.logical_key for n in kinds.nodes() if n.name == "distinct"}
        return key in find_choices(parts.log.version.settings)

    kinds = plan_of(pond, "kinds")
    for seed in range(50):
        move_plans(pond, seed)
        if has_kinds():
            break
    assert has_kinds()
    pond.execute("DROP QUERY kinds")
    for seed in range(50, 100):
        if move_plans(pond, seed):
            break
    assert not has_kinds()


def test_explain_has_what_is_measured_beside_what_was_estimated(pond: Pond) -> None:
    feed(pond, 0, 4, BEFORE, settles=False)
    explained = pond.explain("three", "runtime")
    line = next(x for x in explained.split("\n") if "stream a" in x and "≈" in x)
    assert "≈ 10 changes/s" in line, "nothing was known of it"
    assert "measured 60" in line
