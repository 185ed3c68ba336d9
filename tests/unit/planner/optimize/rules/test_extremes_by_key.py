"""`planner/optimize/rules/extremes_by_key.py`: extremes of pairs without pairs, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import plan_query
from tests.tools.joined_feeds import COLUMNS, JOIN, make_pond, plan_by, run_often

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.operators.group_by import GroupBy
from millpond.operators.join import Join
from millpond.operators.protocol.cost_model import ColumnEstimate
from millpond.operators.structures import pairs
from millpond.planner.dataflow.plan import Plan, list_in_order
from millpond.planner.optimize.cost import find_cheapest
from millpond.planner.optimize.rules.extremes_by_key import extremes_by_key
from millpond.planner.optimize.rules.sum_by_key import sum_by_key, sum_further
from millpond.planner.optimize.statistics import GuessedStatistics

OUTER = {side: JOIN.replace("JOIN", f"{side} JOIN") for side in ("LEFT", "RIGHT", "FULL")}
CHAIN = (
    "FROM s [RANGE 2 SECONDS] a, t [RANGE 2 SECONDS] b, t [RANGE 3 SECONDS] c"
    " WHERE a.k = b.k AND b.k = c.k"
)
#: A query, how many of its joins are of what is there once, and how many are of pairs.
DIVIDED = {
    f"SELECT max(t.d) AS x {JOIN}": (1, 0),
    f"SELECT s.g, min(t.d) AS x, max(t.d) AS y, min(s.n) AS z {JOIN} GROUP BY s.g": (2, 0),
    f"SELECT s.g, t.g AS h, min(t.g) AS x, max(s.e) AS y {JOIN} GROUP BY s.g, t.g": (2, 0),
    f"SELECT s.k, min(s.k) AS x, max(t.f) AS y {JOIN} GROUP BY s.k": (2, 0),
    f"SELECT s.g, count(DISTINCT t.n) AS x, sum(DISTINCT t.n) AS y {JOIN} GROUP BY s.g": (1, 0),
    f"SELECT t.g, count(DISTINCT s.d) AS x, max(s.d) AS y {JOIN} GROUP BY t.g": (2, 0),
    f"SELECT s.g, count(*) AS c, min(t.d) AS x, sum(t.d) AS y, avg(s.n) AS z {JOIN} GROUP BY s.g": (
        1,
        1,
    ),
    f"SELECT t.g, max(s.n) AS x, count(*) FILTER (WHERE t.n > 0) AS y, max(s.n) FILTER"
    f" (WHERE t.d > 0) AS z, bool_or(s.n > t.n) AS w, median(t.d) AS m {JOIN} GROUP BY t.g": (1, 1),
    f"SELECT s.n % 2 AS odd, max(t.g) AS x, sum(s.n % 7 + t.n % 7) AS y {JOIN} GROUP BY 1": (1, 1),
    f"SELECT s.g, min(t.d) AS x {JOIN} GROUP BY s.g HAVING max(t.n) > 0": (1, 0),
    f"SELECT a.g, max(c.d) AS x {CHAIN} GROUP BY a.g": (1, 1),
    f"SELECT c.g, max(a.d) AS x, count(*) AS n {CHAIN} GROUP BY c.g": (2, 2),
    f"SELECT h, min(x) AS y, max(z) AS w FROM"
    f" (SELECT s.g || 'x' AS h, t.d AS x, s.n AS z {JOIN}) q GROUP BY h": (2, 0),
    f"SELECT h, min(x) AS y, sum(z) AS w FROM"
    f" (SELECT s.g || 'x' AS h, t.d AS x, s.n % 3 AS z {JOIN}) q GROUP BY h": (1, 1),
    f"SELECT max(x) AS y, count(*) AS n FROM"
    f" (SELECT s.d AS x {JOIN} UNION ALL SELECT d FROM t) q": (1, 1),
}
#: Beside an extreme, a count of pairs: nothing tells these apart.
BESIDE = (
    f"SELECT count(*) AS n, max(t.d) AS x {JOIN}",
    f"SELECT s.g, count(*) AS n, min(s.n) AS x, max(t.d) AS y {JOIN} GROUP BY s.g",
    f"SELECT h, count(*) AS n, max(x) AS y FROM"
    f" (SELECT s.g || 'x' AS h, t.d AS x, s.d + t.d AS z {JOIN}) q GROUP BY h",
)
DIVIDED |= {BESIDE[0]: (1, 1), BESIDE[1]: (2, 1), BESIDE[2]: (1, 1)}
for _from in OUTER.values():
    DIVIDED |= {
        f"SELECT s.g, min(t.d) AS x, max(s.n) AS y {_from} GROUP BY s.g": (2, 0),
        f"SELECT t.g, max(s.e) AS x, count(*) AS c, avg(t.n) AS y {_from} GROUP BY t.g": (1, 1),
    }
#: Aggregates of which pairs are few anyway.
FEW_VALUES = f"SELECT s.g, bool_or(t.g = 'a') AS x, bool_and(s.k > 0) AS y {JOIN} GROUP BY s.g"
#: Queries whose extremes are of pairs.
PAIRS = (
    f"SELECT max(t.d) AS x {JOIN} AND s.n < t.n",
    f"SELECT max(s.n + t.n) AS x {JOIN} AND s.n % 5 = 0 AND t.n % 5 = 0",
    f"SELECT s.d, max(t.n) AS x {JOIN} GROUP BY s.d",  # 0.0 and -0.0 are one group of two keys
    f"SELECT max(x) AS y FROM (SELECT s.d AS x {JOIN} LIMIT 5)",
    f"SELECT median(t.d) AS x {JOIN}",
)


@pytest.fixture
def pond() -> OraclePond:
    return make_pond()


def count_joins(plan: Plan) -> tuple[int, int]:
    """How many joins are of what is there once, and how many are others."""
    joins = [n for n in list_in_order([plan.root]) if isinstance(n, Join)]
    once = sum(all(isinstance(i, GroupBy) for i in n.inputs) for n in joins)
    return once, len(joins) - once


@pytest.mark.parametrize("text", DIVIDED)
def test_extremes_of_extremes_are_extremes_of_pairs(pond: OraclePond, text: str) -> None:
    plan = plan_query(pond.world, text)
    pairs = plan_by(plan, ())
    divided = plan_by(plan, (extremes_by_key,))
    summed = plan_by(plan, (extremes_by_key, sum_by_key, sum_further))
    assert count_joins(pairs)[0] == 0
    assert count_joins(divided) == DIVIDED[text]
    run_often(text, [pairs, divided, summed], 4)


@pytest.mark.parametrize("text", PAIRS)
def test_what_needs_pairs_gets_pairs(pond: OraclePond, text: str) -> None:
    plan = plan_query(pond.world, text)
    assert count_joins(plan_by(plan, (extremes_by_key,)))[0] == 0


class _Keyed(GuessedStatistics):
    """Streams with a key, few values of g, and many values of other columns."""

    def __init__(self, repeat: float) -> None:
        self._repeats = {"k": repeat, "g": 0.2}

    def rate(self, stream: str) -> float:
        return 1_000.0

    def column(self, stream: str, column: str) -> ColumnEstimate:
        repeat = self._repeats.get(column, 1e-5)
        return ColumnEstimate(1 / repeat, repeat)


def test_pairs_are_avoided_where_that_costs_less(pond: OraclePond) -> None:
    for text in list(DIVIDED)[:7]:
        plan = plan_query(pond.world, text)
        for repeat, once in ((0.25, DIVIDED[text][0]), (1e-6, 0)):
            cheapest = find_cheapest(plan.root, _Keyed(repeat))
            assert count_joins(replace(plan, root=cheapest))[0] == once, text


@pytest.mark.parametrize("text", [*list(DIVIDED)[:7], *list(DIVIDED)[9:12], FEW_VALUES, *BESIDE])
def test_a_hot_key_stops_no_extreme(
    pond: OraclePond, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "MOST_ROWS", 5_000)
    rows = 400
    stamps = pa.array(range(0, rows * 1000, 1000), pa.int64())
    numbers = pa.array(range(rows))
    feed = pa.table(
        {name: pa.nulls(rows, type_) for name, type_ in COLUMNS.items()}
        | {"k": pa.array([1] * rows, pa.int32()), "n": numbers, "d": numbers.cast(pa.float64())}
        | {"__ts": stamps, "__seq": stamps}
    )
    failed = []
    plan = plan_query(pond.world, text)
    for rules in ((), (extremes_by_key, sum_by_key, sum_further)):
        own = plan_by(plan, rules)
        flow = Dataflow(own)
        flow.advance({"s": feed, "t": feed}, 2 * 1_000_000)
        failed.append([error.code for error in flow.failed.values()])
    assert failed == [["POND-405"], []]
