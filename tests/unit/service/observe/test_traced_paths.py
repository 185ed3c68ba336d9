"""Traced tuples say through which filters, SteMs, joins and operators they went."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
        for least in (0, 2, 4):
            pond.execute(
                f"CREATE QUERY over_{least} AS SELECT k FROM s [RANGE 1 HOUR] WHERE v > {least}"
            )
        yield pond


def test_each_tuple_says_which_nodes_of_the_plan_it_went_through(pond: Pond) -> None:
    pond.execute("CREATE STREAM t (ts TIMESTAMP, k STRING, w INTEGER) TIMESTAMP BY ts")
    pond.execute("CREATE QUERY every AS SELECT count(*) AS n FROM s [RANGE 1 HOUR]")
    pond.execute("CREATE QUERY marked AS SELECT k FROM s [RANGE 1 HOUR] WHERE k = 'b'")
    pond.execute(
        "CREATE QUERY both AS SELECT s.v, t.w FROM s [RANGE 1 HOUR], t [RANGE 1 HOUR]"
        " WHERE s.k = t.k"
    )
    pond.execute("CREATE QUERY kinds AS SELECT DISTINCT k FROM s [RANGE 1 HOUR] WHERE v > 1")
    pond.query("kinds").fetch()
    pond.ingest("t", [{"ts": "1970-01-01 00:00:01", "k": "b", "w": 7}])
    rows = [{"ts": f"1970-01-01 00:00:0{n}", "k": "ab"[n % 2], "v": n} for n in (1, 2, 3, 4)]
    pond.ingest("s", rows)
    pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:09'")
    pond.catch_up()
    traced = pond.trace("s")["tuples"]
    graph = pond.plan_graph()
    ids = {node["id"]: node for node in graph["nodes"]}
    paths = [set(one["path"]) for one in traced]
    assert all(path <= set(ids) for path in paths)
    for path in paths:
        assert {"queue:inbox", "stream:s", "segments:s", "query stem:s", "filter:s.v"} <= path
    labels = [{ids[id]["label"] for id in path} for path in paths]
    # Of 1, 2, 3, 4 the selection lets three through; two of them are of a kind that is new.
    assert ["distinct" in " ".join(some) for some in labels] == [False, True, True, True]
    assert ["derivation kinds" in some for some in labels] == [False, True, True, False]
    # The eddy has joined all of them; those with b have a partner.
    assert ["join of s, t" in some for some in labels] == [True, False, True, False]
    assert all(any(id.startswith("stem:s.") for id in path) for path in paths)
    assert all(any(id.startswith("eddy:") for id in path) for path in paths)
    behind = {n: i for i, node in ids.items() if node["kind"] == "queries" for n in node["queries"]}
    for one, path in zip(traced, paths, strict=True):
        assert {behind[name] for name in one["queries"] if name != "both"} <= path
        assert (behind["both"] in path) == ("b" in one["values"]["k"])
    assert all("every" in one["queries"] for one in traced)
    # Every node of a path but the first is reached from another one of it.
    edges = {(edge["source"], edge["target"]) for edge in graph["edges"]}
    for path in paths:
        reached = {target for source, target in edges if source in path}
        assert path - reached == {"queue:inbox"}
    # Of one query, its own nodes alone.
    [own] = pond.trace("s", "kinds", tuples=1)["tuples"]
    assert behind["over_0"] not in own["path"]
    assert not any(id.startswith("eddy:") for id in own["path"])


def test_the_tuples_of_a_shared_log_reach_the_operators_of_their_queries(pond: Pond) -> None:
    for least in (0, 2, 4):
        pond.query(f"over_{least}").fetch()
    pond.ingest("s", [{"ts": f"1970-01-01 00:00:0{n}", "k": "a", "v": n} for n in (1, 3)])
    pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:09'")
    pond.catch_up()
    for one, wanted in zip(pond.trace("s")["tuples"], (1, 2), strict=True):
        made = [id for id in one["path"] if id.startswith("derivation:")]
        assert len(made) == wanted, one
