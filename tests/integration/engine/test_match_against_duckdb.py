"""The whole query-data join against DuckDB evaluating the predicate's text."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import Leading, snapshot_queries
from millpond.engine.predicates.factors import factorize
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.model.schema import Field, Schema

SCHEMA = Schema(
    (
        Field("i1", "TINYINT"),
        Field("i4", "INTEGER"),
        Field("i8", "BIGINT"),
        Field("f4", "FLOAT"),
        Field("f8", "DOUBLE"),
        Field("s", "VARCHAR"),
        Field("ts", "TIMESTAMP"),
        Field("d", "DATE"),
        Field("b", "BOOLEAN"),
        Field("dec", "DECIMAL(10,2)"),
    )
)

EVALUATOR = ScalarEvaluator()

_FLOATS = [0.0, -0.0, 0.1, 2.5, -1.0, 1e300, -1e300, 5e-324, math.inf, -math.inf, math.nan, 3.0]
_TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "b",
    "JFK",
    "ü",
    "ÿ",
    "a\0",
    "%",
    "5",
    "-5",
    "abcdefgh",
    "abcdefghi",
    "日本",
]
_TIMES = [
    datetime(2020, 1, 1),
    datetime(2020, 1, 1, 0, 0, 0, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2020, 6, 1, 12, 30),
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
]
_DATES = [date(2020, 1, 1), date(2020, 1, 2), date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31)]

VALUES: dict[str, st.SearchStrategy[object]] = {
    "i1": st.sampled_from([-128, 127, 0, 5, 6, -5]),
    "i4": st.sampled_from([-(2**31), 2**31 - 1, 0, 1, 2, 3, 5, 6, -5, 100]),
    "i8": st.sampled_from([-(2**63), 2**63 - 1, 0, 1, 2, 5, -5, 2**53, 2**53 + 1, -(2**53) - 1]),
    "f4": st.sampled_from([float(np.float32(x)) for x in _FLOATS if abs(x) < 1e38 or x != x])
    | st.sampled_from([math.inf, -math.inf, 16777216.0]),
    "f8": st.sampled_from(_FLOATS),
    "s": st.sampled_from(_TEXTS),
    "ts": st.sampled_from(_TIMES),
    "d": st.sampled_from(_DATES),
    "b": st.booleans(),
    "dec": st.sampled_from([Decimal(x) for x in ("0.00", "0.10", "0.12", "-5.00", "99999999.99")]),
}

_WHOLE = ["0", "1", "2", "5", "-5", "127", "128", "-128", "-129", "2147483647", "2147483648"]
_WHOLE += ["9223372036854775807", "-9223372036854775808", "9223372036854775808", "16777217"]
_WHOLE += ["100000000000000000000", "5::BIGINT", "CAST(5 AS TINYINT)", "9007199254740993", "2 + 3"]
_FRACTION = ["0.1", "-0.1", "2.5", "5.0", "0.105", "0.12", "0.0", "123456789012345678.25"]
_FRACTION += ["0.00000000000000000001", "0.1000000000000000000000001", "5.5"]
_DOUBLE = ["1e0", "2.5e0", "1e300", "-1e300", "1e400", "0e0", "'nan'::DOUBLE", "'inf'::DOUBLE"]
_DOUBLE += ["9007199254740992e0", "'-inf'::DOUBLE", "5e-324", "0.1::DOUBLE"]
_NUMBERS = st.sampled_from([*_WHOLE, *_FRACTION, *_DOUBLE, "NULL"])
_NUMERIC_TEXT = ["'5'", "'-5'", "' 5 '", "'2.5'", "'1e0'", "'0'"]
_QUOTED = st.sampled_from(["'" + t.replace("'", "''") + "'" for t in _TEXTS if "\0" not in t])
_INSTANTS = st.sampled_from(
    [
        "TIMESTAMP '2020-01-01 00:00:00'",
        "TIMESTAMP '2020-01-01 00:00:00.000001'",
        "'2020-01-01'",
        "'2020-06-01T12:30:00'",
        "'2020-1-1 0:0:0'",
        "DATE '2020-01-01'",
        "TIMESTAMP '2020-01-01' + INTERVAL 1 DAY",
        "'infinity'",
        "'1969-12-31 23:59:59.999999'",
        "NULL",
    ]
)
_DAYS = st.sampled_from(
    [
        "DATE '2020-01-01'",
        "'2020-01-02'",
        "DATE '1970-01-01'",
        "'0001-01-01'",
        "TIMESTAMP '2020-01-01 12:00:00'",
        "DATE '2020-01-01' + 1",
        "NULL",
    ]
)
CONSTANTS: dict[str, st.SearchStrategy[str]] = {
    "i1": _NUMBERS | st.sampled_from(_NUMERIC_TEXT),
    "i4": _NUMBERS | st.sampled_from(_NUMERIC_TEXT),
    "i8": _NUMBERS,
    "f4": _NUMBERS,
    "f8": _NUMBERS | st.sampled_from(_NUMERIC_TEXT),
    "s": _QUOTED | st.just("NULL"),
    "ts": _INSTANTS,
    "d": _DAYS,
    "b": st.sampled_from(["TRUE", "FALSE", "NULL"]),
    "dec": st.sampled_from([*_WHOLE[:12], *_FRACTION, "NULL"]),
}
_OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]


@st.composite
def atoms(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(sorted(CONSTANTS)))
    constant = CONSTANTS[name]
    kind = draw(st.integers(0, 9))
    if kind <= 3:
        return f"{name} {draw(st.sampled_from(_OPERATORS))} {draw(constant)}"
    if kind == 4:
        return f"{draw(constant)} {draw(st.sampled_from(_OPERATORS[:6]))} {name}"
    if kind == 5:
        negation = draw(st.sampled_from(["", "NOT "]))
        return f"{name} {negation}BETWEEN {draw(constant)} AND {draw(constant)}"
    if kind == 6:
        negation = draw(st.sampled_from(["", "NOT "]))
        items = ", ".join(draw(st.lists(constant, min_size=1, max_size=4)))
        return f"{name} {negation}IN ({items})"
    if kind == 7:
        return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == 8:
        tests = ["b", "b IS TRUE", "b IS NOT TRUE", "b IS FALSE", "b IS NOT FALSE", "TRUE", "NULL"]
        return draw(st.sampled_from(tests))
    others = ["s LIKE '%b%'", "s LIKE 'a%'", "s LIKE 'a_'", "s NOT LIKE 'ab'", "i4 + 1 > 3"]
    others += ["i4 < i8", "length(s) > 2", "CASE WHEN b THEN i4 > 2 ELSE NULL END", "f8 > i1"]
    return draw(st.sampled_from(others))


def _joined(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(children, min_size=2, max_size=4)
    return st.one_of(
        pairs.map(lambda parts: "(" + " AND ".join(parts) + ")"),
        pairs.map(lambda parts: "(" + " OR ".join(parts) + ")"),
        children.map(lambda part: f"NOT ({part})"),
    )


PREDICATES = st.recursive(atoms(), _joined, max_leaves=8)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    size = draw(st.integers(1, 40))
    seed = draw(st.integers(0, 2**32 - 1))
    columns = {}
    for field in SCHEMA.to_arrow():
        pool = draw(st.lists(st.none() | VALUES[field.name], min_size=1, max_size=8))
        random = np.random.default_rng(seed)
        seed += 1
        picked = [pool[i] for i in random.integers(0, len(pool), size)]
        columns[field.name] = pa.array(picked, field.type)
    return pa.table(columns)


CONNECTION = duckdb.connect()


def expected(table: pa.Table, predicate: str) -> list[int] | None:
    """The rows DuckDB's WHERE keeps, or None if it fails."""
    CONNECTION.register("t", table.append_column("row_number", pa.array(range(table.num_rows))))
    # As a projected expression: every row is evaluated, nothing is pushed into the scan.
    sql = f"SELECT row_number FROM (SELECT row_number, ({predicate}) AS p FROM t) WHERE p"
    try:
        return sorted(row[0] for row in CONNECTION.execute(sql).fetchall())
    except duckdb.Error:
        return None


#: Every query that a factor could lead to is led, whatever share of the elements it holds of.
ALL_LED = Leading(least=1, few=1, most_share=2.0)


@settings(max_examples=60)
@given(tables(), st.lists(PREDICATES, min_size=1, max_size=6))
def test_matches_are_what_duckdb_selects(table: pa.Table, predicates: list[str]) -> None:
    queries = [
        (slot, factorize(sqlglot.parse_one(text, read="duckdb"), SCHEMA))
        for slot, text in enumerate(predicates)
    ]
    matches = match(table, snapshot_queries(queries, SCHEMA), EVALUATOR)
    led = match(table, snapshot_queries(queries, SCHEMA, ALL_LED), EVALUATOR)
    assert led.to_table().sort_by("slot").equals(matches.to_table().sort_by("slot"))
    assert led.failed == matches.failed
    reader = matches.reader()
    for slot, text in enumerate(predicates):
        want = expected(table, text)
        if want is None:
            # Value sets come first, so a guarded expression may well succeed here.
            continue
        assert slot not in matches.failed, (text, matches.failed)
        assert reader.rows(slot, 0, table.num_rows).tolist() == want, text
        assert reader.count(slot) == len(want)


def test_a_predicate_that_guards_a_part_of_itself_is_taken_as_where_takes_it() -> None:
    text = "b IS NULL OR (b = TRUE AND i8 = 0.00000000000000000001)"
    values = {"b": [None, False, True], "i8": [-(2**63), -(2**63), 0]}
    arrow = SCHEMA.to_arrow()
    table = pa.table({f.name: pa.array(values.get(f.name, [None] * 3), f.type) for f in arrow})
    factors = factorize(sqlglot.parse_one(text, read="duckdb"), SCHEMA)
    matches = match(table, snapshot_queries([(0, factors)], SCHEMA), EVALUATOR)
    assert not matches.failed
    assert matches.reader().rows(0, 0, 3).tolist() == expected(table, text) == [0]
