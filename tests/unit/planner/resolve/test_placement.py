"""Where aggregates may stand."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding, refuse

from millpond.cql import parse_query
from millpond.planner.resolve.placement import find_set_call, has_aggregate


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("SELECT * FROM flights WHERE sum(delay) > 3", "CQL-206", "sum(delay)"),
        ("SELECT sum(sum(delay)) FROM flights", "CQL-206", "sum(delay)"),
        ("SELECT count(*) FROM flights GROUP BY sum(delay)", "CQL-206", "sum(delay)"),
    ],
)
def test_it_is_refused_at_its_place(binding: Binding, text: str, code: str, place: str) -> None:
    assert refuse(binding, text) == (code, place)


@pytest.mark.parametrize(
    ("text", "has_one"),
    [
        ("sum(v)", True),
        ("1 + max(v)", True),
        ("row_number() OVER ()", True),
        ("abs(v)", False),
        ("(SELECT max(v) FROM s)", False),
    ],
)
def test_an_aggregate_is_that_of_its_own_select(text: str, has_one: bool) -> None:
    (item,) = parse_query(f"SELECT {text} AS x FROM s").expressions
    assert has_aggregate(item) == has_one


def test_calls_that_give_several_rows_are_found() -> None:
    (item,) = parse_query("SELECT 1 + unnest([1, 2]) AS x FROM s").expressions
    assert find_set_call(item) is not None
    (item,) = parse_query("SELECT 1 + v AS x FROM s").expressions
    assert find_set_call(item) is None
