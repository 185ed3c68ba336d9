"""Estimates are corrected by what operators gave: in every form, and for every order of joins."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.cql.print.dialect import parse_query
from millpond.planner.bind.bind import bind
from millpond.planner.dataflow.plan import Plan, plan_changes
from millpond.planner.optimize.choices import Choice
from millpond.planner.optimize.corrections import find_corrections, name_result
from millpond.planner.optimize.cost import estimate_nodes
from millpond.planner.optimize.statistics import ObservedStatistics

FLIGHTS = ("flights [RANGE 1 HOUR] f", "flights [RANGE 2 HOURS] g", "flights [RANGE 3 HOURS] h")
THREE = (
    f"SELECT f.delay FROM {', '.join(FLIGHTS)} WHERE f.tailnum = g.tailnum"
    " AND g.carrier = h.carrier"
)


def planned(names: Any, text: str, **options: Any) -> Plan:
    return plan_changes(bind(parse_query(text), text, names), names, **options)


@pytest.fixture
def known() -> ObservedStatistics:
    return ObservedStatistics({}, None)


@pytest.mark.parametrize("factor", [0.01, 1.0, 30.0])
def test_an_edge_is_estimated_as_it_was_measured(
    names: Any, known: ObservedStatistics, factor: float
) -> None:
    plan = planned(names, THREE, known=known)
    expected = estimate_nodes(plan.root, known)
    rates = {key: factor * e.output.changes for key, e in expected.items()}
    found = find_corrections(plan.nodes(), rates, known)
    corrected = estimate_nodes(plan.root, known.correct(found))
    for node in plan.nodes():
        if node.name not in ("expire", "kept elements", "window"):
            measured = pytest.approx(rates[node.key], rel=1e-2, abs=1e-2)
            assert corrected[node.key].output.changes == measured, node.name


def test_a_join_is_named_by_what_it_joins_in_any_order(names: Any) -> None:
    written = planned(names, THREE)
    last = next(n for n in written.nodes() if getattr(n, "group", ""))
    other = planned(names, THREE, choices={last.logical_key: Choice(order=(1, 0, 2))})
    named = [
        {name_result(n): n.key for n in plan.nodes() if n.name == "join"}
        for plan in (written, other)
    ]
    assert named[0].keys() == named[1].keys()
    assert named[0] != named[1]
    turned = planned(names, THREE, choices={last.logical_key: Choice(order=(2, 1, 0))})
    assert {name_result(n) for n in turned.nodes() if n.name == "join"} != named[0].keys()
