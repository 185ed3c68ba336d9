"""Types: what DuckDB gives the columns, and which calls it refuses."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding, refuse


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("SELECT abs(carrier) FROM flights", "CQL-205", "abs(carrier)"),
        ("SELECT nofunc(delay) FROM flights", "CQL-212", "nofunc(delay)"),
        ("SELECT * FROM flights WHERE carrier", "CQL-205", "carrier"),
    ],
)
def test_it_is_refused_at_its_place(binding: Binding, text: str, code: str, place: str) -> None:
    assert refuse(binding, text) == (code, place)


@pytest.mark.parametrize(
    ("expression", "type"),
    [
        ("delay", "DOUBLE"),
        ("count(*)", "BIGINT"),
        ("avg(distance)", "DOUBLE"),
        ("min(ts)", "TIMESTAMP"),
        ("approx_count_distinct(carrier)", "BIGINT"),
    ],
)
def test_columns_have_the_types_that_duckdb_gives(
    binding: Binding, expression: str, type: str
) -> None:
    (field,) = binding(f"SELECT {expression} AS x FROM flights").output.fields
    assert (field.name, field.type) == ("x", type)
