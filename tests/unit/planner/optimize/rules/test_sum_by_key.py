"""`planner/optimize/rules/sum_by_key.py`: sums of pairs without pairs, to the last bit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import plan_query
from tests.tools.joined_feeds import COLUMNS, JOIN, make_pond, plan_by, run_often

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.operators.join import Join
from millpond.operators.protocol.cost_model import ColumnEstimate
from millpond.operators.structures import pairs
from millpond.planner.dataflow.plan import list_in_order
from millpond.planner.optimize.cost import find_cheapest
from millpond.planner.optimize.rules.sum_by_key import sum_by_key, sum_further
from millpond.planner.optimize.statistics import GuessedStatistics

LEFT = JOIN.replace("JOIN", "LEFT JOIN")
CHAIN = (
    "FROM s [RANGE 2 SECONDS] a, t [RANGE 2 SECONDS] b, t [RANGE 3 SECONDS] c"
    " WHERE a.k = b.k AND b.k = c.k"
)
#: A query, and the columns of the pairs of which sums are enough.
SUMMED = {
    f"SELECT count(*) AS c {JOIN}": 0,
    f"SELECT s.g, count(*) AS c, sum(t.d) AS x {JOIN} GROUP BY s.g": 1,
    f"SELECT t.g, sum(s.n) AS x, avg(t.e) AS y, avg(s.d) AS z {JOIN} GROUP BY t.g": 3,
    f"SELECT sum(s.e) AS x, count(t.n) AS y, sum(t.d) AS z, avg(t.d) AS w {JOIN}": 3,
    f"SELECT s.g, sum(t.n) FILTER (WHERE t.d > 0) AS x, max(t.d) AS y {JOIN} GROUP BY s.g": 1,
    f"SELECT s.g, sum(DISTINCT t.n) AS x, sum(s.d) AS y {JOIN} GROUP BY s.g": 1,
    "SELECT s.n % 2 AS odd, sum(s.n) AS x, sum(s.n % 7 + t.n % 7) AS y, sum(t.f) AS z"
    f" {JOIN} GROUP BY 1": 0,
    "SELECT a.g, sum(c.d) AS x FROM s [RANGE 2 SECONDS] a, t [RANGE 2 SECONDS] b,"
    " t [RANGE 2 SECONDS] c WHERE a.k = b.k AND b.k = c.k GROUP BY a.g": 1,
}
SUMMED |= {
    f"SELECT s.g, count(t.d) AS c, sum(t.d) AS x, count(*) AS a {LEFT} GROUP BY s.g": 1,
    f"SELECT t.g, avg(s.n) AS x, sum(t.e) AS y {LEFT} GROUP BY t.g": 2,
    f"SELECT h, sum(x) AS y, sum(z) AS w FROM"
    f" (SELECT s.g || 'x' AS h, t.d AS x, s.n % 3 AS z {JOIN}) q GROUP BY h": 1,
    f"SELECT sum(x) AS y FROM (SELECT s.d AS x {JOIN} UNION ALL SELECT d FROM t) q": 1,
}
SUMMED |= {
    f"SELECT CAST(s.d AS VARCHAR) AS h, sum(t.n) AS x {JOIN} GROUP BY 1": 1,
    f"SELECT CAST([s.d] AS VARCHAR) AS h, sum(t.n) AS x {JOIN} GROUP BY 1": 1,
    f"SELECT count(*) FILTER (WHERE CAST(t.f AS VARCHAR) = '-0.0') AS x {JOIN}": 0,
}
#: Queries of which several joins keep sums, and of how many columns each does, the last first.
CHAINS = {
    f"SELECT c.g, count(*) AS n, sum(a.d) AS x, avg(c.d) AS y {CHAIN} GROUP BY c.g": [2, 1],
    f"SELECT sum(a.n) AS x, sum(b.e) AS y, sum(c.d) AS z {CHAIN}": [3, 2],
    f"SELECT b.g, sum(a.d) AS x, count(b.d) AS y {CHAIN} GROUP BY b.g": [2, 2],
    "SELECT q.g, sum(q.d) AS x, sum(u.n) AS y FROM (SELECT s.g, t.k, s.d"
    f" {LEFT}) q JOIN s [RANGE 3 SECONDS] u ON q.k = u.k GROUP BY q.g": [2, 1],
}
#: Queries that need pairs.
PAIRS = (
    f"SELECT s.d, t.d AS e {JOIN}",
    f"SELECT count(*) AS c {JOIN} AND s.n < t.n",
    f"SELECT sum(x) AS y FROM (SELECT s.d AS x {JOIN} LIMIT 5)",
)


@pytest.fixture
def pond() -> OraclePond:
    return make_pond()


def list_sums(root: Any) -> list[int]:
    """How many columns each join that keeps sums adds up."""
    joins = [n for n in list_in_order([root]) if isinstance(n, Join)]
    return [len(n.sums) for n in joins if n.sums is not None]


@pytest.mark.parametrize("text", SUMMED)
def test_sums_of_sums_are_sums_of_pairs(pond: OraclePond, text: str) -> None:
    plan = plan_query(pond.world, text)
    pairs, sums = plan_by(plan, ()), plan_by(plan, (sum_by_key,))
    assert list_sums(pairs.root) == []
    assert list_sums(sums.root) == [SUMMED[text]]
    assert pairs.key != sums.key
    run_often(text, [pairs, sums])


@pytest.mark.parametrize("text", CHAINS)
def test_joins_below_joins_keep_sums_too(pond: OraclePond, text: str) -> None:
    plan = plan_query(pond.world, text)
    further = plan_by(plan, (sum_by_key, sum_further))
    assert list_sums(further.root)[::-1] == CHAINS[text]
    run_often(text, [plan_by(plan, ()), plan_by(plan, (sum_by_key,)), further], 4)


@pytest.mark.parametrize("text", PAIRS)
def test_what_needs_pairs_gets_pairs(pond: OraclePond, text: str) -> None:
    assert list_sums(plan_by(plan_query(pond.world, text), (sum_by_key,)).root) == []


class _Hot(GuessedStatistics):
    """A stream with one value in every other element."""

    def __init__(self, repeat: float) -> None:
        self._repeat = repeat

    def rate(self, stream: str) -> float:
        return 1_000.0

    def column(self, stream: str, column: str) -> ColumnEstimate:
        return ColumnEstimate(1 / self._repeat, self._repeat)


def test_sums_are_kept_where_they_cost_less(pond: OraclePond) -> None:
    for text in list(SUMMED)[:4]:
        plan = plan_query(pond.world, text)
        hot = find_cheapest(plan.root, _Hot(0.25))
        assert len(list_sums(hot)) == 1
        assert list_sums(find_cheapest(plan.root, _Hot(1e-6))) == []


def test_a_hot_key_stops_no_sum(pond: OraclePond, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "MOST_ROWS", 5_000)
    plan = plan_query(pond.world, next(iter(SUMMED)))
    rows = 400
    stamps = pa.array(range(0, rows * 1000, 1000), pa.int64())
    feed = pa.table(
        {name: pa.nulls(rows, type_) for name, type_ in COLUMNS.items()}
        | {"k": pa.array([1] * rows, pa.int32()), "__ts": stamps, "__seq": stamps}
    )
    failed = []
    for rules in ((), (sum_by_key,)):
        own = plan_by(plan, rules)
        flow = Dataflow(own)
        changes = flow.advance({"s": feed, "t": feed}, 2_000_000)
        failed.append([error.code for error in flow.failed.values()])
        if rules:
            assert changes[own.key]["c"].to_pylist()[-1] == rows * rows
    assert failed == [["POND-405"], []]
