"""What counts as growing: nothing that common queries do, and everything that can explode."""

from __future__ import annotations

import pytest

from millpond.confined.growth import can_expand


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, b + 1 FROM t WHERE a LIKE '%x%'",
        "SELECT a || ', ' || b || ', ' || c || ', ' || d FROM t",
        "replace(a, ' ', '_')",
        "regexp_replace(a, '[^a-z]', '')",
        "lpad(a, 20, '0')",
        "repeat('-', 10)",
        "concat_ws(', ', a, b, c)",
        "string_agg(a || b, ',')",
        "sum(a) FILTER (WHERE b > 2)",
        "sum(a) OVER (ORDER BY b RANGE BETWEEN 3 PRECEDING AND CURRENT ROW)",
        "[a, b, c]",
        "'repeat' = a",
    ],
)
def test_common_sql_is_evaluated_in_place(sql: str) -> None:
    assert not can_expand(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "len(range(a))",
        "SELECT RePeat(a, b) FROM t",
        "repeat(a, 1000)",
        'SELECT "repeat"(a, 1000000)',
        "SELECT repeat /* twice */ (a, b)",
        "a.repeat(b)",
        "a.lpad(1000000, 'x')",
        "replace(a, 'x', b)",
        "SELECT [x || 'a' for x in y] FROM t",
        "string_agg(a || b || c || d || e || f || g || h || i, ',')",
        "this is no SQL: repeat",
        "SELECT 1 WHERE EXISTS (SELECT range(a) FROM t)",
        "WITH u AS (SELECT repeat(a, b) AS x FROM t) SELECT x FROM u",
        "(SELECT max(len(x)) FROM (SELECT a || a || a || a || a || a || a || a AS x FROM "
        "(SELECT b || b || b || b || b || b || b || b AS a FROM "
        "(SELECT c || c AS b FROM t))))",
        f"concat({', '.join(['a'] * 100)})",
    ],
)
def test_what_may_explode_is_known(sql: str) -> None:
    assert can_expand(sql)
