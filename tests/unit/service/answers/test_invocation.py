"""Invocation: NOW, what is final, what is complete, and that an answer is of one version."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from tests.unit.service.conftest import SECOND, OpenPond, rows, values

from millpond.errors import MillpondError
from millpond.model.loss import Cause, Loss
from millpond.model.time import BEGINNING, END, to_datetime
from millpond.service.answers import leaf_scan
from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock


@pytest.fixture
def both(pond: Pond) -> Pond:
    """A pond with a stream on application time and one on system time."""
    pond.execute(
        "CREATE STREAM app (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 5 SECONDS;"
        "CREATE STREAM sys (v INTEGER); CREATE RELATION r (v INTEGER)"
    )
    return pond


# -- NOW ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "now"),
    [
        ("SELECT v FROM app", 30),
        ("SELECT v FROM sys", 1_000),
        ("SELECT v FROM r", 1_000),
        ("SELECT app.v FROM app, sys", 30),
        ("SELECT app.v FROM app, r", 30),
        ("SELECT reason FROM app$rejects", 1_000),
        ("SELECT 1 AS one", 1_000),
    ],
)
def test_now(both: Pond, query: str, now: int) -> None:
    both.ingest("app", rows(30, 20))
    both.ingest("sys", [{"v": 1}])
    assert both.ask(query).as_of == now * SECOND


def test_before_any_element_now_is_the_beginning(both: Pond) -> None:
    answer = both.ask("SELECT count(*) AS n FROM app")
    assert (answer.as_of, answer.rows(), answer.final) == (BEGINNING, [(0,)], False)


def test_now_is_of_the_streams_the_query_reads(both: Pond) -> None:
    both.execute("CREATE STREAM more (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    both.ingest("app", rows(30))
    both.ingest("more", rows(70))
    assert both.ask("SELECT v FROM app").as_of == 30 * SECOND
    assert both.ask("SELECT app.v FROM app, more").as_of == 70 * SECOND


# -- final --------------------------------------------------------------------------------------


def test_an_instant_is_final_before_every_heartbeat(both: Pond) -> None:
    both.execute("CREATE STREAM more (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    both.ingest("app", rows(30))
    both.ingest("more", rows(20))
    one = both.register("SELECT v FROM app")
    two = both.register("SELECT app.v FROM app, more")
    assert [one.invoke(at * SECOND).final for at in (24, 25, 30)] == [True, False, False]
    assert [two.invoke(at * SECOND).final for at in (19, 20, 24)] == [True, False, False]


def test_on_system_time_what_is_past_is_final(both: Pond, clock: ManualClock) -> None:
    query = both.register("SELECT v FROM sys")
    assert not query.invoke().final, "more may arrive at this instant"
    at = clock()
    clock.advance(1)
    assert query.invoke(at).final
    both.ingest("sys", [{"v": 1}])
    assert query.invoke(at).rows() == []


def test_a_final_answer_does_not_change(both: Pond) -> None:
    query = both.register("SELECT v FROM app [RANGE 10 SECONDS] WHERE v >= 0")
    both.ingest("app", rows(30, 26))
    before = query.invoke(24 * SECOND)
    assert before.final
    assert both.ingest("app", rows(25, 24)).rejected == 1
    assert query.invoke(24 * SECOND).rows() == before.rows()


def test_an_ended_source_is_final_for_ever(pond: Pond, tmp_path: Any) -> None:
    file = tmp_path / "f.csv"
    file.write_text("1970-01-01 00:00:05,1\n")
    pond.execute(
        "CREATE STREAM f (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts"
        f" USING csv OPTIONS (path '{file}')"
    )
    query = pond.register("SELECT v FROM f")
    assert not query.invoke(5 * SECOND).final
    pond._components.sequencer.end(pond.streams()[0])
    assert query.invoke(END - 1).final


# -- complete -----------------------------------------------------------------------------------


@pytest.fixture
def forgotten(pond: Pond) -> Pond:
    """A stream of which only 40 to 49 s is kept."""
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts RETAIN 1 ROWS")
    for first in range(0, 50, 10):
        pond.ingest("s", rows(*range(first, first + 10)))
    pond.wait_until_matched()
    assert pond._components.log.version.clock(pond.streams()[0].id).kept_from == 39 * SECOND + 1
    return pond


@pytest.mark.parametrize(
    ("window", "at", "complete"),
    [
        ("[RANGE 10 SECONDS]", 49, True),
        ("[RANGE 10 SECONDS]", 48, False),
        ("[NOW]", 40, True),
        ("[RANGE 5 SECONDS SLIDE 10 SECONDS]", 49, False),
        ("[RANGE 1 SECOND SLIDE 10 SECONDS]", 49, True),
        ("[ROWS 2]", 49, True),
        ("[ROWS 11]", 49, False),
        ("[ROWS 2 WHERE v < 1]", 49, False),
        ("[PARTITION BY v ROWS 1]", 49, False),
        ("", 49, False),
    ],
)
def test_an_answer_says_whether_everything_is_kept(
    forgotten: Pond, window: str, at: int, complete: bool
) -> None:
    answer = forgotten._components.registrar.prepare_once(f"SELECT v FROM s {window}")
    found = forgotten._components.invoker.invoke(answer, at * SECOND)
    assert found.exact == complete
    assert found.loss == (() if complete else (Loss("s", Cause.EXPIRED, None, 39 * SECOND),))


def test_a_full_window_may_still_lack_what_was_forgotten(pond: Pond) -> None:
    """Old elements may be kept beside young ones, while some between them are not."""
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts"
        " DELAY INTERVAL 1 DAY RETAIN INTERVAL 20 SECONDS"
    )
    pond.ingest("s", rows(10, 95, 100))
    pond.ingest("s", rows(50, 60))
    pond.wait_until_matched()
    assert len(pond.ask("SELECT v FROM s")) == 3
    assert pond.ask("SELECT v FROM s [ROWS 2]").exact
    assert not pond.ask("SELECT v FROM s [ROWS 3]").exact


def test_periods_say_so_too(forgotten: Pond) -> None:
    for begin, complete in ((40, True), (39, False)):
        period = f"BEGIN TIMESTAMP '1970-01-01 00:00:{begin}' END NOW"
        assert forgotten.ask(f"SELECT v FROM s {period}").exact == complete


def test_an_instant_that_is_not_kept_is_an_error(forgotten: Pond) -> None:
    query = forgotten.register("SELECT v FROM s [NOW]")
    for at in (39 * SECOND, 0, -(2**70)):
        with pytest.raises(MillpondError, match="POND-403"):
            query.invoke(at)
    assert query.invoke(39 * SECOND + 1).rows() == []


# -- one version --------------------------------------------------------------------------------


def test_an_answer_is_of_one_version(both: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed, merged or dropped while an answer is computed does not show in it."""
    both._components.maintenance.stop()
    both._components.maintenance.stopping = False
    for at in range(9):
        both.ingest("app", rows(at))
    query = both.register("SELECT a.v FROM app a, app b WHERE a.v = b.v")
    before = len(query.invoke())
    span = leaf_scan.LeafView.span
    disturbed: list[int] = []

    def disturb(view: leaf_scan.LeafView, *given: Any) -> Any:
        if not disturbed:
            disturbed.append(1)
            both.ingest("app", rows(9, 10, 11))
            while both._components.maintenance.step():
                pass
            both._components.invoker.files.forget(list(both._components.invoker.files._segments))
        return span(view, *given)

    monkeypatch.setattr(leaf_scan.LeafView, "span", disturb)
    answer = query.invoke()
    assert disturbed
    assert (len(answer), answer.as_of) == (before, 8 * SECOND)
    assert len(query.invoke()) > before


def test_how_elements_lie_in_segments_does_not_show(both: Pond, open_pond: OpenPond) -> None:
    both.execute("CREATE STREAM twin (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    given = rows(3, 1, 3, 2, 3, 9, 9, 4)
    both.execute(
        "CREATE STREAM slow (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 1 DAY"
    )
    both.ingest("slow", given)
    both.execute("CREATE STREAM cut (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 1 DAY")
    for row in given:
        both.ingest("cut", [row])
    both.wait_until_matched()
    for query in (
        "SELECT v FROM {} [ROWS 3]",
        "SELECT v FROM {} [ROWS 3 WHERE v < 6]",
        "SELECT v FROM {} [RANGE 6 SECONDS] WHERE v % 2 = 0",
        "SELECT v FROM {} [PARTITION BY ts ROWS 1]",
        "SELECT v FROM {} SAMPLE(50) WHERE v >= 0",
    ):
        seed = {"seed": 7} if "SAMPLE" in query else {}
        found = [
            values(both.register(query.format(name), **seed).invoke(at))
            for name in ("slow", "cut")
            for at in (None, 3 * SECOND)
        ]
        assert found[:2] == found[2:], query


def test_kept_partitions_are_few_and_right(both: Pond) -> None:
    both.ingest("app", rows(*range(20, 30)))
    for least in range(100):
        query = f"SELECT v FROM app [PARTITION BY v ROWS 1 WHERE v >= {least % 10}]"
        assert values(both.ask(query)) == list(range(least % 10, 10))
        assert values(both.ask(f"SELECT v FROM app [PARTITION BY v ROWS {least + 1}]")) == [
            *range(10)
        ]
    (opened,) = both._components.invoker.files._segments.values()
    assert len(opened._computed) <= 64


# -- what an answer holds -----------------------------------------------------------------------


def test_rows_beyond_the_years_of_python_are_text(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, at TIMESTAMP, d DATE) TIMESTAMP BY ts")
    pond.ingest(
        "s",
        [
            {"ts": to_datetime(1), "at": "infinity", "d": "5000000-01-01"},
            {"ts": to_datetime(2), "at": "2000-01-01", "d": "2000-01-01"},
        ],
    )
    answer = pond.ask("SELECT at, d FROM s ORDER BY ts")
    assert all(isinstance(value, str) for value in answer.rows()[0])
    assert answer.rows()[1] == (datetime(2000, 1, 1), datetime(2000, 1, 1).date())


def test_a_closed_pond_says_so(pond: Pond) -> None:
    query = pond.register("SELECT 1 AS one")
    pond.close()
    pond.close()
    for use in (
        query.invoke,
        query.unregister,
        lambda: pond.ask("SELECT 1 AS one"),
        lambda: pond.execute("SHOW STREAMS"),
        lambda: pond.register("SELECT 1 AS one"),
        lambda: pond.ingest("s", []),
        lambda: pond.catch_up(),
    ):
        with pytest.raises(MillpondError, match="POND-410"):
            use()
    assert not pond.ready
