"""Grouping sets: as many rows as DuckDB gives, for every way to write them."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest
from sqlglot import parse_one

from millpond.planner.dataflow.grouping_sets import expand_grouping_sets


def expand(clause: str) -> list[list[str]] | None:
    group = parse_one(f"SELECT 1 FROM t GROUP BY {clause}", read="duckdb").args.get("group")
    sets = expand_grouping_sets(group)
    return None if sets is None else [[key.unnest().sql() for key in keys] for keys in sets]


@pytest.mark.parametrize("clause", ["a", "a, b + 1"])
def test_a_plain_clause_has_none(clause: str) -> None:
    assert expand(clause) is None


def test_without_a_clause_there_are_none() -> None:
    assert expand_grouping_sets(None) is None


@pytest.mark.parametrize(
    "clause",
    [
        "ROLLUP (a, b, c)",
        "CUBE (a, b, c)",
        "GROUPING SETS ((a, b), (c), ())",
        "GROUPING SETS (a, (a, b), a)",
        "a, ROLLUP (b, c)",
        "a, CUBE (b), ROLLUP (c)",
        "ROLLUP ((a, b), c)",
        "CUBE ((a, b), c)",
        "GROUPING SETS (ROLLUP (a, b), c)",
    ],
)
def test_they_are_those_of_duckdb(clause: str) -> None:
    """By GROUPING: which keys a row is not grouped by."""
    found = expand(clause)
    assert found is not None
    expected = Counter(
        tuple(int(key not in keys) for key in "abc" if key in clause) for keys in found
    )
    used = [key for key in "abc" if key in clause]
    bits = ", ".join(f"grouping({key})" for key in used)
    rows = duckdb.sql(
        f"SELECT {bits} FROM (SELECT 1 AS a, 2 AS b, 3 AS c) GROUP BY {clause}"
    ).fetchall()
    assert Counter(rows) == expected
