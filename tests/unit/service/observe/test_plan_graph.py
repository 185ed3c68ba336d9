"""The shared plan as a graph: every query and entity is reached from what it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.errors import MillpondError
from millpond.testing.local_runtime import open_local

WORLD = """
CREATE STREAM flights (ts TIMESTAMP, carrier STRING, origin STRING, delay DOUBLE) TIMESTAMP BY ts;
CREATE STREAM weather (ts TIMESTAMP, origin STRING, wind DOUBLE) TIMESTAMP BY ts;
CREATE RELATION planes (tail STRING PRIMARY KEY, model STRING);
CREATE STREAM late AS ISTREAM(SELECT carrier, delay FROM flights WHERE delay > 30);
CREATE QUERY a AS SELECT ts FROM flights [RANGE 1 HOUR] WHERE delay > 30;
CREATE QUERY b AS SELECT ts FROM flights [RANGE 1 HOUR] WHERE delay > 60;
CREATE QUERY c WITH (follow = true) AS SELECT count(*) AS n FROM weather [RANGE 1 HOUR];
CREATE QUERY d AS SELECT f.carrier, w.wind
  FROM flights [RANGE 1 HOUR] f, weather [RANGE 1 HOUR] w WHERE f.origin = w.origin;
CREATE QUERY e AS SELECT carrier FROM late [ROWS 5];
INSERT INTO flights VALUES ('2026-03-01 10:00:00', 'AA', 'JFK', 50);
"""


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory):
    store: Path = tmp_path_factory.mktemp("pond") / "store"
    with open_local(store) as pond:
        pond.execute(WORLD)
        pond.catch_up()
        yield pond


def lit(graph: dict) -> set[str]:
    return {node["label"] for node in graph["nodes"] if node["lit"]}


def test_every_query_is_behind_what_it_reads(pond) -> None:
    graph = pond.plan_graph()
    ids = {node["id"]: node for node in graph["nodes"]}
    assert len(ids) == len(graph["nodes"])
    assert all(edge["source"] in ids and edge["target"] in ids for edge in graph["edges"])
    behind = [node for node in graph["nodes"] if node["kind"] == "queries"]
    assert sorted(name for node in behind for name in node["queries"]) == ["a", "b", "c", "d", "e"]
    # Every kind of the control tables is there, each behind what it reads, and each an entity.
    kinds = {"queue", "module", "synopsis", "eddy", "join", "operator", "derivation", "relation"}
    assert kinds <= {node["kind"] for node in ids.values()}
    reached = {edge["target"] for edge in graph["edges"]}
    assert set(ids) - reached == {"queue:inbox", "relation:planes"}
    # An operator that has not run yet has no control table.
    ran = {
        id for id, node in ids.items() if node["kind"] != "operator" or "runs" in node["figures"]
    }
    entities = {id for id in ran if ids[id]["kind"] in kinds}
    assert entities <= {entity.id for entity in pond.entities.every()}
    alike = next(node for node in behind if "a" in node["queries"])
    assert (alike["queries"], alike["figures"]) == (("a", "b"), {"queries": 2})
    [into] = [edge for edge in graph["edges"] if edge["target"] == "segments:flights"]
    assert into == {"source": "stream:flights", "target": "segments:flights", "elements": 1}
    assert lit(graph) == set()


def test_a_joins_stems_stand_before_its_eddy(pond) -> None:
    graph = pond.plan_graph("d")
    edges = {(edge["source"], edge["target"]) for edge in graph["edges"]}
    [eddy] = [node["id"] for node in graph["nodes"] if node["kind"] == "eddy"]
    stems = {node["id"] for node in graph["nodes"] if node["id"].startswith("stem:")}
    assert len(stems) == 2
    assert {(stem, eddy) for stem in stems} <= edges
    assert (eddy, eddy.replace("eddy:", "join:")) in edges


def test_the_part_that_serves_a_query_is_lit(pond) -> None:
    served = {"flights", "filter flights.delay", "query stem flights", "2 queries"}
    assert served <= lit(pond.plan_graph("a"))
    assert "weather" not in lit(pond.plan_graph("a"))
    read = {"weather", "segments weather", "derivation c", "c", "queue inbox"}
    operators = lit(pond.plan_graph("c")) - read
    assert read <= lit(pond.plan_graph("c"))
    assert {"window [RANGE 1 HOUR]", "kept elements"} <= operators
    assert "group-by nothing: count(*)" in operators
    assert {"flights", "weather", "join of flights, weather"} <= lit(pond.plan_graph("d"))
    # A query over a derived stream rests on what that is made from.
    assert {"flights", "late", "e"} <= lit(pond.plan_graph("e"))
    with pytest.raises(MillpondError, match="CQL-201"):
        pond.plan_graph("nothing")
