"""Linear Road over derived streams and relations: tolls, balances, accidents, as the rules say."""

from __future__ import annotations

from pathlib import Path

import linear_road
import pyarrow as pa
import pytest
from linear_road.rules import Outcome, judge
from linear_road.traffic import Report, traffic

from millpond.model.time import parse_instant
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

QUERIES = (Path(linear_road.__file__).parent / "queries.cql").read_text(encoding="utf-8")
START = parse_instant("2004-01-01 00:00:00")


def table(reports: list[Report]) -> pa.Table:
    rows = pa.Table.from_pylist([r.row() for r in reports])
    return rows.set_column(0, "ts", rows["ts"].cast(pa.timestamp("us")))


@pytest.fixture(scope="module")
def reports() -> list[Report]:
    return traffic(seconds=480, cars=400, seed=3, start=START)


@pytest.fixture(scope="module")
def outcome(reports: list[Report]) -> Outcome:
    found = judge(reports)
    assert len(found.tolls) > 20
    assert {sign for _, sign, _ in found.accidents} == {1, -1}
    return found


def check(pond: Pond, outcome: Outcome) -> None:
    """All that the queries say is what the rules say, and when."""
    entries = [(at, *row) for _, at, _, *row in pond.query("entered").fetch().rows()]
    assert sorted(entries) == sorted(outcome.entries)
    tolls = [(at, *row) for _, at, _, *row in pond.query("toll_notices").fetch().rows()]
    assert sorted(tolls) == sorted(outcome.tolls)
    alerts = pond.query("accident_alerts").fetch().rows()
    assert [(at, int(sign + "1"), tuple(place)) for _, at, sign, *place in alerts] == (
        outcome.accidents
    )
    assert dict(pond.query("balances").invoke().rows()) == outcome.balances


@pytest.mark.parametrize("batches", [1, 7])
def test_the_queries_say_what_the_rules_say(tmp_path, reports, outcome, batches) -> None:
    with open_local(tmp_path) as pond:
        run(pond, reports, batches)
        check(pond, outcome)


@pytest.mark.slow
def test_the_queries_say_what_the_rules_say_of_thousands_of_cars(tmp_path) -> None:
    reports = traffic(seconds=1200, cars=3000, seed=5, start=START, ways=6)
    outcome = judge(reports)
    assert len(outcome.tolls) > 500
    with open_local(tmp_path) as pond:
        run(pond, reports, batches=40)
        check(pond, outcome)


def run(pond: Pond, reports: list[Report], batches: int) -> None:
    pond.execute(QUERIES)
    size = -(-len(reports) // batches)
    for start in range(0, len(reports), size):
        pond.ingest("reports", table(reports[start : start + size]))
        pond.catch_up()
    pond.execute("HEARTBEAT reports AT TIMESTAMP '2005-01-01 00:00:00'")
    pond.catch_up()
