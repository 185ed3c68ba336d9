"""Kept answers: never older than a computed answer, and there before somebody asks."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pytest
from tests.unit.service.conftest import SECOND, rows, values

from millpond.errors import MillpondError
from millpond.model.time import to_datetime
from millpond.service.answers import kept_answers, refresher
from millpond.service.answers.kept_groups import KeptAnswer
from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock


class Computed:
    """How often answers were computed rather than taken from what is kept."""

    def __init__(self, pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        compute = pond._components.invoker._compute

        def counted(*arguments: Any) -> Any:
            self.times += 1
            return compute(*arguments)

        monkeypatch.setattr(pond._components.invoker, "_compute", counted)


@pytest.fixture
def s(pond: Pond) -> Pond:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts RETAIN INTERVAL 1 MINUTE;"
        "CREATE STREAM other (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM clocked (v INTEGER); CREATE RELATION r (v INTEGER)"
    )
    return pond


def kept(pond: Pond, query: Any) -> KeptAnswer:
    return pond._components.invoker.kept_answers.of(query.id)


def test_it_is_there_before_it_is_asked_for(s: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    query = s.register("SELECT v FROM s [RANGE 3 SECONDS]", materialize="eager")
    s.ingest("s", rows(1, 2, 3, 4))
    s.wait_until_matched()
    computed = Computed(s, monkeypatch)
    for _ in range(3):
        answer = query.invoke()
        assert (values(answer), answer.as_of) == ([1, 2, 3], 4 * SECOND)
        assert answer.epoch == s._components.log.version.epoch
    assert values(query.invoke(at=4 * SECOND)) == [1, 2, 3]
    assert computed.times == 0
    assert values(query.invoke(at=2 * SECOND)) == [0, 1]
    assert computed.times == 1


def test_it_is_never_older_than_its_epoch(s: Pond) -> None:
    query = s.register("SELECT count(*) AS n FROM s", materialize="eager")
    s._components.refresher.stop()  # whoever asks computes
    for number in range(1, 5):
        s.ingest("s", rows(number))
        assert query.invoke().rows() == [(number,)]
        assert query.invoke().rows() == [(number,)]


def test_what_it_does_not_read_does_not_matter(s: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    query = s.register("SELECT v FROM s", materialize="eager")
    s.ingest("s", rows(1, 2))
    s.wait_until_matched()
    computed = Computed(s, monkeypatch)
    s.ingest("other", rows(5))
    s.register("SELECT v FROM s WHERE v > 1")
    s.execute("INSERT INTO r VALUES (1)")
    s.wait_until_matched()
    before = s._components.log.version.epoch
    answer = query.invoke()
    assert (values(answer), answer.epoch) == ([0, 1], before)
    assert computed.times == 0


def test_final_is_said_as_of_now(s: Pond) -> None:
    query = s.register("SELECT v FROM s", materialize="eager")
    s.ingest("s", rows(1))
    s.wait_until_matched()
    assert not query.invoke().final
    s.execute(f"HEARTBEAT s AT TIMESTAMP '{to_datetime(2 * SECOND)}'")
    s.wait_until_matched()
    assert query.invoke().final


def test_relations_change_it(s: Pond) -> None:
    query = s.register("SELECT s.v FROM s, r WHERE s.v = r.v", materialize="eager")
    s.ingest("s", rows(1, 2))
    s.wait_until_matched()
    assert values(query.invoke()) == []
    s.execute("INSERT INTO r VALUES (1) AT TIMESTAMP '1970-01-01 00:00:01'")
    assert values(query.invoke()) == [1]
    s.execute("DELETE FROM r WHERE v = 1 AT TIMESTAMP '1970-01-01 00:00:02'")
    assert values(query.invoke()) == []


def test_what_is_forgotten_leaves_it(s: Pond) -> None:
    query = s.register("SELECT v FROM s [ROWS 10]", materialize="eager")
    s.ingest("s", rows(1))
    s.wait_until_matched()
    assert query.invoke().exact
    s.query(query.id).alter(materialize="lazy")
    s.ingest("s", rows(200))
    s.wait_until_matched()
    expected = query.invoke()
    s.query(query.id).alter(materialize="eager")
    again = query.invoke()
    assert (values(again), again.exact) == (values(expected), expected.exact)


@pytest.mark.parametrize(
    ("window", "stays"), [("[ROWS 2]", True), ("", True), ("[RANGE 10 SECONDS]", False)]
)
def test_on_the_clock(
    s: Pond, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, window: str, stays: bool
) -> None:
    """Time alone changes windows of time; others stay as they are, and are as of now."""
    query = s.register(f"SELECT v FROM clocked {window}", materialize="eager")
    s.ingest("clocked", [{"v": 1}])
    s.wait_until_matched()
    assert values(query.invoke()) == [1]
    computed = Computed(s, monkeypatch)
    clock.set(clock() + 60 * SECOND)
    answer = query.invoke()
    assert (values(answer), answer.as_of) == ([1] if stays else [], clock())
    assert computed.times == 0


def test_altered_it_is_computed_by_the_new_options(s: Pond) -> None:
    query = s.register("SELECT v FROM s", materialize="eager")
    s.ingest("s", rows(1, 2, 3))
    s.wait_until_matched()
    query.alter(max_rows=2)
    with pytest.raises(MillpondError, match="POND-405"):
        query.invoke()
    query.alter(active=False)
    with pytest.raises(MillpondError, match="POND-402"):
        query.invoke()


def test_what_is_gone_is_forgotten(s: Pond) -> None:
    query = s.register("SELECT v FROM s", materialize="eager")
    s.ingest("s", rows(1))
    s.wait_until_matched()
    assert s._components.invoker.kept_answers.ids() == {query.id}
    query.unregister()
    s.wait_until_matched()
    assert s._components.invoker.kept_answers.ids() == set()


@pytest.mark.parametrize(
    ("text", "limit"),
    [("SELECT v + 0 AS v FROM s", "_MOST_BYTES"), ("SELECT v FROM s", "_MOST_STATE")],
)
def test_a_large_answer_is_not_kept(
    s: Pond, monkeypatch: pytest.MonkeyPatch, text: str, limit: str
) -> None:
    monkeypatch.setattr(kept_answers, limit, 8)
    query = s.register(text, materialize="eager")
    s.ingest("s", rows(1, 2, 3))
    s.wait_until_matched()
    assert kept(s, query).table is None
    assert "too large" in kept(s, query).reason
    assert values(query.invoke()) == [0, 1, 2]


def test_a_function_that_fails_ahead_suspends_the_query(s: Pond) -> None:
    def spoilt(x: Any) -> Any:
        if pc.max(x).as_py() > 1:
            raise ValueError("too large")
        return x

    s.function("spoilt_ahead", spoilt, arguments=["DOUBLE"], returns="DOUBLE")
    query = s.register("SELECT spoilt_ahead(v) AS v FROM s", materialize="eager")
    s.ingest("s", rows(1, 2, 3))
    s.wait_until_matched()
    assert "too large" in query.describe()["suspended"]


# -- auto ------------------------------------------------------------------------------------------


def test_auto_is_kept_while_it_is_asked_for(s: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresher, "_CHEAP_SECONDS", 0.0)
    query = s.register("SELECT v FROM s", materialize="auto")
    answer = kept(s, query)

    def epoch(at: int, asked: int) -> int:
        """How many of its answers were served from what is kept."""
        before = answer.served
        s.ingest("s", rows(at))
        s.wait_until_matched()
        for _ in range(asked):
            assert len(query.invoke()) == at
        answer.seconds, answer.seconds_to_answer = 0.002, 0.01
        return answer.served - before

    assert [epoch(at, 0) for at in (1, 2)] == [0, 0], "nobody asked yet"
    assert epoch(3, 9) == 0
    assert [epoch(at, 9) for at in range(4, 12)][-1] == 9
    assert answer.is_wanted
    assert [epoch(at, 0) for at in range(12, 40)]
    assert not answer.is_wanted
    assert answer.table is None, "nothing old is held"


def test_auto_computes_cheap_answers_when_asked(s: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresher, "_CHEAP_SECONDS", 3600.0)
    query = s.register("SELECT v FROM s", materialize="auto")
    for at in range(1, 6):
        s.ingest("s", rows(at))
        s.wait_until_matched()
        for _ in range(5):
            assert len(query.invoke()) == at
    assert kept(s, query).computed == 0


# -- weight ----------------------------------------------------------------------------------------


def test_the_weightiest_are_kept_first(s: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, weight in (("light", 0.5), ("usual", None), ("heavy", 7)):
        options = {} if weight is None else {"weight": weight}
        s.register("SELECT v FROM s", name, materialize="eager", **options)
    s.wait_until_matched()
    answers = s._components.invoker.kept_answers
    refresh, order = answers.refresh, []

    def noted(version: Any, wanted: Any, stops: Any) -> Any:
        order.append([definition.name for definition, *_ in wanted])
        return refresh(version, wanted, stops)

    monkeypatch.setattr(answers, "refresh", noted)
    s.ingest("s", rows(1))
    s.wait_until_matched()
    assert order[-1] == ["heavy", "usual", "light"]


def test_the_streams_of_the_weightiest_queries_are_looked_after_first(
    s: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    s.register("SELECT v FROM s WHERE v > 1")
    s.register("SELECT v FROM s WHERE v > 2")
    s.register("SELECT v FROM other WHERE v > 1", weight=5)
    s.register("SELECT v FROM clocked WHERE v > 1", weight=9, active=False)
    s.wait_until_matched()
    names: list[str] = []
    version = s._components.log.version
    monkeypatch.setattr(
        s._components.maintenance,
        "backfill",
        lambda id: bool(names.append(version.streams[id].name)),
    )
    for id in list(s._components.maintenance._settled):
        s._components.maintenance.look_again(id)  # as if something had come to each stream
    s._components.maintenance.step()
    assert names[:2] == ["other", "s"]
