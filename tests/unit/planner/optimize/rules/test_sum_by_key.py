"""`planner/optimize/rules/sum_by_key.py`: sums of pairs without pairs, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import plan_query, play_in_steps

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.operators import join
from millpond.operators.join import Join
from millpond.operators.protocol.cost_model import ColumnEstimate
from millpond.planner.dataflow.plan import Plan, list_in_order
from millpond.planner.optimize.cost import find_cheapest, strip_expire
from millpond.planner.optimize.rules import rewrite
from millpond.planner.optimize.rules.sum_by_key import sum_by_key
from millpond.planner.optimize.statistics import GuessedStatistics
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
COLUMNS = {
    "k": pa.int32(),
    "g": pa.string(),
    "d": pa.float64(),
    "n": pa.int64(),
    "e": pa.decimal128(12, 2),
    "f": pa.float32(),
}
JOIN = "FROM s [RANGE 3 SECONDS] JOIN t [RANGE 5 SECONDS] ON s.k = t.k"
LEFT = JOIN.replace("JOIN", "LEFT JOIN")
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
#: Queries that need pairs.
PAIRS = (
    f"SELECT s.d, t.d AS e {JOIN}",
    f"SELECT count(*) AS c {JOIN} AND s.n < t.n",
    f"SELECT sum(x) AS y FROM (SELECT s.d AS x {JOIN} LIMIT 5)",
)


@pytest.fixture
def pond() -> OraclePond:
    made = OraclePond(ManualClock())
    columns = "k INTEGER, g STRING, d DOUBLE, n BIGINT, e DECIMAL(12, 2), f FLOAT"
    for name in "st":
        made.execute(f"CREATE STREAM {name} (ts TIMESTAMP, {columns}) TIMESTAMP BY ts")
    return made


def keep_sums(plan: Plan, wanted: bool) -> Plan:
    """Plan a query with pairs, or with sums."""
    root = strip_expire(plan.root)
    if wanted:
        root = rewrite(root, (sum_by_key,))
    return replace(plan, root=find_cheapest(root, GuessedStatistics(), rules=()))


def list_sums(root: Any) -> list[int]:
    """How many columns each join that keeps sums adds up."""
    joins = [n for n in list_in_order([root]) if isinstance(n, Join)]
    return [len(n.sums) for n in joins if n.sums is not None]


def draw_feed(random: Random, rows: int) -> pa.Table:
    def draw(*values: Any) -> list[Any]:
        return [random.choice((None, *values)) for _ in range(rows)]

    doubles = (0.1, 1e300, -1e300, 5e-324, -0.0, 3.7, 1e-8, *map(float, ("inf", "nan")))
    wholes = ((1 << 63) - 1, -(1 << 63), 5, -7, 0)
    drawn = {
        "k": draw(1, 1, 1, 2, 3),
        "g": draw("a", "b"),
        "d": draw(*(doubles[: random.choice((7, 9))])),
        "n": draw(*wholes),
        "e": draw(Decimal("9999999999.99"), Decimal("-0.01"), Decimal("12.50")),
        "f": draw(0.1, 3.5e38, 1e-45),
    }
    stamps = sorted(random.randrange(20 * SECOND) for _ in range(rows))
    given = {name: pa.array(drawn[name], type_) for name, type_ in COLUMNS.items()}
    given |= {"__ts": pa.array(stamps, pa.int64()), "__seq": pa.array(range(rows), pa.int64())}
    return pa.table(given)


def run(plan: Plan, feeds: dict[str, pa.Table], cuts: list[int]) -> str:
    return repr(play_in_steps(plan, feeds, cuts))  # so that NaN is NaN


@pytest.mark.parametrize("text", SUMMED)
def test_sums_of_sums_are_sums_of_pairs(pond: OraclePond, text: str) -> None:
    plan = plan_query(pond.world, text)
    pairs, sums = keep_sums(plan, False), keep_sums(plan, True)
    assert list_sums(pairs.root) == []
    assert list_sums(sums.root) == [SUMMED[text]]
    assert pairs.key != sums.key
    for seed in range(12):
        random = Random(f"{text} {seed}")
        feeds = {name: draw_feed(random, random.choice((3, 20, 60))) for name in "st"}
        some = [[*sorted(random.sample(range(25 * SECOND), n)), 30 * SECOND] for n in (0, 3, 9)]
        expected = run(pairs, feeds, some[0])
        for cuts in some:
            assert run(sums, feeds, cuts) == expected


@pytest.mark.parametrize("text", PAIRS)
def test_what_needs_pairs_gets_pairs(pond: OraclePond, text: str) -> None:
    assert list_sums(keep_sums(plan_query(pond.world, text), True).root) == []


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
    monkeypatch.setattr(join, "MOST_ROWS", 5_000)
    plan = plan_query(pond.world, next(iter(SUMMED)))
    rows = 400
    stamps = pa.array(range(0, rows * 1000, 1000), pa.int64())
    feed = pa.table(
        {name: pa.nulls(rows, type_) for name, type_ in COLUMNS.items()}
        | {"k": pa.array([1] * rows, pa.int32()), "__ts": stamps, "__seq": stamps}
    )
    failed = []
    for wanted in (False, True):
        own = keep_sums(plan, wanted)
        flow = Dataflow(own)
        changes = flow.advance({"s": feed, "t": feed}, 2 * SECOND)
        failed.append([error.code for error in flow.failed.values()])
        if wanted:
            assert changes[own.key]["c"].to_pylist()[-1] == rows * rows
    assert failed == [["POND-405"], []]
