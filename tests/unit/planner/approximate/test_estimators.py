"""What can be estimated from a sample, and why not."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding

from millpond.planner.approximate.estimators import Estimate, estimating_query, find_estimates


def test_counts_sums_and_averages_are_estimated(binding: Binding) -> None:
    bound = binding(
        "SELECT carrier, count(*) AS n, sum(Distance) AS d, avg(delay + 1) AS a"
        " FROM flights [RANGE 1 HOUR] GROUP BY carrier"
    )
    assert find_estimates(bound) == (
        Estimate(1, "count", None),
        Estimate(2, "sum", "distance"),
        Estimate(3, "avg", None),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT max(delay) FROM flights", "COUNT, SUM and AVG alone"),
        ("SELECT count(DISTINCT carrier) FROM flights", "distinct"),
        ("SELECT carrier FROM flights", "no aggregate"),
        ("SELECT count(*) FROM flights [ROWS 10]", "last rows"),
        ("SELECT count(*) FROM flights, planes", "no estimator"),
        ("SELECT count(*) FROM flights UNION SELECT 1", "one SELECT"),
        ("SELECT count(*) FROM (SELECT delay FROM flights) t", "the stream itself"),
        ("SELECT count(*) FROM flights LIMIT 1", "LIMIT"),
    ],
)
def test_others_are_not_and_it_is_said_why(binding: Binding, text: str, reason: str) -> None:
    found = find_estimates(binding(text))
    assert isinstance(found, str)
    assert reason in found


def test_behind_an_answer_comes_what_its_bounds_need(binding: Binding) -> None:
    bound = binding("SELECT count(*) AS n FROM flights")
    found = find_estimates(bound)
    assert not isinstance(found, str)
    scaled = estimating_query(bound, found, 10.0)
    assert scaled.output.names[0] == "n"
    assert len(scaled.output.names) == 2
