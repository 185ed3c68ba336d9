"""A relation's rows and when they were ones."""

from __future__ import annotations

import pytest
from tests.oracle.relations import RelationHistory

from millpond.catalog.objects import RelationDef
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.model.time import BEGINNING

SCHEMA = Schema((Field("k", "VARCHAR"), Field("v", "INTEGER")))


def relation(*rows: tuple[str | None, int | None], key: tuple[str, ...] = ()) -> RelationHistory:
    history = RelationHistory(RelationDef(1, "r", SCHEMA, primary_key=key))
    history.insert([{"k": k, "v": v} for k, v in rows], BEGINNING)
    return history


def at(history: RelationHistory, instant: int) -> list[tuple[str, int]]:
    return [(row["k"], row["v"]) for row in history.at(instant)]


def test_an_update_is_visible_at_its_instant_and_after() -> None:
    history = relation(("a", 1))
    history.update({"v": "v + 1"}, "k = 'a'", 10)
    assert at(history, 9) == [("a", 1)]
    assert at(history, 10) == [("a", 2)]


def test_delete_ends_rows_and_leaves_the_past() -> None:
    history = relation(("a", 1), ("b", 2))
    assert history.delete("v > 1", 5) == 1
    assert at(history, 4) == [("a", 1), ("b", 2)]
    assert at(history, 5) == [("a", 1)]


def test_delete_finds_only_what_is_there_at_its_instant() -> None:
    history = relation(("a", 1))
    history.insert([{"k": "a", "v": 2}], 10)
    assert history.delete("k = 'a'", 5) == 1
    assert at(history, 10) == [("a", 2)]


def test_a_row_inserted_and_deleted_at_one_instant_never_was() -> None:
    history = relation()
    history.insert([{"k": "a", "v": 1}], 5)
    history.delete(None, 5)
    assert history.versions == []


def test_an_earlier_update_does_not_reach_a_row_that_replaced_it() -> None:
    history = relation(("a", 1))
    history.update({"v": "20"}, None, 20)
    history.update({"v": "10"}, None, 10)
    assert [at(history, t) for t in (9, 10, 19, 20)] == [
        [("a", 1)],
        [("a", 10)],
        [("a", 10)],
        [("a", 20)],
    ]


def test_assignments_see_the_row_as_it_was() -> None:
    history = relation(("a", 1))
    history.update({"k": "v", "v": "length(k) + 10"}, None, 1)
    assert at(history, 1) == [("1", 11)]


def test_a_key_is_taken_while_a_row_has_it() -> None:
    history = relation(("a", 1), key=("k",))
    with pytest.raises(MillpondError) as taken:
        history.insert([{"k": "a", "v": 2}], 5)
    assert taken.value.code == "POND-408"
    history.delete(None, 5)
    history.insert([{"k": "a", "v": 2}], 5)
    assert at(history, 5) == [("a", 2)]


def test_a_refused_insert_leaves_nothing() -> None:
    history = relation(("a", 1), key=("k",))
    with pytest.raises(MillpondError):
        history.insert([{"k": "b", "v": 2}, {"k": "b", "v": 3}], 5)
    assert at(history, 5) == [("a", 1)]
