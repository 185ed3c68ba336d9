"""A failure in any operator stops exactly the queries whose plans have the node.

The operators are those of the directory; one without a query here fails the first test.
"""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from millpond import operators
from millpond.engine.dataflow import arrangement
from millpond.errors import MillpondError
from millpond.operators import windows
from millpond.operators.protocol.node import Node, Operator
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

W = "[RANGE 50 SECONDS]"
#: For each operator a query whose plan has it, and how the query's changes are computed.
QUERIES = {
    "DistinctAnnouncing": (f"SELECT DISTINCT k FROM s {W}", "aware"),
    "DistinctDeltaStar": (f"SELECT DISTINCT k FROM s {W}", "direct"),
    "Expire": (f"SELECT a.v FROM s {W} a, s {W} b WHERE a.k = b.k", "direct"),
    "FilteredSemijoin": (f"SELECT k FROM s {W} WHERE k IN (SELECT k FROM t {W})", "aware"),
    "GroupBy": (f"SELECT k, count(*) AS n FROM s {W} GROUP BY k", "aware"),
    "Grouping": (f"SELECT k, count(*) AS n FROM s {W} GROUP BY k", "aware"),
    "Join": (f"SELECT a.v FROM s {W} a, s {W} b WHERE a.k = b.k", "aware"),
    "KeptElements": ("SELECT k FROM s [RANGE 7 SECONDS]", "aware"),
    "Negation": (f"SELECT k FROM s {W} EXCEPT ALL SELECT k FROM t {W} WHERE v > 3 BY (k)", "aware"),
    "NrrJoin": (f"SELECT s.k, n.d FROM s {W}, n WHERE s.k = n.k", "aware"),
    "OneRow": (f"SELECT s.k, x.c FROM s {W}, (SELECT 1 AS c) x", "aware"),
    "Project": (f"SELECT v + 1 AS x FROM s {W}", "aware"),
    "Recompute": (f"SELECT k, rank() OVER (ORDER BY v) AS x FROM s {W}", "aware"),
    "RecomputeGroups": (
        f"SELECT k, list(DISTINCT v ORDER BY v) AS x FROM s {W} GROUP BY k",
        "aware",
    ),
    "RelationVersions": ("SELECT s.k, n.d FROM s [ROWS 2], n WHERE s.k = n.k", "aware"),
    "RowsWindow": ("SELECT k, v FROM s [ROWS 2]", "aware"),
    "RStream": (f"RSTREAM(SELECT k FROM s {W})", "aware"),
    "Instants": (f"RSTREAM(SELECT k FROM s {W})", "aware"),
    "Boundaries": ("RSTREAM(SELECT k FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS])", "aware"),
    "RunningFrames": ("SELECT k, sum(v) OVER (ORDER BY ts) AS x FROM s", "aware"),
    "Sample": (f"SELECT k FROM s SAMPLE(99) {W}", "aware"),
    "Select": (f"SELECT k FROM s {W} WHERE v > 0", "aware"),
    "Semijoin": (f"SELECT k FROM s {W} WHERE k NOT IN (SELECT 'x' || k FROM t {W})", "aware"),
    "SetOperation": (f"SELECT k FROM s {W} INTERSECT SELECT k FROM t {W}", "aware"),
    "RelationSource": (f"SELECT s.k, r.d FROM s {W}, r WHERE s.k = r.k", "aware"),
    "SharedWindow": ("SELECT k FROM s [RANGE 7 SECONDS]", "aware"),
    "StreamSource": (f"SELECT k FROM t {W}", "aware"),
    "TimeWindow": (f"SELECT a.v FROM s {W} a, s {W} b WHERE a.k = b.k", "direct"),
    "TopK": (f"SELECT k, v FROM s {W} ORDER BY v LIMIT 2", "aware"),
    "Unnest": (f"SELECT k, unnest([v, 7]) AS x FROM s {W}", "negative"),
    "Union": (f"SELECT k FROM s {W} UNION ALL SELECT k FROM t {W}", "aware"),
}
#: What the queries tolerate whose plans have an operator only if they are reduced.
TOLERATED = {"FilteredSemijoin": "false positives 1 %"}
#: They share with the query what is below, and more with some.
NEIGHBOURS = {
    "plain": f"SELECT k, v FROM s {W}",
    "both": f"SELECT a.k FROM s {W} a, t {W} b WHERE a.v = b.v",
    "looked": f"SELECT s.v, r.d FROM s {W}, r WHERE s.k = r.k AND r.d > 0",
}
ERRORS = [RuntimeError("odd"), MillpondError("POND-404", "the query could not be evaluated")]


def list_modules() -> list[str]:
    """The modules that have operators."""
    return [
        f"{package.__name__}.{file.name}"
        for package in (operators, windows)
        for file in pkgutil.iter_modules(package.__path__)
        if not file.ispkg
    ]


def test_every_operator_has_a_query() -> None:
    found: set[str] = set()
    for name in list_modules():
        for label, kind in inspect.getmembers(import_module(name), inspect.isclass):
            if kind.__module__ == name and issubclass(kind, Node) and not label.startswith("_"):
                found.add(label)
    # It is in shared logs alone, whose operators evaluate nothing; what several nodes keep is in no
    # plan (`tests/unit/engine/dataflow/test_shared_joins.py`, `test_shared_distincts.py`).
    in_no_plan = {"KeptSides", "SharedJoin", "KeptDistinct", "SharedDistinct"}
    assert found - in_no_plan - {"PerQuery"} == set(QUERIES)


class Switch:
    """Makes the operators of one node raise while it is on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        self.key: str | None = None
        right = arrangement._start_operator

        def start(node: Node) -> Operator:
            operator: Any = right(node)
            advance = operator.advance

            def fail_or_advance(*given: Any) -> Any:
                if node.key == self.key:
                    raise error
                return advance(*given)

            operator.advance = fail_or_advance
            return operator  # type: ignore[no-any-return]

        monkeypatch.setattr(arrangement, "_start_operator", start)


def push(pond: Pond, *seconds: int) -> None:
    for stream in ("s", "t"):
        rows = [{"ts": f"1970-01-01 00:00:{t:02}", "k": "ab"[t % 2], "v": t} for t in seconds]
        pond.ingest(stream, rows)
    pond.catch_up()


def fetch(pond: Pond, name: str) -> list[Any] | MillpondError:
    try:
        return pond.query(name).fetch().rows()
    except MillpondError as error:
        return error


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("operator", QUERIES)
def test_who_stops_and_goes_on(
    operator: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = Switch(monkeypatch, error)
    with open_local(tmp_path / "store", ManualClock()) as pond:
        for stream in ("s", "t"):
            pond.execute(
                f"CREATE STREAM {stream} (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts"
            )
        pond.execute("CREATE RELATION r (k STRING, d INTEGER)")
        pond.execute("CREATE NON RETROACTIVE RELATION n (k STRING, d INTEGER)")
        pond.execute("INSERT INTO r VALUES ('a', 1), ('b', 2)")
        pond.execute("INSERT INTO n VALUES ('a', 1), ('b', 2)")
        query, strategy = QUERIES[operator]
        options = f"strategy = '{strategy}', changes = 'from beginning'"
        if operator in TOLERATED:
            options += f", tolerate = '{TOLERATED[operator]}'"
            pond._components.advancer.ladder.reduced_weight = 1.0
        pond.execute(f"CREATE QUERY bad WITH ({options}) AS {query}")
        for name, text in NEIGHBOURS.items():
            pond.execute(f"CREATE QUERY {name} WITH (changes = 'from beginning') AS {text}")
        names = ("bad", *NEIGHBOURS)
        push(pond, 1, 2)
        before = {name: fetch(pond, name) for name in names}
        assert not [name for name in names if isinstance(before[name], MillpondError)]

        plans = {name: plan_of(pond, name) for name in names}
        nodes = [node for node in plans["bad"] if type(node).__name__ == operator]
        assert nodes, [type(node).__name__ for node in plans["bad"]]
        switch.key = nodes[-1].key
        hit = {name for name in names if any(node.key == switch.key for node in plans[name])}
        assert hit != set(names)
        push(pond, 3, 4)
        after = {name: fetch(pond, name) for name in names}
        assert {name for name in names if isinstance(after[name], MillpondError)} == hit
        for name in set(names) - hit:
            assert len(after[name]) > len(before[name])
        for name in names:
            if not QUERIES[operator][0].startswith("RSTREAM") or name != "bad":
                pond.query(name).invoke()

        # A second attempt while it still fails gives up nothing and delivers nothing wrong.
        for name in hit:
            pond.execute(f"ALTER QUERY {name} SET (active = true)")
            pond.catch_up()
            assert isinstance(fetch(pond, name), MillpondError)
        switch.key = None
        for name in hit:
            pond.execute(f"ALTER QUERY {name} SET (active = true)")
        pond.catch_up()
        for name in hit:
            found = pond.query(name).fetch().rows()
            assert found[: len(before[name])] == before[name]
            pond.execute(f"CREATE QUERY again_{name} WITH ({options}) AS {text_of(name, query)}")
            assert found == pond.query(f"again_{name}").fetch().rows()


def text_of(name: str, query: str) -> str:
    return query if name == "bad" else NEIGHBOURS[name]


def plan_of(pond: Pond, name: str) -> list[Node]:
    version = pond._components.log.version
    (query,) = [q for q in version.queries.values() if q.name == name]
    log = version.change_log(query.id)
    assert log is not None
    return list(pond._components.derivations.of(version, log).plan.nodes())
