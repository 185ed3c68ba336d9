"""The shares of queries add up to what all operators keep and take."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.catalog.objects import QueryDef
from millpond.service.observe.query_costs import QueryCosts
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

QUERIES = {
    "kinds": "SELECT DISTINCT k FROM s [RANGE 1 HOUR]",
    "counts": "SELECT k, count(*) AS n FROM s [RANGE 1 HOUR] GROUP BY k",
    "more": "SELECT k, count(*) AS n, max(v) AS m FROM s [RANGE 1 HOUR] GROUP BY k",
    "plain": "SELECT v FROM s [RANGE 1 HOUR] WHERE v > 1",
    "other": "SELECT v FROM s [RANGE 1 HOUR] WHERE v > 2",
}


def test_shares_add_up_to_all_there_is(tmp_path: Path) -> None:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
        pond.execute("CREATE QUERY nobody AS SELECT k FROM s [RANGE 1 HOUR]")
        for name, text in QUERIES.items():
            pond.execute(f"CREATE QUERY {name} AS {text}")
            pond.query(name).fetch()
        rows = [{"ts": f"1970-01-01 00:00:{n:02}", "k": "abc"[n % 3], "v": n} for n in range(40)]
        pond.ingest("s", rows)
        pond.catch_up()
        costs = {cost.name: cost for cost in pond.query_costs()}
        assert set(costs) == set(QUERIES)
        entities = [e for e in pond.entities.every() if e.id.startswith("operator:")]
        for figure, name in (("memory", "bytes"), ("seconds", "seconds")):
            shares = sum(getattr(cost, figure) for cost in costs.values())
            assert shares == pytest.approx(sum(e.figures[name] for e in entities), rel=1e-3)
        assert costs["more"].memory > costs["kinds"].memory / 10
        assert costs["counts"].shared > 0
        assert costs["kinds"].exact
        assert costs["kinds"].changes == 3
        assert costs["kinds"].pattern in ("WEAK", "WEAKEST")
        chosen = [q for q in pond.queries() if q.name in ("kinds", "nobody")]
        assert [cost.name for cost in pond.query_costs(chosen)] == ["kinds"]


def test_what_is_not_there_costs_nothing(tmp_path: Path) -> None:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        costs = QueryCosts(pond._components)
        assert costs.list_costs() == []
        assert costs.list_costs([QueryDef(7, "q", "SELECT 1")]) == []
