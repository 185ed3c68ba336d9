"""What a running pond says of itself: plans with what was measured, control tables, metrics."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.service.conftest import SECOND, rows

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock


@pytest.fixture
def s(pond: Pond) -> Pond:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER, k VARCHAR) TIMESTAMP BY ts;"
        "CREATE STREAM clocked (v INTEGER); CREATE RELATION r (v INTEGER)"
    )
    return pond


def sample(pond: Pond, name: str, **labels: str) -> float | None:
    found: float | None = pond.metrics.get_sample_value(f"millpond_{name}", labels)
    return found


def line(text: str, start: str) -> str:
    (found,) = [x.strip() for x in text.split("\n") if x.strip().startswith(start)]
    return found


def test_a_query_says_what_was_measured(s: Pond) -> None:
    query = s.register("SELECT v FROM s WHERE v >= 6 AND k LIKE '%b'")
    s.register("SELECT v FROM s WHERE v >= 6 AND k LIKE '%b' AND v < 100")
    s.ingest("s", [{"ts": "2024-01-01", "v": v, "k": "ab"[v % 2]} for v in range(10)])
    s.wait_until_matched()
    plan = query.plan("runtime")
    assert line(plan, "matches") == "matches: 2"
    assert line(plan, "rate") == "rate: 10 elements/s"
    assert line(plan, "grouped filter on v: 4").startswith("grouped filter on v: 40.0% survive, ")
    assert line(plan, "other factors: ").startswith("other factors: 50.0% survive, ")
    assert "rate" not in query.plan("shared")


def test_matches_are_not_known_without_a_slot(s: Pond) -> None:
    query = s.register("SELECT v FROM s WHERE v > 1", materialize="none")
    assert line(query.plan("runtime"), "matches") == "matches: none"


def test_what_all_queries_share(s: Pond) -> None:
    s.register("SELECT v FROM s WHERE v > 1")
    s.register("SELECT k FROM s WHERE v > 1")
    s.register("SELECT v FROM s WHERE v > 2")
    s.ingest("s", rows(1, 2, 3))
    plan = s.shared_plan()
    assert "stream s\n  3 elements, 3 elements/s, 1 segment\n" in plan
    assert "  query stem: 2 predicates of 3 queries\n" in plan
    assert "stream clocked\n  0 elements, 0 elements/s, 0 segments\n" in plan
    assert "relation r: " in plan


def test_rates_are_of_the_last_minute(s: Pond, clock: ManualClock) -> None:
    def rate() -> float | None:
        return sample(s, "stream_rate", stream="s")

    assert rate() == 0
    s.ingest("s", rows(*range(30)))
    clock.set(clock() + 30 * SECOND)
    assert rate() == 1
    s.ingest("s", rows(*range(30, 120)))
    assert rate() == 4
    clock.set(clock() + 50 * SECOND)
    assert rate() == 1.5
    clock.set(clock() + 3600 * SECOND)
    assert rate() == 0


def test_freshness_is_from_arrival_to_epoch(s: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    s.ingest("s", rows(1))
    before = sample(s, "freshness_seconds_sum") or 0.0
    now = s._components.clock()
    # The epoch comes three seconds after the push was accepted.
    commit = s._components.sequencer.commit

    def late(*arguments: Any) -> None:
        monkeypatch.setattr(s._components, "clock", lambda: now + 3 * SECOND)
        commit(*arguments)

    monkeypatch.setattr(s._components.sequencer, "commit", late)
    s.ingest("s", rows(2))
    assert sample(s, "freshness_seconds_count") == 2
    assert (sample(s, "freshness_seconds_sum") or 0.0) - before == 3


def test_modules_are_metrics(s: Pond) -> None:
    s.register("SELECT v FROM s WHERE v >= 6 AND k LIKE '%b'")
    s.ingest("s", [{"ts": "2024-01-01", "v": v, "k": "ab"[v % 2]} for v in range(10)])
    assert sample(s, "filter_survival", stream="s", module="v") == 0.4
    assert sample(s, "filter_survival", stream="s", module="other factors") == 0.5
    assert (sample(s, "filter_cost_seconds", stream="s", module="v") or 0) > 0


def test_control_tables(s: Pond) -> None:
    s.function("looked_at", lambda x: x, arguments=["DOUBLE"], returns="DOUBLE")
    s.register("SELECT v FROM s WHERE v > 1 AND looked_at(v) > 1", "q", materialize="eager")
    s.ingest("s", [*rows(1, 2, 3), {"ts": "never"}])
    s.wait_until_matched()
    every = {entity.id: entity for entity in s.entities.every()}
    assert [e.kind for e in every.values()] == sorted(
        (e.kind for e in every.values()), key=["queue", "operator", "synopsis"].index
    )
    assert every["queue:inbox"].figures == {"waiting pushes": 0, "bytes": 0}
    assert every["segments:s"].figures["rows"] == 3
    assert every["segments:s$rejects"].figures["rows"] == 1
    assert every["query stem:s"].figures["predicates"] == 1
    assert every["filter:s.v"].figures["survive"] == pytest.approx(1 / 3, abs=1e-4)
    assert every["function:looked_at"].figures["rows"] >= 1
    assert every["answer:q"].figures["rows"] == 1
    assert {"others:s", "relation:r", "segments:clocked"} <= every.keys()
    assert s.entities.one("segments:s").to_json()["of"] == "s"
    kept = s.entities.set("answer:q", {"max_rows": 7})
    assert (kept.settings["max_rows"], kept.settings["weight"]) == (7, 1)
    assert s.query("q").describe()["options"] == {"materialize": "eager", "max_rows": 7}
    with pytest.raises(MillpondError, match=r'CQL-214: no setting "retain" of entity "segments:s"'):
        s.entities.set("segments:s", {"retain": 1})
    with pytest.raises(MillpondError, match=r'CQL-201(.|\n)*"segments:s"'):
        s.entities.one("segment:s")
    (shown,) = (r.table for r in s.execute("SHOW ENTITIES"))
    assert shown is not None
    assert set(shown["id"].to_pylist()) >= every.keys()
