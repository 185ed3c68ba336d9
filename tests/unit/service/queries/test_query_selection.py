"""Which queries a selection means."""

from __future__ import annotations

import pytest

from millpond.catalog.objects import QueryDef
from millpond.service.queries.query_selection import STATES, QuerySelection, state_of, tags_of

LATE = QueryDef(1, "Late", "SELECT * FROM s WHERE d > 60", {"owner": "ann", "tags": "a, b"})
OFF = QueryDef(2, "off", "SELECT 1 FROM s", {"active": False})
BROKEN = QueryDef(3, "broken", "SELECT 2 FROM s", suspended="why")


def test_tags_and_states() -> None:
    assert [tags_of(query) for query in (LATE, OFF)] == [["a", "b"], []]
    assert [state_of(query) for query in (LATE, OFF, BROKEN)] == list(STATES)


@pytest.mark.parametrize(
    ("selection", "ids"),
    [
        (QuerySelection(), [1, 2, 3]),
        (QuerySelection("LATE"), [1]),
        (QuerySelection("from S"), [1, 2, 3]),
        (QuerySelection(owner=" ann"), [1]),
        (QuerySelection(owner=""), [2, 3]),
        (QuerySelection(tag="B "), [1]),
        (QuerySelection(tag="c"), []),
        (QuerySelection(state="suspended"), [3]),
        (QuerySelection("select", owner="ann", tag="a", state="active"), [1]),
        (QuerySelection("select", owner="ann", state="inactive"), []),
    ],
)
def test_a_query_fulfils_every_condition(selection: QuerySelection, ids: list[int]) -> None:
    assert [query.id for query in (LATE, OFF, BROKEN) if selection.has(query)] == ids


def test_a_selection_without_a_condition_means_all() -> None:
    assert QuerySelection().is_everything
    assert not QuerySelection(names=()).is_everything
