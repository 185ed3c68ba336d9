"""Rates are of the time in which data flow, and begin anew with other plans."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millpond.model.time import BEGINNING, LAST
from millpond.runtime.advance_job import AdvanceResult
from millpond.service.changes.noticing.flows import FlowMeter

SECOND = 1_000_000


def planned(*keys: str) -> Any:
    nodes = [SimpleNamespace(key=k, feed=("stream", k, ()) if k == "s" else None) for k in keys]
    return SimpleNamespace(nodes=lambda: nodes)


def note(meter: FlowMeter, position: int, upto: int, **given: int) -> None:
    job: Any = SimpleNamespace(position=position, upto=upto)
    meter.note(job, AdvanceResult(given=given))


@pytest.fixture
def meter() -> FlowMeter:
    meter = FlowMeter()
    meter.begin({1: planned("s", "join")})
    return meter


def test_rates_are_rows_a_second_of_stream_time(meter: FlowMeter) -> None:
    note(meter, 0, 2 * SECOND, s=10, join=4)
    note(meter, 2 * SECOND, 4 * SECOND, s=30)
    flows = meter.take("g", frozenset({1}))
    assert (flows.elements, flows.span, flows.steps) == (40, 4.0, 2)
    assert flows.rates == {"s": 10.0, "join": 1.0}
    assert meter.elements == 0
    assert meter.rates == flows.rates, "until there are newer ones"


@pytest.mark.parametrize(
    ("position", "upto", "given"),
    [
        (0, 9 * SECOND, {"join": 5}),
        (BEGINNING - 1, 9 * SECOND, {"s": 5}),
        (0, LAST, {"s": 5}),
    ],
    ids=["no elements", "from the beginning", "to the end"],
)
def test_time_without_a_rate_does_not_count(
    meter: FlowMeter, position: int, upto: int, given: dict[str, int]
) -> None:
    note(meter, position, upto, **given)
    assert (meter.span, meter.elements) == (0.0, 0)


def test_other_plans_begin_anew_and_keep_what_is_known_of_shared_operators(
    meter: FlowMeter,
) -> None:
    note(meter, 0, SECOND, s=10, join=4)
    meter.take("g", frozenset({1}))
    note(meter, SECOND, 2 * SECOND, s=10)
    meter.begin({1: planned("s", "distinct")})
    assert (meter.span, meter.elements) == (0.0, 0)
    assert meter.rates == {"s": 10.0}
