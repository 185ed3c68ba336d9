"""Which conjuncts go below the joins, and that the answer never shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.cql.print.dialect import parse_query, to_duckdb
from millpond.model.schema import Field, Schema
from millpond.planner.bind.bind import bind
from millpond.planner.bind.bound_query import BoundQuery

Binding = Callable[[str], BoundQuery]


def _pushed(bound: BoundQuery) -> list[str]:
    return ["" if s.pushed is None else to_duckdb(s.pushed) for s in bound.streams]


CASES = [
    # WHERE over one stream
    ("SELECT * FROM flights WHERE delay > 3 AND (origin = 'JFK' AND dest = 'SFO')",
     ["delay > 3 AND origin = 'JFK' AND dest = 'SFO'"]),
    ("SELECT count(*) FROM flights f WHERE f.delay > 3 OR F.Dest = 'SFO' LIMIT 1",
     ["delay > 3 OR dest = 'SFO'"]),
    ("SELECT * FROM flights WHERE 1 = 0", ["1 = 0"]),
    ("SELECT * FROM flights [ROWS 3] WHERE delay > 3", [""]),
    ("SELECT * FROM flights WHERE delay > (SELECT 3)", [""]),
    ("SELECT delay AS d FROM flights WHERE d > 3", [""]),
    ("SELECT carrier FROM flights GROUP BY carrier HAVING carrier > 'A'", [""]),
    ("SELECT carrier, row_number() OVER () AS n FROM flights QUALIFY carrier > 'A'", [""]),
    # joins
    ("SELECT 1 FROM flights f, weather w WHERE f.origin = w.origin AND delay > 3 AND wind > 5",
     ["delay > 3", "wind > 5"]),
    ("SELECT 1 FROM flights f JOIN weather w ON f.origin = w.origin AND delay > 3 AND wind > 5",
     ["delay > 3", "wind > 5"]),
    ("SELECT 1 FROM flights f LEFT JOIN weather w ON delay > 3 AND wind > 5 "
     "WHERE distance > 1 AND temp > 2", ["distance > 1", "wind > 5"]),
    ("SELECT 1 FROM flights f RIGHT JOIN weather w ON delay > 3 AND wind > 5 "
     "WHERE distance > 1 AND temp > 2", ["delay > 3", "temp > 2"]),
    ("SELECT 1 FROM flights f FULL JOIN weather w ON delay > 3 AND wind > 5 "
     "WHERE distance > 1 AND temp > 2", ["", ""]),
    ("SELECT 1 FROM flights f SEMI JOIN weather w ON f.origin = w.origin WHERE delay > 3",
     ["delay > 3", ""]),
    ("SELECT 1 FROM flights f ANTI JOIN weather w ON f.origin = w.origin WHERE delay > 3",
     ["delay > 3", ""]),
    ("SELECT 1 FROM flights f ANTI JOIN weather w ON delay > 3", ["", ""]),
    # an ON above an outer join
    ("SELECT 1 FROM planes p LEFT JOIN flights f ON f.tailnum = p.tailnum "
     "JOIN weather w ON delay IS NULL AND wind > 5", ["", "wind > 5"]),
    # columns joined by USING
    ("SELECT 1 FROM flights JOIN weather USING (origin) WHERE origin = 'JFK'",
     ["origin = 'JFK'", ""]),
    ("SELECT 1 FROM flights FULL JOIN weather USING (origin) WHERE origin = 'JFK'", ["", ""]),
    ("SELECT 1 FROM flights RIGHT JOIN weather USING (origin) WHERE origin = 'JFK'", ["", ""]),
    # subqueries
    ("SELECT * FROM (SELECT carrier AS c, delay FROM flights WHERE distance > 1) t "
     "WHERE c = 'AA' AND t.delay > 3", ["distance > 1 AND carrier = 'AA' AND delay > 3"]),
    ("SELECT * FROM (SELECT delay + 1 AS d, dest FROM flights) t WHERE d > 3 AND dest = 'SFO'",
     ["dest = 'SFO'"]),
    ("SELECT * FROM (SELECT carrier, count(*) AS n FROM flights GROUP BY 1) t WHERE carrier = 'AA'",
     [""]),
    ("SELECT * FROM (SELECT * FROM flights LIMIT 3) t WHERE carrier = 'AA'", [""]),
    ("SELECT * FROM ((SELECT * FROM flights) LIMIT 3) t WHERE carrier = 'AA'", [""]),
    ("SELECT * FROM ((SELECT * FROM flights WHERE delay > 3)) t WHERE carrier = 'AA'",
     ["delay > 3 AND carrier = 'AA'"]),
    ("WITH c AS ((SELECT * FROM flights) ORDER BY ts LIMIT 3) SELECT * FROM c WHERE delay > 3",
     [""]),
    ("SELECT * FROM (SELECT *, row_number() OVER () AS n FROM flights) t WHERE carrier = 'AA'",
     [""]),
    ("WITH c AS (SELECT * FROM flights) SELECT * FROM c WHERE delay > 3", ["delay > 3"]),
    ("WITH c AS (SELECT * FROM flights) SELECT * FROM c a, c b WHERE a.delay > 3", [""]),
    ("SELECT * FROM planes p LEFT JOIN (SELECT * FROM flights) t ON t.delay > 3 "
     "WHERE t.dest = 'SFO'", ["delay > 3"]),
    ("SELECT delay FROM flights WHERE delay > 3 UNION SELECT wind FROM weather WHERE wind > 5",
     ["delay > 3", "wind > 5"]),
    ("SELECT 1 FROM flights f WHERE delay > 3 AND NOT EXISTS "
     "(SELECT 1 FROM weather w WHERE w.origin = f.origin AND wind > 5 AND f.dest > 'A')",
     ["delay > 3", "wind > 5"]),
    ("SELECT 1 FROM flights WHERE origin IN (SELECT origin FROM weather WHERE wind > 5)",
     ["", "wind > 5"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "pushed"), CASES, ids=[c[0] for c in CASES])
def test_pushed(binding: Binding, text: str, pushed: list[str]) -> None:
    bound = binding(text)
    assert _pushed(bound) == pushed


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("SELECT * FROM flights [ROWS 3] WHERE delay > 3 AND dest = 'SFO'",
         "delay > 3 AND dest = 'SFO'"),
        ("SELECT c FROM (SELECT carrier AS c FROM flights [ROWS 3]) t WHERE c = 'AA'",
         "carrier = 'AA'"),
        ("SELECT * FROM flights [ROWS 3 WHERE delay > 1] WHERE delay > 3", ""),
        ("SELECT * FROM flights [PARTITION BY dest ROWS 3] WHERE delay > 3", "delay > 3"),
        ("SELECT * FROM flights [ROWS 3] SAMPLE(50) WHERE delay > 3", ""),
        ("SELECT 1 FROM flights [ROWS 3] f, weather w WHERE f.origin = w.origin AND delay > 3", ""),
        ("SELECT * FROM flights WHERE delay > 3", ""),
    ],
)  # fmt: skip
def test_what_waits_for_a_window_of_rows(binding: Binding, text: str, after: str) -> None:
    leaf = binding(text).streams[0]
    assert ("" if leaf.after is None else to_duckdb(leaf.after)) == after
    if after:
        assert leaf.pushed is None
        assert to_duckdb(leaf.predicate) == after


def test_pushed_conjuncts_stay_in_the_residual(binding: Binding) -> None:
    assert "delay > 3" in binding("SELECT * FROM flights WHERE delay > 3").residual_sql


# -- the law: a prefiltered slice gives the same answer --------------------------------------------

SMALL = Schema((Field("a", "INTEGER"), Field("b", "INTEGER"), Field("c", "VARCHAR")))


class _Names:
    def find(self, name: str) -> StreamDef | RelationDef | None:
        if name.lower() in ("s", "t"):
            return StreamDef(1, name.lower(), SMALL)
        return RelationDef(2, "r", SMALL) if name.lower() == "r" else None

    def names(self) -> list[str]:
        return ["s", "t", "r"]

    def function(self, name: str) -> None:
        return None

    def functions(self) -> list[str]:
        return []

    def summary(self, name: str) -> None:
        return None

    def summaries(self) -> list[str]:
        return []


ALIASES = ("x", "y", "z")
_value = st.one_of(st.none(), st.integers(0, 2))
_row = st.tuples(_value, _value, st.one_of(st.none(), st.sampled_from("pq")))
_rows = st.lists(_row, max_size=5)


@st.composite
def _atoms(draw: st.DrawFn, aliases: tuple[str, ...]) -> str:
    alias = draw(st.sampled_from(aliases))
    column = draw(st.sampled_from("ab"))
    other = draw(st.sampled_from(aliases))
    kind = draw(st.integers(0, 7))
    constant = draw(st.integers(0, 2))
    operator = draw(st.sampled_from(["=", "<>", "<", ">="]))
    match kind:
        case 0 | 1 | 2:
            return f"{alias}.{column} {operator} {constant}"
        case 3:
            return f"{alias}.{column} {operator} {other}.{draw(st.sampled_from('ab'))}"
        case 4:
            return f"{alias}.{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case 5:
            return f"coalesce({alias}.{column}, {constant}) = {draw(st.integers(0, 2))}"
        case 6:
            return f"{alias}.c LIKE 'p%'"
    return f"({alias}.{column} = {constant} OR {other}.b = {constant})"


@st.composite
def _predicates(draw: st.DrawFn, aliases: tuple[str, ...]) -> str:
    parts = draw(st.lists(_atoms(aliases), min_size=1, max_size=3))
    parts = [f"NOT {p}" if draw(st.integers(0, 4)) == 0 else p for p in parts]
    return " AND ".join(parts)


@st.composite
def _items(draw: st.DrawFn) -> str:
    """A FROM item with the columns a, b, c."""
    name = draw(st.sampled_from("sstr"))
    inner = draw(_predicates(("i",)))
    match draw(st.integers(0, 6)):
        case 0:
            return f"(SELECT a, b, c FROM {name} i WHERE {inner})"
        case 1:
            return f"(SELECT i.b AS a, i.a AS b, c FROM {name} i)"
        case 2:
            return f"(SELECT DISTINCT a, b, c FROM {name} i WHERE {inner})"
        case 3:
            return f"(SELECT max(a) AS a, b, min(c) AS c FROM {name} i GROUP BY b)"
        case 4:
            return f"(SELECT i.a, i.b, j.c FROM {name} i LEFT JOIN t j ON i.a = j.a AND {inner})"
    return name


@st.composite
def _selects(draw: st.DrawFn) -> str:
    count = draw(st.integers(1, 3))
    clause = f"{draw(_items())} x"
    visible: tuple[str, ...] = ("x",)
    for alias in ALIASES[1:count]:
        kind = draw(
            st.sampled_from(
                ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", ",", "SEMI JOIN", "ANTI JOIN"]
            )
        )
        item = f"{draw(_items())} {alias}"
        if kind == ",":
            if "JOIN" in clause:
                kind = "CROSS JOIN"
            clause += f"{kind if kind == ',' else ' ' + kind} {item}"
            visible += (alias,)
            continue
        extra = draw(_predicates((*visible, alias)))
        left = draw(st.sampled_from(visible))
        clause += f" {kind} {item} ON {left}.a = {alias}.a AND {extra}"
        if kind not in ("SEMI JOIN", "ANTI JOIN"):
            visible += (alias,)
    where = draw(_predicates(visible))
    if draw(st.integers(0, 2)) == 0:
        negation = draw(st.sampled_from(["", "NOT "]))
        outer = draw(st.sampled_from(visible))
        inner = draw(_predicates(("e",)))
        if draw(st.booleans()):
            where += f" AND {negation}EXISTS (SELECT 1 FROM t e WHERE e.a = {outer}.b AND {inner})"
        else:
            where += f" AND {outer}.a {negation}IN (SELECT e.b FROM t e WHERE {inner})"
    shape = draw(st.integers(0, 3))
    columns = ", ".join(f"{v}.a, {v}.c" for v in visible)
    match shape:
        case 0:
            return f"SELECT count(*), sum(x.b) FROM {clause} WHERE {where}"
        case 1:
            return f"SELECT x.a, count(*) FROM {clause} WHERE {where} GROUP BY x.a"
        case 2:
            return f"SELECT DISTINCT {columns} FROM {clause} WHERE {where}"
    return f"SELECT {columns} FROM {clause} WHERE {where}"


@st.composite
def _queries(draw: st.DrawFn) -> str:
    query = draw(_selects())
    if draw(st.integers(0, 4)) == 0:
        operation = draw(st.sampled_from(["UNION ALL", "UNION", "EXCEPT", "INTERSECT ALL"]))
        outer = draw(_predicates(("w",)))
        branch = f"SELECT w.a, w.b FROM s w WHERE {outer}"
        return f"{branch} {operation} SELECT w.a, w.b FROM t w WHERE {draw(_predicates(('w',)))}"
    if draw(st.integers(0, 3)) == 0:
        inner = draw(_predicates(("i",)))
        cte = f"WITH k AS (SELECT * FROM s i WHERE {inner}) "
        return cte + query.replace("FROM s x", "FROM k x").replace(" s y ", " k y ")
    return query


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET threads = 1")
        yield connection


def _fill(database: duckdb.DuckDBPyConnection, name: str, rows: list[tuple[object, ...]]) -> None:
    database.execute(f"CREATE OR REPLACE TABLE {name} (a INTEGER, b INTEGER, c VARCHAR)")
    if rows:
        database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)


def _answer(
    database: duckdb.DuckDBPyConnection, bound: BoundQuery, prefiltered: bool
) -> Counter[tuple[object, ...]]:
    for leaf in bound.streams:
        columns = ", ".join(leaf.columns)
        filters = ""
        if prefiltered and leaf.pushed is not None:
            filters = f" WHERE {to_duckdb(leaf.pushed)}"
        database.execute(
            f"CREATE OR REPLACE TEMP VIEW {leaf.table} AS "
            f"SELECT {columns} FROM (SELECT * FROM data_{leaf.stream}{filters})"
        )
    for relation in bound.relations:
        database.execute(
            f"CREATE OR REPLACE TEMP VIEW {relation.table} AS "
            f"SELECT {', '.join(relation.columns)} FROM data_r"
        )
    return Counter(database.execute(bound.residual_sql).fetchall())


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=_queries(), s=_rows, t=_rows, r=_rows)
def test_prefiltered_slices_give_the_same_answer(
    database: duckdb.DuckDBPyConnection,
    text: str,
    s: list[tuple[object, ...]],
    t: list[tuple[object, ...]],
    r: list[tuple[object, ...]],
) -> None:
    bound = bind(parse_query(text), text, _Names())
    for name, rows in (("s", s), ("t", t), ("r", r)):
        _fill(database, f"data_{name}", rows)
    assert _answer(database, bound, True) == _answer(database, bound, False)
