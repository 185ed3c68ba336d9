"""Two streams that are joined, with feeds of awkward values, for plans that need no pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import play_in_steps

from millpond.planner.dataflow.plan import Plan
from millpond.planner.optimize.cost import find_cheapest, strip_expire
from millpond.planner.optimize.rules import Rule, rewrite
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


def make_pond() -> OraclePond:
    """Make a pond with the streams s and t."""
    made = OraclePond(ManualClock())
    columns = "k INTEGER, g STRING, d DOUBLE, n BIGINT, e DECIMAL(12, 2), f FLOAT"
    for name in "st":
        made.execute(f"CREATE STREAM {name} (ts TIMESTAMP, {columns}) TIMESTAMP BY ts")
    return made


def plan_by(plan: Plan, rules: tuple[Rule, ...]) -> Plan:
    """Plan a query with some rewritings, whatever they cost."""
    root = rewrite(strip_expire(plan.root), rules)
    return replace(plan, root=find_cheapest(root, GuessedStatistics(), rules=()))


def draw_feed(random: Random, rows: int) -> pa.Table:
    """Draw a feed of values that sums and extremes may get wrong."""

    def draw(*values: Any) -> list[Any]:
        return [random.choice((None, *values)) for _ in range(rows)]

    doubles = (0.1, 1e300, -1e300, 5e-324, 0.0, -0.0, 3.7, 1e-8, *map(float, ("inf", "nan")))
    wholes = ((1 << 63) - 1, -(1 << 63), 5, -7, 0)
    drawn = {
        "k": draw(1, 1, 1, 2, 3),
        "g": draw("a", "b"),
        "d": draw(*(doubles[: random.choice((8, 10))])),
        "n": draw(*wholes),
        "e": draw(Decimal("9999999999.99"), Decimal("-0.01"), Decimal("12.50")),
        "f": draw(0.1, 3.5e38, 1e-45, 0.0, -0.0),
    }
    stamps = sorted(random.randrange(20 * SECOND) for _ in range(rows))
    given = {name: pa.array(drawn[name], type_) for name, type_ in COLUMNS.items()}
    given |= {"__ts": pa.array(stamps, pa.int64()), "__seq": pa.array(range(rows), pa.int64())}
    return pa.table(given)


def run(plan: Plan, feeds: dict[str, pa.Table], cuts: list[int]) -> str:
    """Run a plan over feeds in steps, and write its changes, so that NaN is NaN."""
    return repr(play_in_steps(plan, feeds, cuts))


def run_often(text: str, plans: Sequence[Plan], runs: int = 12) -> None:
    """Raise AssertionError if plans give different changes, over random feeds and steps."""
    for seed in range(runs):
        random = Random(f"{text} {seed}")
        feeds = {name: draw_feed(random, random.choice((3, 20, 60))) for name in "st"}
        some = [[*sorted(random.sample(range(25 * SECOND), n)), 30 * SECOND] for n in (0, 3, 9)]
        expected = run(plans[0], feeds, some[0])
        for cuts in some:
            for plan in plans[1:]:
                assert run(plan, feeds, cuts) == expected, f"{text} {seed} {cuts}"
