"""A dataflow that keeps answers: what it takes in, and when it has to begin again."""

from __future__ import annotations

import pytest
from tests.unit.service.conftest import SECOND, components_of, rows

from millpond.planner.dataflow.plan import Plan
from millpond.service.answers.answer_flow import AnswerFlow, MustBeginAgain, needs_order
from millpond.service.components import Components
from millpond.service.pond import Pond

SELECTION = "SELECT v FROM s [RANGE 5 SECONDS]"
LAST = "SELECT v FROM s [ROWS 2]"
NAMED = "SELECT s.v FROM s [RANGE 5 SECONDS], r WHERE s.v = r.v"


@pytest.fixture
def parts(pond: Pond) -> Components:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 10 SECONDS;"
        "CREATE RELATION r (v INTEGER)"
    )
    return components_of(pond)


def plan(pond: Pond, text: str) -> Plan:
    parts = components_of(pond)
    query = parts.registrar.prepare(pond.register(text).definition)
    found = parts.derivations.plan_answer(parts.log.version, query, False)
    if needs_order(found):
        return parts.derivations.plan_answer(parts.log.version, query, True)
    return found


def make(parts: Components, *plans: Plan) -> AnswerFlow:
    in_order = any(needs_order(plan) for plan in plans)
    by_key = {plan.key: plan for plan in plans}
    return AnswerFlow(parts.invoker.files, parts.relations_state, by_key, in_order)


def values(flow: AnswerFlow, plan: Plan) -> list[int]:
    found = flow.read_answer(plan.key)
    assert found is not None
    values: list[int] = found["v"].to_pylist()
    return values


def test_elements_enter_late_and_leave_when_they_should(pond: Pond, parts: Components) -> None:
    selection = plan(pond, SELECTION)
    flow = make(parts, selection)
    pond.ingest("s", rows(10))
    assert flow.step(parts.log.version, 10 * SECOND)
    assert not flow.step(parts.log.version, 10 * SECOND), "nothing is new"
    pond.ingest("s", [*rows(7, v=7), *rows(10, v=11), *rows(2, v=2)])
    flow.step(parts.log.version, 10 * SECOND)
    assert values(flow, selection) == [0, 7, 11]
    flow.step(parts.log.version, 12 * SECOND)
    assert values(flow, selection) == [0, 11]
    assert flow.has_read(parts.log.version)
    pond.ingest("s", rows(11, v=5))
    assert not flow.has_read(parts.log.version)


def test_elements_that_are_ahead_come_at_their_instant(pond: Pond, parts: Components) -> None:
    selection = plan(pond, SELECTION)
    flow = make(parts, selection)
    pond.ingest("s", [*rows(1, v=1), *rows(3, v=3)])
    for upto, expected in ((2, [1]), (3, [1, 3]), (7, [3]), (8, [])):
        flow.step(parts.log.version, upto * SECOND)
        assert values(flow, selection) == expected


def test_where_order_matters_a_late_element_begins_again(pond: Pond, parts: Components) -> None:
    last = plan(pond, LAST)
    flow = make(parts, last)
    pond.ingest("s", rows(1, 2, 3))
    flow.step(parts.log.version, 3 * SECOND)
    pond.ingest("s", rows(3, v=9))
    flow.step(parts.log.version, 3 * SECOND)
    assert values(flow, last) == [2, 9], "an element of the last instant is not late"
    pond.ingest("s", rows(2, v=8))
    with pytest.raises(MustBeginAgain):
        flow.step(parts.log.version, 3 * SECOND)


def test_relations_are_told_of_instants_that_were_answered_for(
    pond: Pond, parts: Components
) -> None:
    named = plan(pond, NAMED)
    flow = make(parts, named)
    pond.ingest("s", rows(1, 2, 3))
    flow.step(parts.log.version, 3 * SECOND)
    assert values(flow, named) == []
    for told, expected in (
        ("INSERT INTO r VALUES (1) AT TIMESTAMP '1970-01-01 00:00:02'", [1]),
        ("INSERT INTO r VALUES (2) AT TIMESTAMP '1970-01-01 00:00:03'", [1, 2]),
        ("DELETE FROM r WHERE v = 1 AT TIMESTAMP '1970-01-01 00:00:03'", [2]),
    ):
        pond.execute(told)
        flow.step(parts.log.version, 3 * SECOND)
        assert values(flow, named) == expected


def test_a_stream_that_is_another_begins_again(pond: Pond, parts: Components) -> None:
    flow = make(parts, plan(pond, SELECTION))
    pond.ingest("s", rows(1))
    flow.step(parts.log.version, SECOND)
    pond.execute("ALTER STREAM s SET (retain = '1 HOUR')")
    with pytest.raises(MustBeginAgain):
        flow.step(parts.log.version, SECOND)


def test_a_plan_that_fails_leaves_the_others(pond: Pond, parts: Components) -> None:
    selection = plan(pond, SELECTION)
    broken = plan(pond, "SELECT v::VARCHAR::DATE AS d FROM s [RANGE 5 SECONDS]")
    flow = make(parts, selection, broken)
    pond.ingest("s", rows(1))
    flow.step(parts.log.version, SECOND)
    assert values(flow, selection) == [0]
    assert {key: error.code for key, error in flow.failed.items()} == {broken.key: "POND-404"}
    assert flow.read_answer(broken.key) is None
    flow.drop([broken.key])
    assert flow.plans == {selection.key}


def test_plans_that_come_later_are_taken_over(pond: Pond, parts: Components) -> None:
    selection, total = plan(pond, SELECTION), plan(pond, "SELECT sum(v) AS v FROM s")
    flow, other = make(parts, selection), make(parts, total)
    pond.ingest("s", rows(1, 2, 3))
    for one in (flow, other):
        one.step(parts.log.version, 3 * SECOND)
    flow.take_over(other)
    pond.ingest("s", rows(7, v=4))
    flow.step(parts.log.version, 7 * SECOND)
    assert (values(flow, selection), values(flow, total)) == ([2, 4], [7])
    assert flow.nbytes > 0
    assert flow.seconds.keys() == {selection.key, total.key}
    assert all(seconds > 0 for seconds in flow.seconds.values())
