"""The refresher: which answers are computed ahead, in which order, and what `auto` may spend."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.service.conftest import RecordedEvents, components_of, rows

from millpond.catalog.objects import QueryDef
from millpond.service.answers.answer_cache import CachedAnswer
from millpond.service.answers.refresher import Refresher
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
    return Refresher(parts.log, parts.registrar, parts.invoker, events, lambda query: False)


def kept(parts: Components, query: QueryDef) -> CachedAnswer:
    return parts.invoker.answer_cache.of(query.id)


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
    assert parts.invoker.answer_cache.ids() == {eager.id}
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


def test_what_goes_by_the_clock_is_not_computed_ahead(
    pond: Pond, parts: Components, refresher: Refresher
) -> None:
    clocked = register(pond, "SELECT v FROM clocked [RANGE 1 HOUR]", "c", materialize="eager")
    timeless = register(pond, "SELECT v FROM clocked [ROWS 3]", "t", materialize="eager")
    stream = register(pond, "ISTREAM(SELECT v FROM s)", "i", materialize="eager")
    pond.ingest("clocked", [{"v": 1}])
    refresher.work()
    computed = {q.name: kept(parts, q).computed for q in (clocked, timeless, stream)}
    assert computed == {"c": 0, "t": 1, "i": 0}


def test_auto_spends_what_invocations_have_earned(
    pond: Pond, parts: Components, refresher: Refresher
) -> None:
    auto = register(pond, "SELECT count(*) AS n FROM s", "auto", materialize="auto")
    answer = kept(parts, auto)

    def computed_after(seconds: float) -> int:
        pond.ingest("s", rows(1))
        answer.seconds = seconds
        refresher.work()
        return answer.computed

    assert computed_after(1.0) == 0
    refresher.count_invocation(auto)
    assert computed_after(0.0001) == 0  # cheap: computed when it is asked for
    assert answer.credit == 1
    assert computed_after(1.0) == 1
    assert answer.credit == 0
    assert computed_after(1.0) == 1
    assert answer.table is None
    for _ in range(20):
        refresher.count_invocation(auto)
    assert answer.credit == 8
    eager = register(pond, "SELECT v FROM s", "eager", materialize="eager")
    refresher.count_invocation(eager)
    assert kept(parts, eager).credit == 0


def test_the_weightiest_are_computed_first(
    pond: Pond, parts: Components, refresher: Refresher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, weight in (("a", 1), ("b", 5), ("c", 2), ("d", 5)):
        register(pond, "SELECT v FROM s", name, materialize="eager", weight=weight)
    pond.ingest("s", rows(1))
    asked: list[str] = []
    invoke = parts.invoker.invoke

    def record(prepared, at=None):  # type: ignore[no-untyped-def]
        asked.append(prepared.name)
        return invoke(prepared, at)

    monkeypatch.setattr(parts.invoker, "invoke", record)
    refresher.work()
    assert asked == ["b", "d", "c", "a"]


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
    assert parts.invoker.answer_cache.ids()
    pond.query("q").unregister()
    refresher.work()
    assert not parts.invoker.answer_cache.ids()
