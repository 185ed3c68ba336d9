"""How often state drops what has expired: what intervals leave in it, and who decides."""

from __future__ import annotations

import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import BEFORE, feeds, plan_query

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.model.time import to_datetime
from millpond.operators.protocol.purging import Purging
from millpond.planner.dataflow.plan import Plan

SECOND = 1_000_000
JOIN = "SELECT a.v, b.v AS w FROM s [RANGE 10 SECONDS] a, s [RANGE 10 SECONDS] b WHERE a.v = b.v"
DISTINCT = "SELECT DISTINCT v FROM s [RANGE 10 SECONDS]"


@pytest.fixture(scope="module")
def pond() -> OraclePond:
    """An element a second, no two of one value."""
    pond = OraclePond()
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.ingest("s", [{"ts": to_datetime(at * SECOND), "v": at} for at in range(1, 300)])
    return pond


def most(pond: OraclePond, flow: Dataflow, of: Plan, since: int, upto: int) -> int:
    """The most rows that a plan's state which purges has kept, second by second."""
    kept, purging = 0, [node.key for node in of.nodes() if node.purges]
    for second in range(since, upto):
        fed = feeds(pond.world, flow, flow.position, second * SECOND)
        flow.advance(fed, second * SECOND)
        sizes = flow.sizes()
        kept = max(kept, sum(sizes[key] for key in purging))
    return kept


def plan(pond: OraclePond, text: str, lazy: int | None, strategy: str = "aware") -> Plan:
    seconds = None if lazy is None else lazy * SECOND
    return plan_query(pond.world, text, lazy_expiration=seconds, strategy=strategy)


@pytest.mark.parametrize(
    ("text", "strategy", "alive"),
    [(JOIN, "aware", 20), (DISTINCT, "aware", 10), (DISTINCT, "direct", 20)],
)
def test_state_keeps_what_is_alive_and_an_interval_of_what_has_expired(
    pond: OraclePond, text: str, strategy: str, alive: int
) -> None:
    a_second = alive // 10
    for interval in (0, 1, 20, 80):
        kept = _kept(pond, plan(pond, text, interval, strategy))
        assert alive + a_second * (interval - 2) <= kept <= alive + a_second * (interval + 1)
    assert _kept(pond, plan(pond, text, 100_000, strategy)) == a_second * 199


def _kept(pond: OraclePond, plan: Plan) -> int:
    return most(pond, Dataflow(plan, since=BEFORE), plan, 1, 200)


def test_what_is_shared_is_purged_as_the_least_patient_wants(pond: OraclePond) -> None:
    patient, other = plan(pond, JOIN, 100), plan(pond, JOIN.replace("w FROM", "u FROM"), 20)
    assert patient.root.key == other.root.key
    flow = Dataflow(patient, since=BEFORE)
    assert most(pond, flow, patient, 1, 100) > 150
    flow.attach(_at_the_same_place(pond, other, flow))
    assert most(pond, flow, patient, 100, 150) <= 20 + 2 * 21
    flow.detach(other.key)
    assert most(pond, flow, patient, 150, 200) > 20 + 2 * 40
    # Of queries that have one plan each may say something else.
    flow.purge({patient.key: [100 * SECOND, 0]})
    assert most(pond, flow, patient, 200, 250) <= 22


def _at_the_same_place(pond: OraclePond, plan: Plan, flow: Dataflow) -> Dataflow:
    other = Dataflow(plan, since=BEFORE)
    other.advance(feeds(pond.world, other, other.position, flow.position), flow.position)
    return other


def test_negative_tuples_are_added_up_however_long_the_interval(pond: OraclePond) -> None:
    assert _kept(pond, plan(pond, JOIN, 100_000, "negative")) <= 100


def test_when_it_is_time() -> None:
    purging = Purging()
    assert [purging.is_due(at) for at in (1, 5, 9)] == [False] * 3
    assert purging.by_share
    purging.set_intervals([None, 10, 4])
    due = [at for at in (3, 3, 4, 7, 8, 9, 20, 21) if purging.is_due(at)]
    assert due == [3, 4, 8, 20]
    assert purging.by_share
    purging.set_intervals([0])
    assert [purging.is_due(at) for at in (20, 21, 22)] == [True] * 3
    assert not purging.by_share
