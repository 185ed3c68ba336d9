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
        assert set(costs) == {"nobody", *QUERIES}
        assert {name for name, cost in costs.items() if cost.followed} == set(QUERIES)
        entities = [e for e in pond.entities.every() if e.id.startswith("operator:")]
        for figure, name in (("memory", "bytes"), ("seconds", "seconds")):
            shares = sum(getattr(cost, figure) for cost in costs.values())
            assert shares == pytest.approx(sum(e.figures[name] for e in entities), rel=1e-2)
        assert costs["more"].memory > costs["kinds"].memory / 10
        assert costs["counts"].shared > 0
        assert costs["kinds"].exact
        assert costs["kinds"].changes == 3
        assert costs["kinds"].pattern in ("WEAK", "WEAKEST")
        chosen = [q for q in pond.queries() if q.name in ("kinds", "nobody")]
        told = {cost.name: cost.followed for cost in pond.query_costs(chosen)}
        assert told == {"kinds": True, "nobody": False}
        nobody = costs["nobody"]
        assert (nobody.memory, nobody.seconds, nobody.pattern, nobody.up_to) == (0, 0, None, None)


def test_matching_and_answers_are_shared_by_the_queries_that_cause_them(tmp_path: Path) -> None:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
        pond.execute("CREATE QUERY one AS SELECT k FROM s [RANGE 1 HOUR] WHERE v > 1")
        pond.execute("CREATE QUERY same AS SELECT v FROM s [RANGE 1 HOUR] WHERE v > 1")
        pond.execute("CREATE QUERY lone AS SELECT k FROM s [RANGE 1 HOUR] WHERE v > 2")
        pond.execute("CREATE QUERY every AS SELECT k FROM s [RANGE 1 HOUR]")
        pond.ingest("s", [{"ts": "1970-01-01 00:00:01", "k": "a", "v": n} for n in range(50)])
        pond.catch_up()
        pond.query("lone").invoke()
        pond.query("lone").invoke()
        costs = {cost.name: cost for cost in pond.query_costs()}
        entities = {entity.id: entity.figures for entity in pond.entities.every()}
        spent = sum(f["seconds"] for id, f in entities.items() if id.startswith("filter:s."))
        assert spent > 0
        shares = sum(cost.matching for cost in costs.values())
        assert shares == pytest.approx(spent, rel=1e-2, abs=2e-6)
        size = entities["query stem:s"]["match bytes"]
        assert sum(cost.matches for cost in costs.values()) == pytest.approx(size)
        # Two queries of one predicate bear half of it each; who has none bears nothing.
        assert costs["one"].matching == costs["same"].matching == costs["lone"].matching / 2
        assert (costs["every"].matching, costs["every"].matches) == (0, 0)
        assert (costs["lone"].invocations, costs["one"].invocations) == (2, 0)
        assert costs["lone"].answering > 0


def test_what_is_not_there_costs_nothing(tmp_path: Path) -> None:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        costs = QueryCosts(pond._components)
        assert costs.list_costs() == []
        [cost] = costs.list_costs([QueryDef(7, "q", "SELECT 1")])
        assert (cost.matching, cost.memory, cost.invocations) == (0, 0, 0)
