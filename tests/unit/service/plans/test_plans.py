"""Plans are exported, edited, adopted while queries run, and taken back; no change is another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.plans.plan_ponds import QUERIES, fetch, find, push, start

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock


def edit(document: dict[str, Any]) -> dict[str, Any]:
    """Edit all that can be edited, each once."""
    document = json.loads(json.dumps(document))
    operators = document["operators"]
    join = next(o for o in operators.values() if o["order"])
    assert join["order"] == ["a", "b", "c"]
    join["order"] = ["c", "b", "a"]
    form = operators[find(document, "distinct", "kinds")]
    form["synopsis"] = next(s for s in form["synopses"] if s != form["synopsis"])
    grouping = next(o for o in operators.values() if "group" in o["name"])
    grouping["shared"] = False
    document["settings"]["scheduler"] = "greedy"
    document["queries"]["more"]["strategy"] = "negative"
    return document


def test_an_edited_plan_is_adopted_and_taken_back_and_no_change_is_another(
    pond: Pond, tmp_path: Path
) -> None:
    with start(tmp_path / "other") as other:
        for some in ((1, 2), (3, 4)):
            push(pond, *some)
            push(other, *some)
        first = pond.export_plan()
        edited = edit(first)
        difference = pond.compare_plan(edited)
        assert pond.export_plan() == first, "to compare changes nothing"
        assert {one["field"] for one in difference["operators"]} == {"order", "synopsis", "shared"}
        assert difference["settings"] == [
            {"name": "scheduler", "before": first["settings"]["scheduler"], "after": "greedy"}
        ]
        assert [one["after"] for one in difference["strategies"]] == ["negative"]
        done = pond.adopt_plan(edited, by="ann")
        assert done["number"] == 1
        for some in ((5, 6), (7, 8)):
            push(pond, *some)
            push(other, *some)
            assert fetch(pond) == fetch(other)
        second = pond.export_plan()
        for one in difference["plans"]:
            assert set(one["comes"]) <= set(second["operators"])
            gone = set(one["goes"]) & set(second["operators"])
            assert all(one["query"] not in second["operators"][i]["queries"] for i in gone)
        assert second["settings"]["scheduler"] == "greedy"
        assert second["queries"]["more"]["strategy"] == "negative"
        assert ["c", "b", "a"] in [o.get("order") for o in second["operators"].values()]
        assert False in [o.get("shared") for o in second["operators"].values()]

        # It stays over a restart, with other statistics.
        pond.close()
        with open_local(tmp_path / "store", ManualClock()) as again:
            push(again, *range(9, 30))
            push(other, *range(9, 30))
            assert fetch(again) == fetch(other)
            third = again.export_plan()
            assert third == second
            (past,) = again.adopted_plans()
            assert past["by"] == "ann"
            assert "scheduler" in past["changed"]
            assert again.undo_plan() == past
            assert again.adopted_plans() == []
            push(again, 31, 45)
            push(other, 31, 45)
            assert fetch(again) == fetch(other)
            back = again.export_plan()
            assert back["settings"] == first["settings"]
            assert back["queries"]["more"]["strategy"] == "aware"
            assert ["c", "b", "a"] not in [o.get("order") for o in back["operators"].values()]
            with pytest.raises(MillpondError, match="CQL-201"):
                again.undo_plan()


def test_a_later_query_is_planned_around_what_was_adopted(pond: Pond) -> None:
    document = pond.export_plan(["kinds"])
    synopses = document["operators"][find(document, "distinct", "kinds")]["synopses"]
    assert len(synopses) == 3
    for number, synopsis in enumerate(synopses):
        id = find(pond.export_plan(["kinds"]), "distinct", "kinds")
        pond.adopt_plan({"form": 1, "operators": {id: {"synopsis": synopsis}}})
        name = f"later_{number}"
        pond.execute(f"CREATE QUERY {name} AS SELECT k, k AS l FROM ({QUERIES['kinds']}) x")
        pond.query(name).fetch()
        operators = pond.export_plan(["kinds", name])["operators"].values()
        (own,) = [o for o in operators if o["name"] == "distinct"]
        assert own["synopsis"] == synopsis
        assert {"kinds", name} <= set(own["queries"])


def test_an_operators_entity_is_set_by_the_same_choices(pond: Pond) -> None:
    push(pond, 1, 2)
    before = fetch(pond)
    document = pond.export_plan(["three"])
    id = next(i for i, o in document["operators"].items() if o["order"])
    assert pond.entities.one(id).settings["order"] == ["a", "b", "c"]
    pond.entities.set(id, {"order": ["b", "c", "a"]})
    (adopted,) = pond.adopted_plans()
    assert adopted["changed"] == [f"order of {id}"]
    push(pond, 3)
    assert fetch(pond)["three"][: len(before["three"])] == before["three"]
    now = [e for e in pond.entities.every() if "order" in e.settings]
    assert [e.settings["order"] for e in now] == [["b", "c", "a"]]


def change_settings(pond: Pond) -> None:
    pond.execute("ALTER SYSTEM SET (scheduler = 'chain')")


def change_strategy(pond: Pond) -> None:
    pond.execute("ALTER QUERY more SET (strategy = 'negative')")


def adopt_another(pond: Pond) -> None:
    pond.adopt_plan({"form": 1, "settings": {"scheduler": "chain"}})


def adopt_and_take_back(pond: Pond) -> None:
    adopt_another(pond)
    pond.undo_plan()


@pytest.mark.parametrize(
    "meanwhile", [change_settings, change_strategy, adopt_another, adopt_and_take_back]
)
def test_what_was_compared_with_something_else_is_not_adopted(
    pond: Pond, meanwhile: Callable[[Pond], None]
) -> None:
    push(pond, 1, 2)
    document = pond.export_plan()
    document["settings"]["scheduler"] = "greedy"
    base = pond.compare_plan(document)["base"]
    assert pond.compare_plan(document)["base"] == base
    push(pond, 3, 4)
    meanwhile(pond)
    before = pond.export_plan(), pond.adopted_plans()
    with pytest.raises(MillpondError, match="CQL-214") as refused:
        pond.adopt_plan(document, base=base)
    assert "Export or compare again" in str(refused.value.hint)
    assert (pond.export_plan(), pond.adopted_plans()) == before
    document = pond.export_plan()
    document["settings"]["scheduler"] = "greedy"
    pond.adopt_plan(document, base=pond.compare_plan(document)["base"])
    assert pond.export_plan()["settings"]["scheduler"] == "greedy"


def test_the_plan_that_is_meant_is_taken_back_or_none(pond: Pond) -> None:
    for scheduler in ("greedy", "chain"):
        pond.adopt_plan({"form": 1, "settings": {"scheduler": scheduler}})
    for other in (1, 3):
        with pytest.raises(MillpondError, match=f"CQL-214.*plan {other} was not adopted last"):
            pond.undo_plan(other)
    assert pond.export_plan()["settings"]["scheduler"] == "chain"
    assert [pond.undo_plan(number)["number"] for number in (2, 1)] == [2, 1]
    assert pond.adopted_plans() == []
