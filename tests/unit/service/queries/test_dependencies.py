"""Who reads what: names of users, whether they read directly, by a view, or by rejects."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.service.conftest import components_of

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.planner.bind.bound_query import BoundQuery
from millpond.service.pond import Pond
from millpond.service.queries.dependencies import users_of


@pytest.fixture
def pond(pond: Pond) -> Pond:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE RELATION r (v INTEGER);"
        'CREATE RELATION "say ""r""" (v INTEGER);'
        "CREATE RELATION view AS SELECT v FROM r WHERE v > 1;"
        "CREATE RELATION views AS SELECT v FROM view;"
        "CREATE STREAM derived AS SELECT v FROM s;"
        "CREATE STREAM reasons AS SELECT reason FROM t$rejects;"
        "CREATE QUERY over_s AS SELECT v FROM s;"
        "CREATE QUERY over_r AS SELECT s.v FROM s, R;"
        "CREATE QUERY over_views AS SELECT v FROM views;"
        "CREATE QUERY over_rejects AS SELECT * FROM t$rejects;"
        'CREATE QUERY quoted AS SELECT v FROM "say ""r""";'
        "CREATE QUERY spoken AS SELECT v FROM derived WHERE 'r' = 'r'"
    )
    return pond


def users(pond: Pond, name: str, bind: Callable[[str], BoundQuery] | None = None) -> set[str]:
    parts = components_of(pond)
    version = parts.log.version
    found = version.find(name)
    assert isinstance(found, StreamDef | RelationDef)
    names = users_of(version, found, bind or parts.registrar.bind)
    assert len(set(names)) == len(names)
    return set(names)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("s", {"over_s", "over_r", "derived"}),
        ("t", {"over_rejects", "reasons"}),
        ("derived", {"spoken"}),
        ("view", {"views", "over_views"}),
        ("views", {"over_views"}),
        ("r", {"over_r", "view", "views", "over_views"}),
        ('say "r"', {"quoted"}),
    ],
)
def test_everybody_who_would_miss_it(pond: Pond, name: str, expected: set[str]) -> None:
    assert users(pond, name) == expected


def test_only_queries_that_spell_the_name_are_bound(pond: Pond) -> None:
    bound: list[str] = []

    def bind(text: str, text_epoch: int | None) -> BoundQuery:
        bound.append(text)
        return components_of(pond).registrar.bind(text, text_epoch)

    users(pond, "views", bind)
    assert "SELECT v FROM views" in bound
    assert "SELECT v FROM s" in bound  # that of `derived`, of which there are few
    assert "SELECT * FROM t$rejects" not in bound
