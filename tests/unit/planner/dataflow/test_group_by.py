"""Grouped queries as dataflows, held to the oracle; and what they are planned as."""

from __future__ import annotations

import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.oracle.world import World
from tests.tools.changes_play import check_changes, plan_query, run

from millpond.model.patterns import Pattern
from millpond.operators.aggregation import ordered_measures
from millpond.operators.aggregation.ordered_measures import HeldKeys
from millpond.operators.group_by import GroupBy, Grouping
from millpond.synopses.order_keys import OrderKeys

SECOND = 1_000_000


@pytest.fixture(scope="module")
def world() -> World:
    pond = OraclePond()
    pond.execute(
        "CREATE STREAM trades (at TIMESTAMP, symbol VARCHAR, price DOUBLE, size INTEGER, "
        "fee DECIMAL(9,2), buy BOOLEAN) TIMESTAMP BY at DELAY 0 SECONDS"
    )
    rows = []
    for i in range(60):
        symbol = (None, "a", "b", "c")[(i * 7) % 4]
        rows.append(
            {
                "at": f"1970-01-01 00:00:{(i * 2) // 3:02d}",
                "symbol": symbol,
                "price": None if i % 11 == 5 else (i * 37 % 23) / 4,
                "size": None if i % 7 == 3 else (i * 31) % 13 - 4,
                "fee": f"{(i * 53) % 900 / 100:.2f}",
                "buy": None if i % 5 == 0 else i % 3 == 0,
            }
        )
    pond.ingest("trades", rows)
    return pond.world


T = "trades [RANGE 7 SECONDS]"
INCREMENTAL = [
    f"SELECT symbol, COUNT(*) FROM {T} GROUP BY symbol",
    f"SELECT COUNT(*), SUM(size), AVG(price), MIN(symbol) FROM {T}",
    f"SELECT symbol s, SUM(size) * 2 + COUNT(*) AS x FROM {T} GROUP BY s HAVING COUNT(*) > 1",
    f"SELECT symbol, SUM(size) // 2 FROM {T} GROUP BY 1",
    f"SELECT upper(symbol) u, size % 3 AS m, MAX(price) - MIN(price) FROM {T} GROUP BY u, m",
    f"SELECT symbol, buy, COUNT(*) FROM {T} GROUP BY ALL",
    f"SELECT upper(symbol) || 'x', MAX(fee) FROM {T} GROUP BY symbol",
    f"SELECT symbol, COUNT(*) FILTER (WHERE buy), SUM(size) FILTER (size > 2) FROM {T} GROUP BY 1",
    f"SELECT symbol, COUNT(DISTINCT size), SUM(DISTINCT size) FROM {T} GROUP BY symbol",
    f"SELECT symbol, count_if(size > 3), bool_or(buy), bool_and(buy) FROM {T} GROUP BY symbol",
    f"SELECT median(price), quantile_disc(size, 0.25), quantile_cont(fee, 0.5) FROM {T}",
    f"SELECT percentile_cont(0.75) WITHIN GROUP (ORDER BY size) FROM {T}",
    f"SELECT symbol FROM {T} GROUP BY symbol",
    f"SELECT DISTINCT COUNT(*) FROM {T} GROUP BY symbol",
    f"SELECT symbol, SUM(price * size) AS turnover FROM {T} GROUP BY symbol HAVING turnover > 5",
    f"SELECT n, COUNT(*) FROM (SELECT symbol, COUNT(*) AS n FROM {T} GROUP BY symbol) GROUP BY n",
    f"SELECT a.symbol, SUM(a.size + b.size) FROM {T} a JOIN trades [RANGE 2 SECONDS] b "
    "ON a.symbol = b.symbol GROUP BY a.symbol",
    "SELECT symbol, COUNT(*) FROM trades GROUP BY symbol",
    "SELECT symbol, SUM(size) FROM trades [ROWS 9] GROUP BY symbol",
    "SELECT symbol, SUM(size) FROM trades [RANGE 6 SECONDS SLIDE 4 SECONDS] GROUP BY symbol",
    "SELECT MAX(price) FROM trades [NOW]",
    f"SELECT 1 FROM {T} HAVING COUNT(*) > 3",
    f"SELECT MAX(at), MIN(at) FROM {T}",
    f"SELECT symbol, COUNT(*) FROM {T} GROUP BY ROLLUP (symbol)",
    f"SELECT symbol, size > 2 AS big, SUM(size) AS n FROM {T} GROUP BY CUBE (symbol, big)",
    f"SELECT symbol, GROUPING(symbol), MAX(size) + 1 FROM {T} GROUP BY GROUPING SETS ((1), ())",
    f"SELECT DISTINCT COUNT(*) FROM {T} GROUP BY symbol, ROLLUP (size) HAVING COUNT(*) > 1",
    f"SELECT symbol, size FROM {T} GROUP BY GROUPING SETS (symbol, size, (symbol, size))"
    " ORDER BY 1, 2 LIMIT 3",
]

EXTREMES = "MIN(price), MAX(price), MAX(symbol), first(size), last(size), arg_max(size, price)"
#: Rows of which extremes are asked, and how these rows leave.
LEAVING = [
    (T, "WEAKEST"),
    ("trades [NOW]", "WEAKEST"),
    ("trades [RANGE 6 SECONDS SLIDE 4 SECONDS]", "WEAKEST"),
    (f"(SELECT * FROM {T} UNION ALL SELECT * FROM trades [RANGE 7 SECONDS] WHERE buy)", "STRICT"),
    (f"(SELECT * FROM {T} UNION ALL SELECT * FROM trades [RANGE 3 SECONDS])", "STRICT"),
    (f"(SELECT * FROM {T} UNION ALL SELECT * FROM trades)", "STRICT"),
    ("(SELECT * FROM trades UNION ALL SELECT * FROM trades)", "MONOTONIC"),
    ("trades", "MONOTONIC"),
    ("(SELECT DISTINCT symbol, price, size FROM trades)", "MONOTONIC"),
    (f"(SELECT DISTINCT symbol, price, size FROM {T})", "STRICT"),
    ("trades [ROWS 9]", "STRICT"),
    (f"{T} WHERE symbol IN (SELECT symbol FROM trades [RANGE 2 SECONDS])", "STRICT"),
]

CUTS = [0, 3 * SECOND, 3 * SECOND + 1, 20 * SECOND, 60 * SECOND]


@pytest.mark.parametrize("text", INCREMENTAL)
def test_grouped_queries_are_incremental_and_right(world: World, text: str) -> None:
    plan = check_changes(world, text, CUTS, pickled=True)
    assert plan.fallback is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"SELECT string_agg(DISTINCT symbol, ',' ORDER BY symbol) FROM {T}", "string_agg"),
        (f"SELECT bit_xor(size) FROM {T}", "bit_xor"),
        (f"SELECT COUNT(DISTINCT (symbol, size)) FROM {T}", "COUNT"),
    ],
)
def test_other_aggregates_are_answered_anew(world: World, text: str, reason: str) -> None:
    plan = check_changes(world, text, CUTS)
    assert plan.fallback is not None
    assert reason.lower() in plan.fallback.lower()


def test_queries_over_the_same_groups_share_them(world: World) -> None:
    """Aggregates and HAVING differ, the grouping and the measures do not."""
    base = "FROM trades [RANGE 7 SECONDS] GROUP BY symbol"
    texts = [
        f"SELECT symbol, SUM(size) {base}",
        f"SELECT symbol, AVG(size) {base} HAVING COUNT(*) > 2",
        f"SELECT symbol, COUNT(size), SUM(size) {base} HAVING SUM(size) > 4",
    ]
    plans = [plan_query(world, text) for text in texts]
    assert len({n.key for p in plans for n in p.nodes() if isinstance(n, Grouping)}) == 1
    assert len({n.key for p in plans for n in p.nodes() if isinstance(n, GroupBy)}) == 3
    alone = [run(world, [plan], CUTS)[0][plan.key] for plan in plans]
    together, flow = run(world, plans, CUTS)
    assert [together[plan.key] for plan in plans] == alone
    (grouping,) = [
        o for o in map(flow.operator, flow.sizes()) if type(o).__name__ == "GroupingRows"
    ]
    # How many rows, how many sizes, and their sum.
    assert len(grouping._measures._kept) == 3


@pytest.mark.parametrize(("rows", "leaving"), LEAVING)
def test_extremes_are_right_however_rows_leave(world: World, rows: str, leaving: str) -> None:
    calls = EXTREMES if rows.startswith("trades") else "MIN(price), MAX(price), MAX(symbol)"
    kept = []
    with pytest.MonkeyPatch.context() as patch:
        hold = ordered_measures.hold_keys

        def note(order: OrderKeys, kinds: tuple[int, ...], found: Pattern) -> HeldKeys:
            kept.append(found.name)
            return hold(order, kinds, found)

        patch.setattr(ordered_measures, "hold_keys", note)
        for text in (
            f"SELECT {calls} FROM {rows}",
            f"SELECT buy, {calls} FROM {rows} GROUP BY buy",
        ):
            if "DISTINCT" not in rows or "buy" not in text:
                check_changes(world, text, CUTS, pickled=True)
                check_changes(world, text, CUTS, spilled=True)
    assert set(kept) == {leaving}
