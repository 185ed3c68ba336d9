"""Derivations: who is computed together, from when on, and what streams have to keep for them."""

from __future__ import annotations

import pytest
from tests.unit.service.conftest import SECOND, components_of, rows

from millpond.catalog.objects import QueryDef
from millpond.errors import MillpondError
from millpond.model.time import LAST, format_instant
from millpond.service.changes.derivation import Derivation
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.settings import ChangeSettings
from millpond.service.components import Components
from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock

WINDOWED = "SELECT v FROM s [RANGE 10 SECONDS]"


@pytest.fixture
def parts(pond: Pond) -> Components:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM clocked (v INTEGER);"
        "CREATE RELATION r (v INTEGER)"
    )
    return components_of(pond)


def query(pond: Pond, text: str, name: str, **options: object) -> QueryDef:
    return pond.register(text, name, **options).definition


def follow(pond: Pond, parts: Components, text: str, name: str, **options: object) -> Derivation:
    log = parts.new_derivations.follow(query(pond, text, name, **options))
    return parts.derivations.of(parts.log.version, log)


def test_those_share_that_read_the_same_and_are_as_patient(pond: Pond, parts: Components) -> None:
    one = follow(pond, parts, WINDOWED, "one")
    alike = follow(pond, parts, "SELECT count(*) AS n FROM s a, s b", "alike")
    assert one.sharing_key == alike.sharing_key == (one.streams, frozenset(), 0, 0)
    for number, (text, options) in enumerate(
        [
            ("SELECT v FROM t [RANGE 10 SECONDS]", {}),
            ("SELECT s.v FROM s, r WHERE s.v = r.v", {}),
            (WINDOWED, {"eager_expiration": "5 seconds"}),
        ]
    ):
        other = follow(pond, parts, text, f"other{number}", **options)
        assert other.sharing_key != one.sharing_key


def test_derived_streams_never_wait_for_an_interval(pond: Pond, parts: Components) -> None:
    parts.set_change_settings(ChangeSettings(eager_expiration=5 * SECOND))
    pond.execute(f"CREATE STREAM d AS ISTREAM({WINDOWED})")
    version = parts.log.version
    derived = parts.derivations.of(version, parts.derivations.find("d"))
    assert derived.eager_expiration == 0
    assert derived.must_record_position
    log = follow(pond, parts, WINDOWED, "q")
    assert log.eager_expiration == 5 * SECOND
    assert not log.must_record_position
    assert follow(pond, parts, "SELECT s.v FROM s, r", "told").must_record_position


def test_a_plan_is_kept_until_its_query_is_altered(pond: Pond, parts: Components) -> None:
    known = follow(pond, parts, WINDOWED, "q")
    assert follow_again(parts, known) is known
    pond.query("q").alter(strategy="negative")
    altered = parts.log.version.change_log(pond.query("q").definition.id)
    assert altered is not None
    assert parts.derivations.of(parts.log.version, altered).plan.strategy == "negative"


def follow_again(parts: Components, known: Derivation) -> Derivation:
    return parts.derivations.of(parts.log.version, known.stream)


def test_the_engines_strategy_is_for_whom_it_fits(pond: Pond, parts: Components) -> None:
    unfit = "SELECT v, count(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY v ORDER BY n LIMIT 1"
    parts.set_change_settings(ChangeSettings("direct"))
    plans = {
        text: parts.derivations.plan_query(
            parts.log.version, parts.registrar.bind(text), None
        ).strategy
        for text in (WINDOWED, "SELECT v FROM s EXCEPT SELECT v FROM t", unfit)
    }
    assert plans[WINDOWED] == "direct"
    assert "aware" in plans.values()


def test_what_is_dropped_is_planned_no_more(pond: Pond, parts: Components) -> None:
    one = follow(pond, parts, WINDOWED, "one")
    follow(pond, parts, WINDOWED, "two")
    keys = {node.key for node in one.plan.nodes()}
    running = parts.derivations._running[one.sharing_key]
    assert {running[key] for key in keys} == {2}
    pond.query("two").unregister()
    assert [s.id for s in parts.derivations.list_streams(parts.log.version)] == [one.id]
    assert {running[key] for key in keys} == {1}


def test_final_is_what_the_slowest_stream_says(
    pond: Pond, parts: Components, clock: ManualClock
) -> None:
    def final(text: str) -> int:
        reading = parts.floors.capture()
        return parts.derivations.final_instant(
            parts.log.version, reading, parts.registrar.bind(text)
        )

    pond.ingest("s", rows(10))
    pond.ingest("t", rows(7))
    assert final("SELECT v FROM s") == 10 * SECOND - 1
    assert final("SELECT s.v FROM s, t") == 7 * SECOND - 1
    assert final("SELECT v FROM clocked") == clock() - 1
    pond.execute("INSERT INTO r VALUES (1) AT TIMESTAMP '2000-01-01 00:00:00'")
    assert final("SELECT v FROM r") == clock()  # the pond's present, whatever r was told of later


def test_an_ended_stream_is_final_for_ever(pond: Pond, parts: Components) -> None:
    stream = next(s for s in pond.streams() if s.name == "s")
    parts.sequencer.end(stream)
    reading, version = parts.floors.capture(), parts.log.version
    bound = parts.registrar.bind("SELECT v FROM s")
    assert parts.derivations.final_instant(version, reading, bound) == LAST


def test_a_correction_is_read_though_nothing_else_comes(pond: Pond, parts: Components) -> None:
    told = follow(pond, parts, "SELECT v FROM r", "q")
    pond.query("q").fetch()
    derivations: Derivations = parts.derivations
    assert not derivations.is_corrected(parts.log.version, told)
    parts.advancer.stop()
    position = parts.log.version.clock(told.id).position
    at = format_instant(position - SECOND)
    pond.execute(f"INSERT INTO r VALUES (1) AT TIMESTAMP '{at}'")
    version, reading = parts.log.version, parts.floors.capture()
    assert derivations.is_corrected(version, told)
    assert derivations.target(version, reading, told) > version.clock(told.id).position


def test_who_is_not_derived_is_not_found(pond: Pond, parts: Components) -> None:
    pond.execute(f"CREATE STREAM derived AS ISTREAM({WINDOWED})")
    assert parts.derivations.find("DERIVED").name == "derived"
    with pytest.raises(MillpondError, match=r'CQL-201(.|\n)*Did you mean "derived"'):
        parts.derivations.find("derivd")
    with pytest.raises(MillpondError, match='CQL-216: "s" is not a derived stream'):
        parts.derivations.find("s")
