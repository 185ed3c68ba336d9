"""The refresher: which answers are kept, and when `auto` keeps one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.service.conftest import RecordedEvents, components_of, rows

from millpond.catalog.objects import QueryDef
from millpond.service.answers.kept_groups import KeptAnswer
from millpond.service.answers.refresher import Refresher, is_worth_keeping
from millpond.service.components import Components
from millpond.service.pond import Pond


@pytest.fixture
def parts(pond: Pond) -> Components:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM clocked (v INTEGER)"
    )
    return components_of(pond)


@pytest.fixture
def events() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def refresher(parts: Components, events: Any) -> Refresher:
    """A refresher without a thread; the pond's own stands still."""
    parts.refresher.stop()
    return Refresher(
        parts.log, parts.registrar, parts.invoker, parts.floors, events, lambda query: False
    )


def kept(parts: Components, query: QueryDef) -> KeptAnswer:
    return parts.invoker.kept_answers.of(query.id)


def register(pond: Pond, text: str, name: str, **options: object) -> QueryDef:
    return pond.register(text, name, **options).definition


def test_only_what_is_to_be_kept_is_computed(
    pond: Pond, parts: Components, refresher: Refresher
) -> None:
    eager = register(pond, "SELECT count(*) AS n FROM s", "eager", materialize="eager")
    register(pond, "SELECT v FROM s", "lazy")
    register(pond, "SELECT v FROM s", "off", materialize="eager", active=False)
    pond.ingest("s", rows(1, 2))
    refresher.work()
    assert parts.invoker.kept_answers.ids() == {eager.id}
    table = kept(parts, eager).table
    assert table is not None
    assert table["n"].to_pylist() == [2]


def test_an_answer_is_computed_again_only_when_its_inputs_change(
    pond: Pond, parts: Components, refresher: Refresher
) -> None:
    eager = register(pond, "SELECT count(*) AS n FROM s", "eager", materialize="eager")
    pond.ingest("s", rows(1))
    for _ in range(3):
        refresher.work()
    assert kept(parts, eager).computed == 1
    pond.execute("CREATE STREAM other (v INTEGER)")
    pond.ingest("clocked", [{"v": 1}])
    refresher.work()
    assert kept(parts, eager).computed == 1
    pond.ingest("s", rows(2))
    refresher.work()
    assert kept(parts, eager).computed == 2


def test_what_goes_by_the_clock_is_kept_too(
    pond: Pond, parts: Components, refresher: Refresher
) -> None:
    clocked = register(pond, "SELECT v FROM clocked [RANGE 1 HOUR]", "c", materialize="eager")
    timeless = register(pond, "SELECT v FROM clocked [ROWS 3]", "t", materialize="eager")
    stream = register(pond, "ISTREAM(SELECT v FROM s)", "i", materialize="eager")
    pond.ingest("clocked", [{"v": 1}])
    refresher.work()
    computed = {q.name: kept(parts, q).computed for q in (clocked, timeless, stream)}
    assert computed == {"c": 1, "t": 1, "i": 0}


@pytest.mark.parametrize(
    ("asks", "seconds_to_answer", "seconds", "before", "after"),
    [
        (0.0, 1.0, 0.0, False, False),
        (0.9, 1.0, 0.0, False, False),
        (1.1, 1.0, 0.0, False, True),
        (1.1, 0.0001, 0.0, False, False),
        (1.1, 1.0, 0.6, False, False),
        (1.1, 1.0, 0.6, True, True),
        (1.1, 1.0, 2.1, True, True),
        (1.1, 1.0, 2.3, True, False),
    ],
)
def test_auto_weighs_what_was_measured(
    asks: float, seconds_to_answer: float, seconds: float, before: bool, after: bool
) -> None:
    answer = KeptAnswer(
        asks=asks, seconds_to_answer=seconds_to_answer, seconds=seconds, is_wanted=before
    )
    assert is_worth_keeping(answer) == after


def test_a_sorted_answer_is_kept_if_it_has_what_it_is_sorted_by(
    pond: Pond, parts: Components, refresher: Refresher
) -> None:
    by = {
        "name": "SELECT v AS w, ts FROM s ORDER BY w DESC, ts",
        "column": "SELECT s.v, ts FROM s ORDER BY s.v",
        "expression": "SELECT v FROM s ORDER BY v % 2",
        "other": "SELECT v FROM s ORDER BY ts",
    }
    queries = {name: register(pond, text, name, materialize="eager") for name, text in by.items()}
    pond.ingest("s", rows(1, 2, 3))
    refresher.work()
    computed = {name: kept(parts, query).computed for name, query in queries.items()}
    assert computed == {"name": 1, "column": 1, "expression": 0, "other": 0}
    assert "sorted" in str(kept(parts, queries["other"]).figures()["not kept"])
    assert [v for v, _ in pond.query("name").invoke().rows()] == [2, 1, 0]
    assert kept(parts, queries["name"]).served == 1


def test_a_failure_is_of_its_query_alone(
    pond: Pond, parts: Components, refresher: Refresher, events: RecordedEvents
) -> None:
    bad = register(pond, "SELECT v::STRING::DATE AS d FROM s", "bad", materialize="eager", weight=2)
    good = register(pond, "SELECT v FROM s", "good", materialize="eager")
    pond.ingest("s", rows(1))
    refresher.work()
    failures = [(name, query.name, error.code) for name, query, error in events.calls]
    assert failures == [("answer_failed", "bad", "POND-404")]
    assert (kept(parts, bad).computed, kept(parts, good).computed) == (0, 1)


def test_answers_of_dropped_queries_are_forgotten(
    pond: Pond, parts: Components, refresher: Refresher
) -> None:
    register(pond, "SELECT v FROM s", "q", materialize="eager")
    pond.ingest("s", rows(1))
    refresher.work()
    assert parts.invoker.kept_answers.ids()
    pond.query("q").unregister()
    refresher.work()
    assert not parts.invoker.kept_answers.ids()
