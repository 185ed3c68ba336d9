"""Joined slices: DuckDB's join of the same slices, whatever the factors and the routing."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.catalog.objects import Definition, StreamDef
from millpond.cql import parse_query
from millpond.engine.eddy.routing import POLICIES, policy
from millpond.engine.joins.join import TooManyPairs, join_slices
from millpond.engine.joins.join_stem import JoinSteM, StemPart, with_time
from millpond.engine.joins.plan import JoinPlan, plan_join
from millpond.model.schema import Field, Schema
from millpond.planner.bind.bind import bind
from millpond.planner.bind.bound_query import BoundQuery

_SCHEMA = Schema(
    (
        Field("ts", "TIMESTAMP"),
        Field("k", "INTEGER"),
        Field("b", "BIGINT"),
        Field("d", "DOUBLE"),
        Field("s", "VARCHAR"),
        Field("m", "DECIMAL(20,2)"),
    )
)


class _Catalog:
    def __init__(self) -> None:
        self._streams = {n: StreamDef(i, n, _SCHEMA, "ts") for i, n in enumerate("xyz")}

    def find(self, name: str) -> Definition | None:
        return self._streams.get(name.lower())

    def names(self) -> list[str]:
        return list(self._streams)


_SERVED = [
    "SELECT * FROM x, y WHERE x.k = y.k",
    "SELECT x.s, y.d FROM x JOIN y ON x.k = y.b AND x.s = y.s",
    "SELECT x.k, y.k FROM x JOIN y ON x.d = y.d WHERE x.k < 2",
    "SELECT x.m FROM x, y WHERE x.m = y.m AND x.d <> y.d",
    "SELECT * FROM x old, x new WHERE old.k = new.k AND new.b > old.b AND new.ts >= old.ts",
    "SELECT * FROM x, y WHERE y.ts BETWEEN x.ts - INTERVAL 2 SECONDS AND x.ts",
    "SELECT * FROM x, y WHERE x.k = y.k AND y.ts < x.ts + INTERVAL 1 MINUTE AND y.ts > x.ts",
    "SELECT * FROM x, y WHERE x.k < y.b - 1",
    "SELECT * FROM x, y WHERE x.d >= y.d AND x.k = y.k + 1",
    "SELECT * FROM x, y WHERE x.k % 2 = y.k % 2 AND x.s || 'a' = y.s",
    "SELECT x.k, y.k, z.k FROM x, y, z WHERE x.k = y.k AND y.s = z.s",
    "SELECT * FROM x, y, z WHERE x.k = y.k AND x.k = z.k AND z.b > y.b",
    "SELECT count(*), sum(y.b) FROM x JOIN y ON x.k = y.k JOIN z ON z.b = x.b AND z.s = y.s",
    "SELECT x.k FROM x, y z, x w WHERE x.k = z.k AND w.ts <= z.ts AND w.k = x.k AND w.k = z.k",
]

_START = datetime(2026, 1, 1)
_ROW = st.tuples(
    st.integers(0, 4),
    st.one_of(st.none(), st.integers(-2, 2)),
    st.integers(-2, 2),
    st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
    st.one_of(st.none(), st.sampled_from(["", "a", "aa", "b"])),
    st.one_of(st.none(), st.decimals(-1, 1, places=2)),
)
_ROWS = st.lists(_ROW, max_size=12).map(lambda rows: sorted(rows, key=lambda r: r[0]))


def _bound(text: str) -> tuple[BoundQuery, JoinPlan | None]:
    bound = bind(parse_query(text), text, _Catalog())
    if bound.join is None:
        return bound, None
    names = [leaf.stream for leaf in bound.streams]
    return bound, plan_join(bound.join, bound.literals, names, ["ts"] * len(names))


def _slice(rows: list[tuple], columns: tuple[str, ...]) -> pa.Table:
    plain = [(_START + timedelta(seconds=r[0]), *r[1:]) for r in rows]
    arrays = [
        pa.array([r[i] for r in plain], field.type) for i, field in enumerate(_SCHEMA.to_arrow())
    ]
    return pa.table(arrays, schema=_SCHEMA.to_arrow()).select(list(columns))


def _rows(con: duckdb.DuckDBPyConnection, sql: str) -> Counter[str]:
    # As text: a NaN is not equal to itself in Python.
    return Counter(map(repr, con.execute(sql).fetchall()))


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": "1"})


@pytest.mark.parametrize("text", _SERVED)
@settings(max_examples=20)
@given(data=st.data(), routing=st.sampled_from(sorted(POLICIES)), seed=st.integers(0, 9))
def test_a_joined_slice_is_duckdbs_join(
    duck: duckdb.DuckDBPyConnection, text: str, data: st.DataObject, routing: str, seed: int
) -> None:
    bound, plan = _bound(text)
    assert plan is not None
    assert bound.join is not None
    by_stream = {name: data.draw(_ROWS) for name in sorted({f.stream for f in bound.streams})}
    slices = {f.table: _slice(by_stream[f.stream], f.columns) for f in bound.streams}
    for name, table in slices.items():
        duck.register(name, table)
    expected = _rows(duck, bound.residual_sql)
    tables = [bound.streams[leaf].table for leaf in bound.join.leaves]
    stems = [JoinSteM([StemPart(with_time(slices[table], "ts"))]) for table in tables]
    places = join_slices(plan, stems, 10_000, policy(routing, seed))
    found = list(zip(*(places[i].tolist() for i in range(len(tables))), strict=True))
    assert found == sorted(set(found))
    for leaf, name in enumerate(tables):
        duck.register(name, slices[name].take(pa.array(places[leaf], pa.int64())))
    assert _rows(duck, bound.joined_sql) == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM x",
        "SELECT * FROM x, y",
        "SELECT * FROM x LEFT JOIN y ON x.k = y.k",
        "SELECT * FROM x JOIN y USING (k)",
        "SELECT * FROM x NATURAL JOIN y",
        "SELECT * FROM x, y WHERE x.s < y.s",
        "SELECT * FROM x, y WHERE x.k + y.k = 3",
        "SELECT * FROM x, y, z WHERE x.k = y.k",
        "SELECT * FROM x, (SELECT * FROM y) q WHERE x.k = q.k",
        "SELECT * FROM x WHERE EXISTS (SELECT 1 FROM y WHERE x.k = y.k)",
    ],
)
def test_other_joins_are_left_to_duckdb(text: str) -> None:
    assert _bound(text)[1] is None


def test_joins_by_equal_factors_have_equal_keys() -> None:
    one = _bound("SELECT x.s FROM x [RANGE 1 HOUR], y WHERE x.k = y.k AND x.b > 3")[1]
    two = _bound("SELECT y.s FROM x, y [RANGE 1 DAY] WHERE x.k = y.k AND y.b < 7")[1]
    other = _bound("SELECT x.s FROM x, y WHERE x.k = y.b")[1]
    assert one is not None
    assert two is not None
    assert other is not None
    assert one.key == two.key != other.key


def test_a_join_that_explodes_is_stopped_before_its_pairs_are_made() -> None:
    _, plan = _bound("SELECT * FROM x, y WHERE x.k = y.k")
    assert plan is not None
    rows = [(0, 1, 0, None, None, None)] * 2_000
    stems = [JoinSteM([StemPart(with_time(_slice(rows, _SCHEMA.names), "ts"))]) for _ in range(2)]
    with pytest.raises(TooManyPairs) as caught:
        join_slices(plan, stems, 1_000_000)
    assert caught.value.pairs == 4_000_000
