"""The keys of ASOF JOIN: what the join compares of its right side."""

from __future__ import annotations

import pytest
from sqlglot import exp, parse_one

from millpond.cql.tree.asof import find_asof_keys


def keys_of(condition: str) -> list[str] | None:
    join = parse_one(f"SELECT 1 FROM t ASOF JOIN p {condition}", dialect="duckdb").find(exp.Join)
    assert join is not None
    found = find_asof_keys(join)
    return None if found is None else [key.sql() for key in found]


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ("ON t.k = p.k AND t.ts >= p.ts", ["p.k", "p.ts"]),
        ("ON p.ts < t.ts AND (p.k = t.k)", ["p.ts", "p.k"]),
        ("ON t.ts >= P.ts + 1", ["P.ts + 1"]),
        ("USING (k, ts)", ['"p"."k"', '"p"."ts"']),
    ],
)
def test_the_keys_are_the_right_side_of_each_comparison(condition: str, keys: list[str]) -> None:
    assert keys_of(condition) == keys


@pytest.mark.parametrize(
    "condition",
    [
        "ON t.k = p.k",
        "ON t.k = p.k AND t.ts >= p.ts AND t.a >= p.a",
        "ON t.k = p.k OR t.ts >= p.ts",
        "ON t.ts >= ts",
        "ON p.a = p.b AND t.ts >= p.ts",
        "ON t.ts >= p.ts AND p.a = 3",
    ],
)
def test_other_conditions_have_no_keys(condition: str) -> None:
    assert keys_of(condition) is None
