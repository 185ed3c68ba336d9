"""Plans are exported, edited, adopted while queries run, and taken back; no change is another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

WINDOW = "s [RANGE 10 SECONDS]"
QUERIES = {
    "three": f"SELECT a.v FROM {WINDOW} a, {WINDOW} b, {WINDOW} c WHERE a.k = b.k AND b.v = c.v",
    "kinds": "SELECT DISTINCT k FROM s [RANGE 10 SECONDS]",
    "counts": "SELECT k, count(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k",
    "more": "SELECT k, count(*) AS n, max(v) AS m FROM s [RANGE 10 SECONDS] GROUP BY k",
    "not_there": "SELECT v FROM s [RANGE 3 SECONDS] EXCEPT SELECT v FROM t [RANGE 2 SECONDS]",
}


def push(pond: Pond, *seconds: int) -> None:
    for stream in ("s", "t"):
        rows = [{"ts": f"1970-01-01 00:00:{t:02}", "k": "ab"[t % 2], "v": t % 3} for t in seconds]
        pond.ingest(stream, rows)
    pond.catch_up()


def start(store: Path) -> Pond:
    pond = open_local(store, ManualClock())
    for stream in ("s", "t"):
        pond.execute(f"CREATE STREAM {stream} (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
    for name, text in QUERIES.items():
        pond.execute(f"CREATE QUERY {name} WITH (changes = 'from beginning') AS {text}")
        pond.query(name).fetch()
    return pond


def fetch(pond: Pond) -> dict[str, list[Any]]:
    return {name: pond.query(name).fetch().rows() for name in QUERIES}


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with start(tmp_path / "store") as pond:
        yield pond


def find(document: dict[str, Any], name: str, query: str) -> str:
    """The id of the operator of a name that a query has, the first one."""
    operators = document["operators"]
    return next(i for i, o in operators.items() if o["name"] == name and query in o["queries"])


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


WRONG = {
    "form": ({"form": 2}, "CQL-214"),
    "field": ({"form": 1, "what": 1}, "CQL-214"),
    "setting": ({"form": 1, "settings": {"memory": "1 GB"}}, "CQL-214"),
    "scheduler": ({"form": 1, "settings": {"scheduler": "odd"}}, "CQL-214"),
    "query": ({"form": 1, "queries": {"nobody": {}}}, "CQL-201"),
    "strategy": ({"form": 1, "queries": {"kinds": {"strategy": "odd"}}}, "CQL-214"),
    "direct": ({"form": 1, "queries": {"not_there": {"strategy": "direct"}}}, "CQL-214"),
    "operator": ({"form": 1, "operators": {"operator:join.0": {}}}, "CQL-201"),
    "object": ({"form": 1, "operators": []}, "CQL-214"),
}


@pytest.mark.parametrize(("document", "code"), WRONG.values(), ids=WRONG)
def test_what_is_no_plan_is_refused(pond: Pond, document: dict[str, Any], code: str) -> None:
    for call in (pond.compare_plan, pond.adopt_plan):
        with pytest.raises(MillpondError) as caught:
            call(document)
        assert caught.value.code == code
    assert pond.adopted_plans() == []


def test_what_an_operator_cannot_be_is_refused(pond: Pond) -> None:
    document = pond.export_plan()
    join = next(i for i, o in document["operators"].items() if o["order"])
    distinct = find(document, "distinct", "kinds")
    expire = next(i for i, o in document["operators"].items() if o["name"] == "expire")
    source = next(i for i, o in document["operators"].items() if not o["inputs"])
    for id, field, value in (
        (join, "order", ["a", "b"]),
        (join, "order", ["a", "b", "d"]),
        (join, "order", "a"),
        (join, "synopsis", "counts"),
        (distinct, "synopsis", "odd"),
        (distinct, "shared", "no"),
        (expire, "synopsis", "0 partitions"),
        (source, "shared", False),
        (join, "inputs", []),
        (join, "rate", 1),
    ):
        with pytest.raises(MillpondError) as caught:
            pond.compare_plan({"form": 1, "operators": {id: {field: value}}})
        assert caught.value.code == "CQL-214", (id, field)
    fixed = {"form": 1, "queries": {"kinds": {"strategy": "negative"}}}
    pond.adopt_plan(fixed)
    now = pond.export_plan(["kinds"])
    id = find(now, "distinct", "kinds")
    with pytest.raises(MillpondError, match="CQL-214"):
        pond.compare_plan({"form": 1, "operators": {id: {"synopsis": "delta star"}}})
