"""Queries that are described together are described as each is by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.planner.bind.templates import Binder
from millpond.service.changes.new_derivations import NewDerivations
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

#: Of each shape some queries: their texts with a place for a number, and what else is given.
SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("SELECT ts, v FROM s [RANGE 1 HOUR] WHERE a = {}", {}),
    ("SELECT * FROM s WHERE a > {} AND name = 'x'", {"owner": "ann", "max_rows": 5}),
    ("SELECT ts AS t{} FROM s", {}),
    ("SELECT v FROM s [RANGE {} MINUTES]", {"tags": "x, y"}),
    ("SELECT v FROM s [ROWS 3] WHERE ts > '2013-01-0{}'", {"active": False}),
    ("SELECT v FROM s [PARTITION BY a ROWS 5] WHERE v < {}", {"materialize": "none"}),
    ("SELECT v FROM s [RANGE 1 HOUR SLIDE 10 MINUTES] WHERE v < {}", {"seed": 3}),
    ("SELECT v FROM s [RANGE 1 HOUR] SAMPLE(50) WHERE v < {}", {"tolerate": "sample 50%"}),
    ("SELECT a, count(*) AS n FROM s [RANGE 1 DAY] GROUP BY a HAVING count(*) > {}", {}),
    ("SELECT s.v FROM s [RANGE 5 SECONDS], u [ROWS 4] WHERE s.a = u.a AND s.v > {}", {}),
    ("SELECT u.ts FROM u [RANGE 1 HOUR], r WHERE u.a = r.a AND u.a < {}", {}),
    ("SELECT raw FROM s$rejects WHERE reason = 'r{}'", {}),
    ("ISTREAM(SELECT v FROM s [RANGE 1 MINUTE] WHERE a <> {})", {"follow": True}),
    ("SELECT ts FROM u [RANGE 1 HOUR] WHERE a = {}", {"follow": True}),
    ("SELECT n FROM (SELECT count(*) AS n FROM u [RANGE 1 HOUR]) AS x WHERE n > {}", {}),
    ("SELECT v FROM s [RANGE 1 HOUR] WHERE a = $a AND v > {}", {"params": {"a": 17}}),
]
SCHEMA = (
    "CREATE STREAM s (ts TIMESTAMP, a INTEGER, v DOUBLE, name VARCHAR) TIMESTAMP BY ts;"
    "CREATE STREAM u (ts TIMESTAMP, a BIGINT); CREATE RELATION r (a INTEGER)"
)


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_local(tmp_path / "store", clock=ManualClock()) as pond:
        pond.execute(SCHEMA)
        yield pond


def register(pond: Pond, each: int) -> None:
    """Register so many queries of each shape; of each shape every fifth one has a name."""
    pond.register_many(
        [
            (text.format(n), f"Named {n} {place}" if n % 5 == 3 else None, dict(options))
            for n in range(1, each + 1)
            for place, (text, options) in enumerate(SHAPES)
        ]
    )


def check_descriptions(pond: Pond) -> list[dict[str, Any]]:
    """Check that all queries are described together as each is by itself; return that."""
    together = list(pond.describe_queries(pond.queries()))
    assert together == [pond.query(query.id).describe() for query in pond.queries()]
    assert [list(facts) for facts in together] == [list(together[0])] * len(together)
    return together


def test_together_as_by_itself(pond: Pond) -> None:
    register(pond, 8)
    described = check_descriptions(pond)
    assert len({str(facts["columns"]) for facts in described}) > 8
    assert len({str(facts["notes"]) for facts in described}) > 2


def test_what_becomes_of_queries_is_told_of_each(pond: Pond) -> None:
    register(pond, 5)
    first = [query.id for query in pond.queries()][::7]
    for id in first:
        pond.query(id).alter(weight=2.5)
    for id in first[::2]:
        if pond.query(id).definition.active:
            pond.query(id).fetch()
    unbound = pond.query(pond.queries()[-1].id).definition
    pond._components.registrar._suspend_unbound(unbound, ValueError("a name is gone"))
    pond.ingest("u", [{"ts": "1970-01-01 00:00:01", "a": 1}])
    pond.catch_up()
    described = check_descriptions(pond)
    assert sum(facts["changes"] is not None for facts in described) > 10
    assert [facts["id"] for facts in described if not facts["columns"]] == [unbound.id]


def test_queries_that_could_not_be_followed_have_the_notes_of_those_that_are(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NewDerivations, "follow_many", lambda self, queries: {})
    text = "SELECT v FROM s [RANGE 1 HOUR] WHERE a = {}"
    pond.register_many([(text.format(n), None, {"follow": n % 4 == 3}) for n in range(12)])
    described = check_descriptions(pond)
    assert [len(facts["notes"]) for facts in described] == [0, 0, 0, 1] * 3


def test_columns_that_a_stream_gets_are_not_those_of_older_queries(pond: Pond) -> None:
    every = [(f"SELECT * FROM s WHERE a = {n}", None, {}) for n in range(5)]
    pond.register_many(every)
    pond.execute("ALTER STREAM s ADD COLUMN more INTEGER")
    pond.register_many(every)
    described = check_descriptions(pond)
    assert [len(facts["columns"]) for facts in described] == [4] * 5 + [5] * 5


def test_queries_of_few_shapes_are_not_bound_one_by_one(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"SELECT ts FROM s WHERE {c} = {n}" for n in range(50) for c in ("a", "v")]
    pond.register_many(texts)
    bound: list[str] = []
    bind = Binder.bind

    def count(binder: Binder, text: str, *seen: Any) -> Any:
        bound.append(text)
        return bind(binder, text, *seen)

    monkeypatch.setattr(Binder, "bind", count)
    assert len(list(pond.describe_queries(pond.queries()))) == 100
    assert len(bound) == 4
