"""By which columns plans are divided into shards, and which are not."""

from __future__ import annotations

import pytest
from tests.oracle.world import World
from tests.tools.changes_play import plan_query

from millpond.planner.dataflow.sharding import find_sharding

DIVIDED = {
    "SELECT k, v FROM s": {"s": "k"},
    "SELECT v + 1, k FROM s [RANGE 5 SECONDS] WHERE v > 2": {"s": "k"},
    "SELECT count(*), v FROM s [RANGE 5 SECONDS] GROUP BY v": {"s": "v"},
    "SELECT k, v, max(v) FROM s [RANGE 5 SECONDS] GROUP BY k, v HAVING count(*) > 1": {"s": "k"},
    "SELECT DISTINCT v FROM s [RANGE 5 SECONDS]": {"s": "v"},
    "SELECT a.k, a.v, b.v FROM s [RANGE 5 SECONDS] a JOIN t [RANGE 3 SECONDS] b ON a.k = b.k": {
        "s": "k",
        "t": "k",
    },
    "SELECT b.v, count(*) FROM s [RANGE 5 SECONDS] a JOIN t [RANGE 3 SECONDS] b ON a.v = b.v "
    "GROUP BY b.v": {"s": "v", "t": "v"},
    "SELECT k FROM s [RANGE 5 SECONDS] WHERE k NOT IN (SELECT k FROM t [RANGE 5 SECONDS])": None,
    "SELECT a.k FROM s [RANGE 5 SECONDS] a WHERE EXISTS "
    "(SELECT 1 FROM t [RANGE 5 SECONDS] b WHERE b.k = a.k)": {"s": "k", "t": "k"},
    "SELECT k FROM s [RANGE 5 SECONDS] UNION ALL SELECT k FROM t [RANGE 5 SECONDS]": {
        "s": "k",
        "t": "k",
    },
    "SELECT v FROM s [RANGE 5 SECONDS] EXCEPT SELECT v FROM t [RANGE 5 SECONDS]": {
        "s": "v",
        "t": "v",
    },
    "SELECT k, v FROM s [PARTITION BY v ROWS 3]": {"s": "v"},
    "SELECT k, v FROM s [ROWS 3]": None,
    "SELECT k, v, row_number() OVER (PARTITION BY k, v ORDER BY ts), lag(v) OVER (PARTITION BY v "
    "ORDER BY ts) FROM s": {"s": "v"},
    "SELECT k, sum(v) OVER (ORDER BY ts) FROM s": None,
    "SELECT count(*) FROM s [RANGE 5 SECONDS]": None,
    # Rows of two groups may be equal: what one gives cancels what another takes back.
    "SELECT count(*) FROM s [RANGE 5 SECONDS] GROUP BY k": None,
    "SELECT upper(k) u, count(*) FROM s [RANGE 5 SECONDS] GROUP BY u": None,
    "SELECT k FROM s [RANGE 5 SECONDS] ORDER BY k LIMIT 3": None,
    "SELECT a.k FROM s [RANGE 5 SECONDS] a, t [RANGE 5 SECONDS] b WHERE a.v < b.v": None,
    "SELECT a.k, b.k FROM s [RANGE 5 SECONDS] a JOIN s [RANGE 3 SECONDS] b ON a.k = b.k": {
        "s": "k"
    },
    "RSTREAM (SELECT k FROM s [RANGE 5 SECONDS])": None,
    "ISTREAM (SELECT k, count(*) FROM s [RANGE 5 SECONDS] GROUP BY k)": {"s": "k"},
}


@pytest.mark.parametrize("text", DIVIDED)
def test_by_what_a_plan_is_divided(world: World, text: str) -> None:
    assert find_sharding([plan_query(world, text)]) == DIVIDED[text]


def test_plans_are_divided_together_by_a_column_that_all_can_be_divided_by(world: World) -> None:
    both, by_k, by_v = (
        plan_query(world, f"SELECT {by}, count(*) AS n FROM s [RANGE 5 SECONDS] GROUP BY {by}")
        for by in ("k, v", "k", "v")
    )
    assert find_sharding([both, by_v]) == {"s": "v"}
    assert find_sharding([both, by_k, by_v]) is None
    assert find_sharding([]) is None
