"""`planner/dataflow/bands.py`: rows near a value are found without looking at all."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import plan_query, play_in_steps

from millpond.operators.join import Join
from millpond.operators.semijoin import Semijoin
from millpond.planner.dataflow import joins
from millpond.planner.dataflow.plan import Plan, list_in_order
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
S, T = "s [RANGE 3 SECONDS]", "t [RANGE 5 SECONDS]"
#: Conditions that are bands.
BANDS = (
    "s.x BETWEEN t.x - 5 AND t.x + 5",
    "s.x >= t.x AND t.x + 3 > s.x",
    "t.b + 100 <= s.b AND s.b + 7 <= t.b + 120",
    "s.b - 2 BETWEEN t.x AND t.x + 0",
    "s.v < t.v AND s.x <= t.x + 2 AND (t.x - 40 < s.x)",
    "s.x + s.v BETWEEN t.v * 2 - 9 AND t.v * 2",
    "s.w BETWEEN t.w - INTERVAL '2' SECOND AND t.w + INTERVAL 300 MILLISECONDS",
    "t.w BETWEEN s.w + INTERVAL '1 second' AND s.w + INTERVAL '4 seconds'",
)
#: Others, of which some look like bands.
OTHERS = (
    "s.x < t.x AND s.b > t.b",
    "s.x >= t.x - 5",
    "s.x BETWEEN t.x + 5 AND t.x - 5",
    "s.d BETWEEN t.d - 1 AND t.d + 1",
    "s.w BETWEEN t.w - INTERVAL '1 month' AND t.w",
    "s.v = t.v AND s.x BETWEEN t.x - 5 AND t.x + 5",
)
FORMS = (
    f"SELECT s.i, t.i AS j FROM {S} JOIN {T} ON {{}}",
    f"SELECT s.i, t.i AS j FROM {S} FULL JOIN {T} ON {{}}",
    f"SELECT s.i FROM {S} WHERE EXISTS (SELECT 1 FROM {T} WHERE {{}})",
    f"SELECT s.i FROM {S} WHERE NOT EXISTS (SELECT 1 FROM {T} WHERE {{}})",
    f"SELECT t.i, count(*) AS n FROM {T}, {S} WHERE {{}} GROUP BY t.i",
)


@pytest.fixture
def pond() -> OraclePond:
    made = OraclePond(ManualClock())
    columns = "i INTEGER, x INTEGER, b BIGINT, v SMALLINT, d DOUBLE, w TIMESTAMP"
    for name in "st":
        made.execute(f"CREATE STREAM {name} (ts TIMESTAMP, {columns}) TIMESTAMP BY ts")
    return made


def count_keys(plan: Plan) -> list[int]:
    found = [n for n in list_in_order([plan.root]) if isinstance(n, Join | Semijoin)]
    return [len(n.left_keys) for n in found]


def draw_feed(random: Random, rows: int) -> pa.Table:
    """Draw values near each other, near zero, far away, at both ends, and none."""
    middle = random.choice((0, 17, -1_000, 2_000_000_000, -2_000_000_000))

    def near() -> int:
        return random.choice((middle, middle, 0, 0)) + random.randint(-12, 12)

    big = (1 << 62, -(1 << 62), 0)
    instants = [random.randint(-9 * SECOND, 9 * SECOND) for _ in range(rows)]
    stamps = sorted(random.randrange(20 * SECOND) for _ in range(rows))
    given = {
        "i": pa.array(range(rows), pa.int32()),
        "x": pa.array(
            [random.choice((None, near(), near(), near())) for _ in range(rows)], pa.int32()
        ),
        "b": pa.array(
            [random.choice(big) + random.randint(-120, 120) for _ in range(rows)], pa.int64()
        ),
        "v": pa.array([random.randint(-9, 9) for _ in range(rows)], pa.int16()),
        "d": pa.array([random.random() * 9 for _ in range(rows)], pa.float64()),
        "w": pa.array([random.choice((None, at, at, at)) for at in instants], pa.timestamp("us")),
        "__ts": pa.array(stamps, pa.int64()),
        "__seq": pa.array(range(rows), pa.int64()),
    }
    return pa.table(given)


@pytest.mark.parametrize("band", BANDS)
def test_bands_find_what_all_pairs_find(
    pond: OraclePond, monkeypatch: pytest.MonkeyPatch, band: str
) -> None:
    some = 0
    for form in FORMS:
        text = form.format(band)
        quick = plan_query(pond.world, text)
        assert set(count_keys(quick)) == {1}
        with monkeypatch.context() as patch:
            patch.setattr(joins, "find_band", lambda *given: None)
            slow = plan_query(pond.world, text)
        assert set(count_keys(slow)) == {0}
        for seed in range(4):
            random = Random(f"{text} {seed}")
            feeds = {name: draw_feed(random, random.choice((20, 60))) for name in "st"}
            cuts = [*sorted(random.sample(range(25 * SECOND), 3)), 30 * SECOND]
            expected = play_in_steps(slow, feeds, [30 * SECOND])
            assert play_in_steps(quick, feeds, cuts) == expected
            some += len(expected)
    assert some > 100


@pytest.mark.parametrize("other", OTHERS)
def test_other_conditions_are_no_bands(pond: OraclePond, other: str) -> None:
    plan = plan_query(pond.world, FORMS[0].format(other))
    assert count_keys(plan) == [int("=" in other.replace(">=", ""))]


def test_infinite_instants_are_near_each_other(pond: OraclePond) -> None:
    text = FORMS[0].format(BANDS[-2])
    plan = plan_query(pond.world, text)
    ends = [(1 << 63) - 1, -(1 << 63) + 1, 0]
    feed = pa.table(
        {
            "i": pa.array([1, 2, 3], pa.int32()),
            "w": pa.array(ends, pa.timestamp("us")),
            "__ts": pa.array([1, 1, 1], pa.int64()),
            "__seq": pa.array([0, 1, 2], pa.int64()),
        }
    )
    rest = {name: pa.nulls(3, t) for name, t in (("x", pa.int32()), ("b", pa.int64()))}
    for name, values in rest.items():
        feed = feed.append_column(name, values)
    feed = feed.append_column("v", pa.nulls(3, pa.int16())).append_column(
        "d", pa.nulls(3, pa.float64())
    )
    found = play_in_steps(plan, {"s": feed, "t": feed}, [SECOND])
    assert sorted((row["i"], row["j"]) for row in found) == [(1, 1), (2, 2), (3, 3)]
