"""Joins with non-retroactive relations: where one may stand."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding, refuse


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        (
            "SELECT f.carrier, price FROM flights f FULL JOIN fares ON f.carrier = fares.carrier",
            "CQL-301",
            "fares",
        ),
    ],
)
def test_it_is_refused_at_its_place(binding: Binding, text: str, code: str, place: str) -> None:
    assert refuse(binding, text) == (code, place)


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
def test_rows_meet_the_relation_where_the_stream_is(binding: Binding, join: str) -> None:
    bound = binding(f"SELECT price FROM flights f {join} fares ON f.carrier = fares.carrier")
    assert [leaf.relation for leaf in bound.relations] == ["fares"]
    assert bound.output.names == ("price",)


def test_by_itself_it_is_a_relation_like_others(binding: Binding) -> None:
    assert binding("SELECT count(*) AS n FROM fares a, fares b").streams == ()
