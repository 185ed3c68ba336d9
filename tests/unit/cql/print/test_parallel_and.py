"""WHERE in which a failing conjunct counts only if no other takes the row away."""

from __future__ import annotations

import duckdb
import pytest

from millpond.cql.print.parallel_and import apply_parallel_and_to_sql

ROWS = "(VALUES ('1', 'a'), ('x', 'b'), ('7', 'a'), (NULL, 'a')) AS t(s, k)"


def test_a_guard_shelters_from_either_side() -> None:
    for where in ("CAST(s AS INTEGER) > 3 AND k = 'a'", "k = 'a' AND CAST(s AS INTEGER) > 3"):
        sql = apply_parallel_and_to_sql(f"SELECT s FROM {ROWS} WHERE {where}")
        assert sql is not None
        assert duckdb.sql(sql).fetchall() == [("7",)]


def test_subqueries_of_its_own_are_sheltered_and_those_in_conjuncts_are_left() -> None:
    inner = f"SELECT s FROM {ROWS} WHERE CAST(s AS INTEGER) > 3 AND k <> 'b' AND s IN (SELECT '7')"
    sql = apply_parallel_and_to_sql(f"SELECT count(*) FROM ({inner}) AS u")
    assert sql is not None
    assert duckdb.sql(sql).fetchall() == [(1,)]


def test_what_nothing_takes_away_fails() -> None:
    sql = apply_parallel_and_to_sql(
        f"SELECT s FROM {ROWS} WHERE CAST(s AS INTEGER) > 3 AND k < 'c'"
    )
    assert sql is not None
    with pytest.raises(duckdb.ConversionException):
        duckdb.sql(sql).fetchall()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 WHERE 1 > 0",
        "SELECT 1",
        "SELECT 1 FROM t WHERE a IN (SELECT 1) AND b IN (SELECT 2)",
        "SELECT (",
        f"SELECT 1 FROM t WHERE a AND {'(' * 5_000}b{')' * 5_000}",
    ],
    ids=["one conjunct", "no where", "only subqueries", "no SQL", "too deep"],
)
def test_what_has_no_other_form(sql: str) -> None:
    assert apply_parallel_and_to_sql(sql) is None
