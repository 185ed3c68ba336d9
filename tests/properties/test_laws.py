"""The laws of SEMANTICS section 7, over random scenarios, against the naive denotation.

A failure prints the scenario as a golden: put it into `tests/cql` with the answer it should have.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tools.golden import PondUnderTest
from tests.tools.oracle_laws import Conditions, check, meaning, play
from tests.tools.strategies import Scenario, recuts, scenarios

from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

#: The same examples every time: a failure on one machine is a failure on all.
LAW = settings(max_examples=10)

MODES = ("", "WITH (materialize = 'none')", "WITH (materialize = 'lazy')")


def in_process(store: Path, clock: ManualClock) -> PondUnderTest:
    return open_local(store, clock=clock)


@LAW
@given(scenarios(most_queries=6))
def test_law_1_an_answer_is_what_the_definition_says(scenario: Scenario) -> None:
    check(scenario, play(scenario, in_process), meaning(scenario), "law 1, meaning")


@LAW
@given(scenarios())
def test_law_2_when_a_query_is_registered_does_not_show(scenario: Scenario) -> None:
    expected = meaning(scenario)
    for when in ("first", "last"):
        actual = play(scenario, in_process, Conditions(registered=when))
        check(scenario, actual, expected, f"law 2, duality: registered {when}")


@settings(LAW, max_examples=5)
@given(scenarios(most_queries=4))
def test_law_3_company_does_not_show(scenario: Scenario) -> None:
    together = play(scenario, in_process)
    for number in range(len(scenario.queries)):
        alone = play(scenario, in_process, Conditions(only=number))
        check(scenario, alone, together, "law 3, sharing: alone, expected as together")


@LAW
@given(st.data())
def test_law_4_cuts_order_and_strategy_do_not_show(data: st.DataObject) -> None:
    scenario = data.draw(scenarios())
    expected = meaning(scenario)
    again = data.draw(recuts(scenario))
    check(again, meaning(again), expected, "law 4: the oracle itself")
    actual = play(again, in_process, Conditions(options=MODES[1:]))
    check(again, actual, expected, "law 4, batching, order and materialize")


@LAW
@given(st.data())
def test_law_5_restarts_do_not_show(data: st.DataObject) -> None:
    scenario = data.draw(scenarios())
    places = st.frozensets(st.integers(0, len(scenario.epochs)), min_size=1, max_size=4)
    actual = play(scenario, in_process, Conditions(reopen_before=data.draw(places)))
    check(scenario, actual, meaning(scenario), "law 5, restart")


@pytest.mark.slow
@settings(LAW, max_examples=120)
@given(st.data())
def test_the_laws_together(data: st.DataObject) -> None:
    scenario = data.draw(scenarios(most_queries=6))
    again = data.draw(recuts(scenario))
    places = st.frozensets(st.integers(0, len(again.epochs)), max_size=3)
    conditions = Conditions(
        registered=data.draw(st.sampled_from(("drawn", "first", "last"))),
        options=data.draw(st.lists(st.sampled_from(MODES), min_size=1, max_size=3)),
        reopen_before=data.draw(places),
    )
    check(again, play(again, in_process, conditions), meaning(scenario), f"{conditions}")
