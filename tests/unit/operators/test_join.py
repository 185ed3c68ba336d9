"""Joins of values with very many partners: bounded in memory, or the fault of one query alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import plan_query

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.operators import join, semijoin, shared_join
from millpond.operators.structures import pairs
from millpond.testing.manual_clock import ManualClock

SECOND, ROWS = 1_000_000, 200
WINDOW = "s [RANGE 9 SECONDS]"
QUERIES = {
    "hot key": f"SELECT x.v FROM {WINDOW} x, {WINDOW} y WHERE x.k = y.k",
    "hot key and a condition": f"SELECT x.v FROM {WINDOW} x, {WINDOW} y"
    " WHERE x.k = y.k AND x.v + 2 = y.v % 50",
    "band": f"SELECT x.v FROM {WINDOW} x, {WINDOW} y WHERE x.v < y.v AND y.v < x.v + 3",
    "exists": f"SELECT v FROM {WINDOW} x"
    f" WHERE EXISTS (SELECT 1 FROM {WINDOW} y WHERE y.v < x.v AND x.v < y.v + 3)",
}
#: One value of k, each of v once.
FEED = pa.table(
    {
        "k": pa.array([7] * ROWS, pa.int32()),
        "v": pa.array(np.random.default_rng(3).permutation(ROWS), pa.int32()),
        "__ts": pa.array(np.arange(ROWS) * SECOND // 10, pa.int64()),
        "__seq": pa.array(range(ROWS), pa.int64()),
    }
)


@pytest.fixture
def pond() -> OraclePond:
    made = OraclePond(ManualClock())
    made.execute("CREATE STREAM s (ts TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY ts")
    return made


def advance(flow: Dataflow, upto: int) -> dict[str, pa.Table]:
    low, high = (
        np.searchsorted(FEED["__ts"].to_numpy(), at, "right") for at in (flow.position, upto)
    )
    return flow.advance({"s": FEED.slice(low, high - low)}, upto)


@pytest.mark.parametrize("name", QUERIES)
def test_pairs_in_parts_are_the_changes_of_all_pairs_at_once(
    pond: OraclePond, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_query(pond.world, QUERIES[name])
    found = []
    for at_once in (1 << 22, 7, 150):
        for module in (join, semijoin, shared_join):
            monkeypatch.setattr(module, "PAIRS_AT_ONCE", at_once)
        flow = Dataflow(plan)
        found.append([advance(flow, upto)[plan.key] for upto in (5 * SECOND, 40 * SECOND)])
        assert not flow.failed
    assert found[0] == found[1] == found[2]
    assert sum(part.num_rows for part in found[0]) > 100


def test_a_join_of_too_many_rows_is_the_fault_of_its_query_alone(
    pond: OraclePond, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "MOST_ROWS", 5_000)
    hot, band = (plan_query(pond.world, QUERIES[name]) for name in ("hot key", "band"))
    flow = Dataflow(hot, band)
    changes = advance(flow, 40 * SECOND)
    assert set(flow.failed) == {hot.key}
    error = flow.failed[hot.key]
    assert error.code == "POND-405"
    assert "x.k = y.k" in (error.detail or "")
    assert changes[band.key].num_rows > 100
