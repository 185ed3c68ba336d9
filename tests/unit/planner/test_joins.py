"""Joins that SteMs serve: which factors link the streams."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding


def test_the_factors_that_link_streams_are_found(binding: Binding) -> None:
    join = binding(
        "SELECT delay, wind FROM flights f, weather w"
        " WHERE f.origin = w.origin AND f.ts >= w.ts AND delay > 3"
    ).join
    assert join is not None
    assert join.leaves == (0, 1)
    assert sorted(factor.op for factor in join.factors) in (["<=", "="], ["=", ">="])


@pytest.mark.parametrize(
    "text",
    [
        "SELECT delay FROM flights",
        "SELECT delay FROM flights f LEFT JOIN weather w ON f.origin = w.origin",
        "SELECT delay FROM flights, weather",
        "SELECT delay FROM flights f, weather w WHERE f.delay + w.wind > 3",
    ],
)
def test_other_joins_are_evaluated_by_duckdb(binding: Binding, text: str) -> None:
    assert binding(text).join is None
