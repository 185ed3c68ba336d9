"""The oracle where goldens do not look: what it refuses, how far it reaches, what is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from tests.oracle.denotation import Denotation, denote
from tests.oracle.oracle_pond import OraclePond
from tests.oracle.world import OutsideTheOracle, World

from millpond.cql import parse_query

SECOND = 1_000_000


@pytest.fixture
def world() -> World:
    pond = OraclePond()
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE NON RETROACTIVE RELATION n (v INTEGER)"
    )
    rows = [{"ts": f"1970-01-01 00:00:0{second}", "v": second} for second in range(1, 6)]
    pond.ingest("s", rows)
    return pond.world


def answer(world: World, cql: str, at: int | None = None, **more: Any) -> Denotation:
    return denote(world, parse_query(cql), at, **more)


def values(meaning: Denotation) -> list[int]:
    return sorted(meaning.table.column(0).to_pylist())


def test_what_was_forgotten_is_in_no_window(world: World) -> None:
    kept = answer(world, "SELECT v FROM s [RANGE 4 SECONDS]", kept_since=4 * SECOND)
    assert values(kept) == [4, 5]


def test_what_was_forgotten_does_not_count_as_a_successor(world: World) -> None:
    kept = answer(world, "SELECT v FROM s [ROWS 3 WHERE v <> 4]", kept_since=3 * SECOND)
    assert values(kept) == [3, 5]


def test_reach_is_the_least_timestamp_of_any_window(world: World) -> None:
    cql = "SELECT a.v FROM s [RANGE 1 SECOND] a, s [RANGE 3 SECONDS] b, t [NOW] c"
    assert answer(world, cql, 5 * SECOND).reach == {"s": 2 * SECOND + 1, "t": 5 * SECOND}
    assert answer(world, "SELECT v FROM s [ROWS 1]").reach == {"s": None}


def test_the_query_is_left_as_it_was(world: World) -> None:
    bracket = parse_query("SELECT v FROM s [ROWS 2 WHERE v > 1] x WHERE x.v < 9")
    period = parse_query("SELECT s.v FROM s, t x BEGIN NOW END NOW")
    for query in (bracket, period):
        before = query.copy()
        denote(world, query)
        assert query == before


def test_names_of_with_hide_streams_only_where_they_are_seen(world: World) -> None:
    cql = "SELECT v FROM (WITH s AS (SELECT 7 AS v) SELECT v FROM s) AS x UNION ALL SELECT v FROM s"
    assert values(answer(world, cql)) == [1, 2, 3, 4, 5, 7]


@pytest.mark.parametrize(
    "cql",
    [
        "SELECT v FROM nowhere",
        "SELECT v FROM s SAMPLE(10)",
        "ISTREAM(SELECT v FROM s)",
    ],
)
def test_what_the_oracle_does_not_define_it_refuses(world: World, cql: str) -> None:
    with pytest.raises(OutsideTheOracle):
        answer(world, cql)
