"""Queues between operators: who can run, what waits, what a failure lets go."""

from __future__ import annotations

import math

import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import plan_query

from millpond.engine.dataflow.arrangement import Arrangement
from millpond.engine.dataflow.queues import Queues
from millpond.operators.protocol.delta import Delta
from millpond.planner.dataflow.plan import Plan


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    pond = OraclePond()
    pond.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts")
    texts = ("SELECT k FROM s WHERE v > 1", "SELECT k, count(*) AS n FROM s GROUP BY k")
    made = [plan_query(pond.world, text) for text in texts]
    return {plan.key: plan for plan in made}


def put(queues: Queues, flow: Arrangement, place: int, size: int, now: float = 0.0) -> None:
    queues.take(place)
    queues.put(place, Delta.empty(flow.nodes[place].schema), size, now)


def ready(queues: Queues) -> list[tuple[int, int, float]]:
    return [(one.place, one.oldest, one.size) for one in queues.list_ready()]


def test_an_output_waits_until_its_last_reader_took_it(plans: dict[str, Plan]) -> None:
    flow = Arrangement(plans)
    (source,) = [place for place, below in enumerate(flow.inputs) if not below]
    first, second = flow.readers[source]
    queues = Queues(flow, lambda number: 100 - number)
    (one,) = queues.list_ready()
    assert (one.place, one.oldest, one.arrived, one.size) == (source, 0, math.inf, 100)
    queues.begin_slice(5.0, False)
    put(queues, flow, source, 40)
    assert ready(queues) == sorted([(source, 1, 99), (first, 0, 40), (second, 0, 40)])
    put(queues, flow, first, 7)
    assert queues.bytes == 47
    put(queues, flow, second, 3)
    assert queues.bytes == 10  # the last reader has taken the source's
    queues.begin_slice(9.0, True)
    put(queues, flow, source, 1)
    assert source not in [place for place, _, _ in ready(queues)]
    assert queues.figures.most_bytes == 47
    assert queues.figures.largest == 40
    assert queues.figures.most_slices == 3


def test_who_lends_its_state_runs_again_when_its_readers_have_run(plans: dict[str, Plan]) -> None:
    flow = Arrangement(plans)
    queues = Queues(flow, lambda number: 0)
    (grouping,) = [place for place, node in enumerate(flow.nodes) if node.lends]
    (reader,) = flow.readers[grouping]
    for now in (1.0, 2.0):
        queues.begin_slice(now, now == 2.0)
    below = grouping
    path = [below := flow.inputs[below][0] for _ in range(20) if flow.inputs[below]]
    for place in [*reversed(path), *reversed(path), grouping]:
        put(queues, flow, place, 1)
    places = [place for place, _, _ in ready(queues)]
    assert reader in places
    assert grouping not in places
    put(queues, flow, reader, 1, 8.0)
    assert grouping in [place for place, _, _ in ready(queues)]


def test_what_waits_for_an_operator_that_failed_is_let_go(plans: dict[str, Plan]) -> None:
    flow = Arrangement(plans)
    queues = Queues(flow, lambda number: 0)
    queues.begin_slice(1.0, True)
    (source,) = [place for place, below in enumerate(flow.inputs) if not below]
    put(queues, flow, source, 40)
    first, second = flow.readers[source]
    queues.take(first)
    queues.fail(first)
    assert ready(queues) == [(second, 0, 40)]
    put(queues, flow, second, 2)
    assert queues.bytes == 2
