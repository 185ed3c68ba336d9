"""Window functions in the order of time over rows that never leave: nothing is answered anew."""

from __future__ import annotations

import pytest
from tests.oracle.world import World
from tests.tools.changes_play import check_changes, plan_query

from millpond.operators.recompute import Recompute
from millpond.operators.recompute_groups import RecomputeGroups
from millpond.operators.running_frames import RunningFrames

SECOND = 1_000_000
CUTS = [0, 3 * SECOND, 3 * SECOND + 1, 9 * SECOND, 40 * SECOND]
T = "ORDER BY ts"
K = "PARTITION BY k ORDER BY ts"

RUNNING = [
    f"SELECT k, v, row_number() OVER ({T}) AS n, rank() OVER ({T}) AS r FROM s",
    f"SELECT v, dense_rank() OVER ({K}) AS d, rank() OVER ({K}) AS r FROM s WHERE v > 1",
    "SELECT k, row_number() OVER () AS n, row_number() OVER (PARTITION BY k) AS m FROM s",
    f"SELECT *, sum(v) OVER ({T}) + 1 AS total, count(*) OVER ({T}) AS n FROM s",
    f"SELECT k, sum(v) OVER ({K}) AS t, avg(v) OVER ({K}) AS a, sum(v) OVER ({T}) AS o FROM s",
    f"SELECT k, min(v) OVER ({T} ROWS 3 PRECEDING) AS m, max(k) OVER ({K} ROWS 1 PRECEDING) AS x"
    " FROM s",
    f"SELECT count(*) OVER ({T} ROWS BETWEEN 4 PRECEDING AND 2 PRECEDING) AS n,"
    f" sum(v) OVER ({K} ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) AS t FROM s",
    f"SELECT sum(v) OVER ({T} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS t FROM s",
    f"SELECT v, count(*) OVER ({T} ROWS BETWEEN CURRENT ROW AND CURRENT ROW) AS n FROM s",
    f"SELECT v, sum(v) OVER ({T} RANGE INTERVAL 2 SECONDS PRECEDING) AS t,"
    f" count(v) OVER ({K} RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW) AS n FROM s",
    f"SELECT v, max(v) OVER ({K} RANGE CURRENT ROW) AS m FROM s",
    f"SELECT v, lag(v) OVER ({T}) AS b, lag(v, 3, -1) OVER ({K}) AS c FROM s",
    "SELECT v, lag(v + 1, 2, v) OVER (PARTITION BY v % 2) AS b FROM s",
    f"SELECT first_value(v) OVER ({K}) AS f, first(k) OVER ({T} ROWS UNBOUNDED PRECEDING) AS g"
    " FROM s",
    f"SELECT sum(v) FILTER (WHERE k = 'a') OVER ({T}) AS t, count(DISTINCT v) OVER ({K}) AS n,"
    f" median(v) OVER ({T} ROWS 5 PRECEDING) AS m, round(stddev(v) OVER ({K}), 6) AS d FROM s",
    f"SELECT k, v FROM s QUALIFY row_number() OVER ({K}) = 1",
    f"SELECT k, lag(v) OVER ({T}) AS b FROM s QUALIFY b > 2 AND v > 0",
    f"SELECT k, max(n) AS most FROM (SELECT k, row_number() OVER ({K}) AS n FROM s) q GROUP BY k",
    f"SELECT ts, sum(d) OVER ({T}) AS t FROM (SELECT ts, v - lag(v) OVER ({K}) AS d FROM s) q",
    f"SELECT x.n, y.v FROM (SELECT k, row_number() OVER ({T}) AS n FROM s) x,"
    " t [RANGE 2 SECONDS] y WHERE x.k = y.k",
    f"SELECT DISTINCT k, v - lag(v) OVER ({K}) AS d FROM s",
]

#: Each is answered by group, or whole.
ANEW = [
    f"SELECT row_number() OVER ({K}) AS n FROM s [RANGE 3 SECONDS]",
    f"SELECT row_number() OVER ({T}) AS n FROM s [ROWS 5]",
    "SELECT row_number() OVER (ORDER BY ts DESC) AS n FROM s",
    "SELECT row_number() OVER (ORDER BY ts, v) AS n FROM s",
    "SELECT rank() OVER (ORDER BY v) AS n FROM s",
    "SELECT count(*) OVER (PARTITION BY k) AS n FROM s",
    f"SELECT lead(v) OVER ({T}) AS n FROM s",
    f"SELECT lag(v, -1) OVER ({T}) AS n FROM s",
    f"SELECT lag(v IGNORE NULLS) OVER ({K}) AS n FROM s",
    f"SELECT sum(v) OVER ({T} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS n FROM s",
    f"SELECT sum(v) OVER ({T} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) AS n FROM s",
    f"SELECT last_value(v) OVER ({K}) AS n FROM s",
    f"SELECT percent_rank() OVER ({K}) AS n FROM s",
    f"SELECT row_number() OVER ({T}) AS n, ntile(2) OVER ({T}) AS m FROM s",
    "SELECT row_number() OVER (ORDER BY x.ts) AS n FROM s x, t y WHERE x.k = y.k",
]


@pytest.mark.parametrize("text", RUNNING)
def test_what_runs_is_right(world: World, text: str) -> None:
    plan = check_changes(world, text, CUTS, pickled=True)
    assert plan.fallback is None, plan.fallback
    kinds = {type(node) for node in plan.nodes()}
    assert RunningFrames in kinds
    assert kinds.isdisjoint((Recompute, RecomputeGroups))


@pytest.mark.parametrize("text", ANEW)
def test_the_rest_is_answered_anew(world: World, text: str) -> None:
    kinds = {type(node) for node in plan_query(world, text).nodes()}
    assert not kinds.isdisjoint((Recompute, RecomputeGroups))
    assert RunningFrames not in kinds
    check_changes(world, text, CUTS)
