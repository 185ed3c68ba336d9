"""Subqueries in expressions as dataflows: mark joins and lookups, held to the oracle."""

from __future__ import annotations

import pytest
from tests.oracle.world import World
from tests.tools.changes_play import check_changes, plan_query

SECOND = 1_000_000
CUTS = [0, 3 * SECOND, 3 * SECOND + 1, 9 * SECOND, 40 * SECOND]


S = "s [RANGE 3 SECONDS] x"
T = "t [RANGE 2 SECONDS] y"
ONE = f"(SELECT k, max(v) AS v FROM {T} GROUP BY k)"

INCREMENTAL = [
    f"SELECT v FROM {S} WHERE v > 4 OR EXISTS (SELECT 1 FROM {T} WHERE y.k = x.k)",
    f"SELECT v FROM {S} WHERE v > 4 OR NOT EXISTS (SELECT 1 FROM {T} WHERE y.v < x.v)",
    f"SELECT v, EXISTS (SELECT 1 FROM {T}) AS some FROM {S}",
    f"SELECT v, v IN (SELECT v FROM {T} WHERE y.k = x.k) AS known FROM {S}",
    f"SELECT v FROM {S} WHERE NOT (k = 'a' OR v IN (SELECT v FROM {T}))",
    f"SELECT v, v NOT IN (SELECT v FROM {T} WHERE v > 2) AS other FROM {S}",
    f"SELECT k, v < ANY (SELECT v FROM {T}) AS less, v >= ALL (SELECT v FROM {T}) FROM {S}",
    f"SELECT CASE WHEN v IN (SELECT v FROM {T}) THEN k ELSE 'none' END AS said FROM {S}",
    f"SELECT v FROM {S} WHERE v IN (SELECT v FROM {T}) OR k IN (SELECT k FROM {T})",
    f"SELECT v, (SELECT q.v FROM {ONE} q WHERE q.k = x.k) AS n FROM {S}",
    f"SELECT v, (SELECT q.v + 1 FROM {ONE} q WHERE q.k = x.k AND q.v > 1) AS n FROM {S}",
    f"SELECT v FROM {S} WHERE v >= (SELECT v FROM t [ROWS 1])",
    f"SELECT v, (SELECT k FROM {T} ORDER BY v, k LIMIT 1) AS least FROM {S}",
    f"SELECT v FROM {S} WHERE v <= (SELECT max(v) FROM {T}) OR EXISTS (SELECT 1 FROM t [NOW])",
    f"SELECT v FROM {S} WHERE v < ANY (SELECT v FROM {T})",
    f"SELECT v FROM {S} WHERE NOT v < ANY (SELECT v FROM {T})",
    f"SELECT v FROM {S} WHERE v >= ALL (SELECT v FROM {T} WHERE y.k = x.k)",
    f"SELECT v FROM {S} WHERE NOT v >= ALL (SELECT v FROM {T})",
]

ANEW = [
    (f"SELECT v, (SELECT v FROM {T} LIMIT 2) AS n FROM {S}", "several rows"),
    (f"SELECT v FROM {S} WHERE v > 4 OR (k, v) IN (SELECT k, v FROM {T})", "several columns"),
    (
        f"SELECT v, (SELECT max(v) FROM {T} WHERE y.v < x.v) AS n FROM {S}",
        "not correlated by equality",
    ),
]


@pytest.mark.parametrize("text", INCREMENTAL)
def test_subqueries_in_expressions_are_incremental_and_right(world: World, text: str) -> None:
    plan = check_changes(world, text, CUTS, pickled=True)
    assert plan.fallback is None, plan.fallback


@pytest.mark.parametrize(("text", "reason"), ANEW)
def test_what_is_answered_anew_says_why(world: World, text: str, reason: str) -> None:
    plan = plan_query(world, text)
    assert plan.fallback is not None
    assert reason in plan.fallback
