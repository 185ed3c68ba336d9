"""Derived relations in a query: their queries stand in their place."""

from __future__ import annotations

import pytest
from tests.unit.planner.conftest import StaticNames, schema
from tests.unit.planner.refusing import Binding, refuse

from millpond.catalog.objects import RelationDef


@pytest.fixture(autouse=True)
def busy(names: StaticNames) -> None:
    text = "SELECT origin AS o, count(*) AS n FROM flights [RANGE 1 HOUR] GROUP BY origin"
    names.put(RelationDef(20, "busy", schema("o VARCHAR, n BIGINT"), view=text))
    over = "SELECT o FROM busy WHERE n > 3"
    names.put(RelationDef(21, "busiest", schema("o VARCHAR"), view=over))


def test_a_view_reads_the_streams_of_its_query(binding: Binding) -> None:
    bound = binding("SELECT x.a FROM busiest AS x(a)")
    assert [leaf.stream for leaf in bound.streams] == ["flights"]
    assert bound.relations == ()
    assert set(bound.views) == {"busy", "busiest"}
    assert bound.output.names == ("a",)


def test_an_entry_of_with_hides_a_view(binding: Binding) -> None:
    bound = binding("WITH busy AS (SELECT model FROM planes) SELECT model FROM busy")
    assert bound.views == ()


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("SELECT o FROM busy [ROWS 3]", "CQL-204", "[ROWS 3]"),
        ("SELECT o FROM busy SAMPLE(10)", "CQL-216", "10"),
        ("SELECT nope FROM busy", "CQL-202", "nope"),
    ],
)
def test_it_is_refused_at_its_place(binding: Binding, text: str, code: str, place: str) -> None:
    assert refuse(binding, text) == (code, place)
