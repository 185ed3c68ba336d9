"""Where a query is wrong: the smallest expression that DuckDB does not accept."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding, refuse


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        (
            "SELECT delay + 1, upper(carrier) || abs(upper(carrier)) FROM flights",
            "CQL-205",
            "abs(upper(carrier))",
        ),
        ("SELECT sum(delay), carrier FROM flights", "CQL-219", "carrier"),
        ("SELECT count(*) FROM flights HAVING delay > 3", "CQL-219", "delay"),
        ("SELECT delay FROM flights ORDER BY abs(carrier)", "CQL-205", "abs(carrier)"),
        ("SELECT x FROM (SELECT sum(carrier) AS x FROM flights) t", "CQL-205", "sum(carrier)"),
    ],
)
def test_it_is_refused_at_its_place(binding: Binding, text: str, code: str, place: str) -> None:
    assert refuse(binding, text) == (code, place)
