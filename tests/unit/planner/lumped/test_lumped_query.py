"""`planner/lumped`: what is computed of lumps is what is computed of pairs."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp
from tests.unit.planner.conftest import StaticNames, schema

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.cql.print.dialect import parse_query
from millpond.planner.bind.bind import bind
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.lumped.lumped_query import write_lumped_query

COLUMNS = "ts TIMESTAMP, k INTEGER, g VARCHAR, n BIGINT, d DECIMAL(18,2), f DOUBLE, on_ BOOLEAN"
NAMES = StaticNames(
    StreamDef(id=1, name="s", schema=schema(COLUMNS), timestamp_by="ts"),
    StreamDef(id=2, name="t", schema=schema(COLUMNS), timestamp_by="ts"),
    RelationDef(id=3, name="r", schema=schema(COLUMNS)),
)
JOIN = "FROM s JOIN t ON s.k = t.k"
LEFT = "FROM s LEFT JOIN t ON s.k = t.k AND t.n > 0"
#: Queries whose answers over lumps have the bits of those over pairs.
EXACT = [
    f"SELECT count(*) AS c {JOIN}",
    f"SELECT count(*) AS c, sum(t.n) AS x, sum(s.d) AS y, avg(s.n) AS z {JOIN}",
    f"SELECT s.g, count(t.n) AS c, sum(t.n) AS x, min(t.d) AS y, max(s.g) AS z {JOIN} GROUP BY s.g",
    f"SELECT s.g, sum(t.on_) AS x, bool_or(t.on_) AS y, bool_and(s.on_) AS z {JOIN} GROUP BY ALL",
    f"SELECT s.g AS h, sum(s.d) AS x {JOIN} WHERE s.n > 0 AND t.d < 3 GROUP BY h",
    f"SELECT t.g, s.on_, count(*) AS c {JOIN} GROUP BY 2, 1 HAVING sum(s.n) > 3 OR count(*) > 2",
    f"SELECT s.g, count(*) AS c, sum(t.n) AS x {JOIN} GROUP BY s.g ORDER BY sum(s.d), s.g",
    f"SELECT DISTINCT s.g, t.on_ {JOIN} ORDER BY 1, 2",
    f"SELECT DISTINCT s.n % 3 AS x, t.g || 'x' AS y {JOIN} AND s.d < t.d",
    f"SELECT s.g {JOIN} GROUP BY s.g",
    f"SELECT count(DISTINCT t.g) AS c, sum(DISTINCT s.n) AS x, count(*) AS z {JOIN}",
    f"SELECT sum(s.n) FILTER (WHERE s.g = 'x') AS x, count(*) FILTER (WHERE s.on_) AS y {JOIN}",
    f"SELECT sum(s.n) FILTER (WHERE t.g = 'x') AS x, max(s.n) FILTER (WHERE t.on_) AS y,"
    f" count(t.n) FILTER (WHERE s.n > 2) AS z {JOIN}",
    f"SELECT sum(s.n) FILTER (WHERE s.n < t.n) AS x, count(*) FILTER (WHERE s.g = t.g) AS y {JOIN}",
    f"SELECT sum(s.n % 5 * t.n % 7) AS x, count(s.n + t.n) AS y, min(s.d - t.d) AS z {JOIN}",
    f"SELECT sum(s.n + 1) AS x, sum(-t.d) AS y, count(coalesce(t.n, 1)) AS z, sum(1) AS w {JOIN}",
    f"SELECT count(1) AS c, count(NULL) AS x, sum(2.5) AS y {JOIN}",
    f"SELECT s.n % 2 AS odd, count(*) AS c, sum(t.n) AS x {JOIN} GROUP BY odd",
    f"SELECT s.n % 2 + 1 AS odd, count(*) AS c {JOIN} GROUP BY s.n % 2",
    f"SELECT CASE WHEN s.n > 2 THEN 'a' ELSE s.g END AS x, count(*) AS c {JOIN} GROUP BY 1",
    f"SELECT s.n, s.n % 2 AS odd, count(*) AS c {JOIN} GROUP BY s.n, s.n % 2",
    f"SELECT s.g, t.g, count(*) AS c {JOIN} GROUP BY ROLLUP (s.g, t.g)",
    f"SELECT s.g, count(*) AS c, grouping(s.g) AS x {JOIN} GROUP BY GROUPING SETS ((s.g), ())",
    "SELECT k, count(*) AS c, sum(s.n) AS x FROM s JOIN t USING (k) GROUP BY k",
    "SELECT count(*) AS c, sum(k) AS x FROM s JOIN t USING (k)",
    "SELECT count(*) AS c, sum(s.n) AS x FROM s, t",
    "SELECT count(*) AS c, sum(s.n) AS x FROM s, t WHERE s.k % 2 = t.k % 2",
    "SELECT s.g, count(*) AS c FROM s, t WHERE s.n BETWEEN t.n - 1 AND t.n + 1 GROUP BY s.g",
    "SELECT sum(x.n) AS a, sum(y.n) AS b, sum(z.d) AS c FROM s x, s y, t z"
    " WHERE x.k = y.k AND y.k = z.k AND x.g = 'x'",
    f"SELECT s.g, count(t.n) AS c, sum(t.d) AS x, count(*) AS y, max(t.n) AS z {LEFT} GROUP BY s.g",
    f"SELECT count(*) AS c, sum(coalesce(t.n, 5)) AS x, count(*) FILTER (WHERE t.k IS NULL) AS y,"
    f" sum(s.n) FILTER (WHERE s.on_) AS z {LEFT} WHERE s.g = 'x' OR s.n > 1",
    f"SELECT t.g IS NULL AS x, count(*) AS c, sum(s.n) AS y {LEFT} GROUP BY 1",
    f"SELECT count(*) AS c, sum(s.n) AS x {LEFT} WHERE t.k IS NULL",
    "SELECT s.g, t.g, count(*) AS c, sum(s.n) AS x, sum(t.n) AS y, avg(t.n) AS z"
    " FROM s FULL JOIN t ON s.k = t.k AND s.n < 4 GROUP BY 1, 2",
    "SELECT s.g, count(*) AS c, sum(s.n) AS x, count(s.n) AS y FROM s RIGHT JOIN t ON s.k = t.k"
    " GROUP BY 1",
    "SELECT r.g, count(*) AS c, sum(s.n) AS x FROM s JOIN r ON s.k = r.k WHERE r.on_ GROUP BY r.g",
    "SELECT c, count(*) AS d FROM (SELECT s.g, count(*) AS c FROM s, t WHERE s.k = t.k"
    " GROUP BY s.g) q GROUP BY c",
    "SELECT count(*) AS c, sum(q.m) AS x FROM s, (SELECT k, n + 1 AS m FROM t) q WHERE s.k = q.k",
    "SELECT q.c, count(*) AS d, sum(t.n) AS x FROM (SELECT k, count(*) AS c FROM s GROUP BY k) q"
    " LEFT JOIN t ON q.k = t.k GROUP BY q.c",
    "WITH q AS (SELECT s.g, sum(t.n) AS x FROM s, t WHERE s.k = t.k GROUP BY s.g)"
    " SELECT max(x) AS x FROM q",
    "SELECT count(*) AS c FROM s, t WHERE s.k = t.k UNION ALL SELECT sum(n) FROM r",
    f"SELECT count(*) AS c {JOIN} WHERE s.g IN (SELECT g FROM r) AND EXISTS"
    " (SELECT * FROM r WHERE r.k = t.k AND r.n < s.n)",
    f"SELECT count(*) AS c {JOIN} WHERE CAST(s.f AS VARCHAR) = '-0.0' OR t.f IS NULL OR s.n = t.n",
    f"SELECT CAST(s.f AS VARCHAR) AS x, count(*) AS c {JOIN} GROUP BY 1",
    f'SELECT s.g AS "G 1", count(*) AS "C" {JOIN} GROUP BY "G 1" ORDER BY "C"',
    f"SELECT count(*) AS p, p + 1 AS q {JOIN}",
]
#: Queries whose answers may differ in the last digits, or in which rows or zeros they show.
ROUNDED = [
    f"SELECT s.g, sum(t.f) AS x, avg(s.f) AS y, avg(t.d) AS z, min(s.f) AS w {JOIN} GROUP BY s.g",
    f"SELECT s.f, count(*) AS c {JOIN} GROUP BY s.f",
    f"SELECT 1 / s.f AS x, count(*) AS c {JOIN} GROUP BY 1",
    f"SELECT s.g, count(*) AS c {JOIN} GROUP BY s.g ORDER BY s.g LIMIT 1",
]
#: Queries that are not evaluated over lumps.
UNFIT = [
    f"SELECT s.g, t.g {JOIN}",
    f"SELECT * {JOIN}",
    f"SELECT median(s.n) AS x {JOIN}",
    f"SELECT string_agg(s.g, ',') AS x {JOIN}",
    f"SELECT string_agg(DISTINCT s.g, ',') AS x {JOIN}",
    f"SELECT list(s.n) AS x, count(*) AS c {JOIN}",
    f"SELECT first(s.n) AS x {JOIN}",
    f"SELECT DISTINCT ON (s.g) s.g, t.g {JOIN}",
    f"SELECT s.n, count(*) OVER () AS c {JOIN}",
    f"SELECT s.g, count(*) AS c, row_number() OVER () AS x {JOIN} GROUP BY s.g",
    f"SELECT s.g, count(*) AS c, (SELECT max(n) FROM r WHERE r.g = s.g) AS x {JOIN} GROUP BY s.g",
    "SELECT g, count(*) AS c FROM s GROUP BY g",
    "SELECT count(*) AS c FROM s NATURAL JOIN t",
    "SELECT count(*) AS c FROM s ASOF JOIN t ON s.k = t.k AND s.ts >= t.ts",
    "SELECT count(*) AS c FROM s SEMI JOIN t ON s.k = t.k",
    "SELECT count(*) AS c FROM s, (SELECT k FROM t WHERE t.n = s.n) q WHERE s.k = q.k",
    "SELECT count(*) AS c FROM s AS x(a, b) JOIN t ON x.b = t.k",
]

ROW = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, 0, 1, 2]),
        "g": st.sampled_from([None, "", "x"]),
        "n": st.sampled_from([None, -3, 1, 2, 5]),
        "d": st.sampled_from([None, Decimal("-1.25"), Decimal("0.10"), Decimal("7.00")]),
        "f": st.sampled_from([None, 0.0, -0.0, 0.1, -7.5]),
        "on_": st.sampled_from([None, True, False]),
    }
)
ROWS = st.lists(ROW, max_size=8)
DATABASE = duckdb.connect(config={"threads": "1"})


def bound(text: str) -> BoundQuery:
    return bind(parse_query(text), text, NAMES)


def slices_of(query: BoundQuery, rows: dict[str, list[dict[str, Any]]]) -> dict[str, pa.Table]:
    """The slices of a query, of all rows of its streams and relations."""
    found = {}
    for leaf in (*query.streams, *query.relations):
        name = getattr(leaf, "stream", None) or leaf.relation
        types = schema(COLUMNS).to_arrow()
        table = pa.Table.from_pylist([{"ts": None, **row} for row in rows[name]], types)
        found[leaf.table] = table.select(list(leaf.columns))
    return found


def evaluate(sql: str, slices: dict[str, pa.Table]) -> tuple[list[tuple[Any, ...]], list[str]]:
    for name, table in slices.items():
        DATABASE.register(name, table)
    relation = DATABASE.sql(sql)
    types = [str(type_) for type_ in relation.types]
    return sorted(relation.fetchall(), key=repr), types


def lumped_sql(text: str, is_exact: bool) -> tuple[BoundQuery, str]:
    query = bound(text)
    schemas = {name: table.schema for name, table in slices_of(query, EMPTY).items()}
    found = write_lumped_query(query.tree, query.literals, schemas)
    assert found is not None
    assert found.is_exact == is_exact
    return query, found.sql


EMPTY: dict[str, list[dict[str, Any]]] = {"s": [], "t": [], "r": []}


@pytest.mark.parametrize("text", EXACT)
def test_what_is_counted_of_lumps_is_what_is_counted_of_pairs(text: str) -> None:
    query, sql = lumped_sql(text, is_exact=True)

    @settings(max_examples=12)
    @given(st.fixed_dictionaries({"s": ROWS, "t": ROWS, "r": ROWS}))
    def compare(rows: dict[str, list[dict[str, Any]]]) -> None:
        slices = slices_of(query, rows)
        assert evaluate(sql, slices) == evaluate(query.residual_sql, slices)

    compare()


@pytest.mark.parametrize("text", ROUNDED)
def test_sums_of_doubles_differ_by_rounding_alone(text: str) -> None:
    query, sql = lumped_sql(text, is_exact=False)

    @settings(max_examples=12)
    @given(st.fixed_dictionaries({"s": ROWS, "t": ROWS, "r": ROWS}))
    def compare(rows: dict[str, list[dict[str, Any]]]) -> None:
        slices = slices_of(query, rows)
        found, types = evaluate(sql, slices)
        expected, their_types = evaluate(query.residual_sql, slices)
        assert types == their_types
        assert len(found) == len(expected)
        for row, other in zip(found, expected, strict=True):
            assert row == pytest.approx(other, nan_ok=True)

    compare()


@pytest.mark.parametrize("text", UNFIT)
def test_what_asks_for_more_is_not_computed_of_lumps(text: str) -> None:
    query = bound(text)
    schemas = {name: table.schema for name, table in slices_of(query, EMPTY).items()}
    assert write_lumped_query(query.tree, query.literals, schemas) is None


def test_large_numbers_do_not_overflow() -> None:
    """4·10⁹ pairs of three streams' lumps, of values near the greatest BIGINT."""
    text = "SELECT count(*) AS c, sum(x.n) AS y FROM s x, s y, t z WHERE x.k = y.k AND y.k = z.k"
    query, sql = lumped_sql(text, is_exact=True)
    rows = [{"k": 1, "n": 2**62}] * 1_600
    (row,), _ = evaluate(sql, slices_of(query, {"s": rows, "t": rows, "r": []}))
    assert row == (1_600**3, 2**62 * 1_600**3)


def test_constants_of_another_query_of_the_shape_are_its_own() -> None:
    query = bound(f"SELECT count(*) AS c {JOIN} WHERE s.n > 4")
    own = max(_literals(query))
    copied = query.with_constants("", {own: "1"})
    rows = {"s": [{"k": 1, "n": 2}], "t": [{"k": 1}], "r": []}
    slices = slices_of(copied, rows)
    found = write_lumped_query(
        copied.tree, copied.literals, {name: table.schema for name, table in slices.items()}
    )
    assert found is not None
    assert evaluate(found.sql, slices)[0] == [(1,)]


def _literals(query: BoundQuery) -> list[int]:
    return [node.meta["start"] for node in query.tree.find_all(exp.Literal)]
