"""Casts that no value survives: each pair of types is held to what DuckDB does with a value."""

from __future__ import annotations

import duckdb
import pytest

from millpond.planner.check.casts import check_casts

#: A value of each type.
VALUES = {
    "BOOLEAN": "true",
    "INTEGER": "1",
    "HUGEINT": "1",
    "DOUBLE": "1",
    "DECIMAL(10,2)": "1",
    "DATE": "'2026-02-28'",
    "TIMESTAMP": "'2026-02-28'",
    "TIMESTAMP WITH TIME ZONE": "'2026-02-28'",
    "TIME": "'10:00:00'",
    "INTERVAL": "'1 hour'",
    "UUID": "'00000000-0000-0000-0000-000000000000'",
    "BLOB": "'a'",
    "INTEGER[]": "[1, 2]",
    "DATE[]": "['2026-02-28', '2026-02-28']",
    "INTEGER[2]": "[1, 2]",
    "STRUCT(a INTEGER)": "{'a': 1}",
    "STRUCT(a DATE)": "{'a': '2026-02-28'}",
    "STRUCT(a INTEGER)[]": "[{'a': 1}, {'a': 2}]",
    "VARCHAR": "'1'",
}


@pytest.mark.parametrize("type", VALUES)
def test_a_cast_is_refused_if_duckdb_has_none(type: str) -> None:
    with duckdb.connect() as session:
        for other, value in VALUES.items():
            session.execute(f"CREATE OR REPLACE TABLE t (x {other})")
            session.execute(f"INSERT INTO t VALUES ({value})")
            sql = f"SELECT CAST(x AS {type}) AS y FROM t"
            expected = "Unimplemented type for cast" in _objection(session, sql)
            try:
                check_casts(session, sql)
            except duckdb.ConversionException:
                assert expected, (other, type)
            else:
                assert not expected, (other, type)


def _objection(session: duckdb.DuckDBPyConnection, sql: str) -> str:
    try:
        session.execute(sql).fetchall()
    except duckdb.Error as error:
        return str(error)
    return ""


@pytest.mark.parametrize("comparison", ["x = {}", "x <> {}", "x IN ({}, 3)", "x = -{}"])
@pytest.mark.parametrize("type", VALUES)
def test_a_whole_number_of_50_digits_is_refused_where_duckdb_fails(
    type: str, comparison: str
) -> None:
    with duckdb.connect() as session:
        session.execute(f"CREATE TABLE t (x {type})")
        sql = f"SELECT '{10**60}' AS text FROM t WHERE {comparison.format(10**50)}"
        refused = _refusal(session, sql)
        session.execute(f"INSERT INTO t VALUES ({VALUES[type]})")
        assert bool(refused) == bool(_objection(session, sql)), refused


def test_no_objection_to_a_constant_that_is_beyond_json() -> None:
    with duckdb.connect() as session:
        check_casts(session, f"SELECT {10**50} AS large")


def _refusal(session: duckdb.DuckDBPyConnection, sql: str) -> str:
    try:
        check_casts(session, sql)
    except duckdb.Error as error:
        return str(error)
    return ""
