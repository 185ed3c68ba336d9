"""The status of a pond: counts, streams, and whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.service.conftest import SECOND, components_of, rows

from millpond.errors import MillpondError
from millpond.service.observe.status import describe_status
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

NOON = 1_772_366_400_000_000


def test_it_counts_what_there_is(pond: Pond, clock: ManualClock) -> None:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts; CREATE RELATION r (v INTEGER);"
        "CREATE QUERY q AS SELECT v FROM s; CREATE QUERY p AS SELECT v FROM s"
    )
    pond.ingest("s", [*rows(1, 2), {"ts": "never"}])
    pond.query("q").fetch()
    clock.advance(5 * SECOND)
    parts = components_of(pond)
    status = describe_status(parts)
    assert (status["queries"], status["followed"], status["relations"]) == (2, 1, 1)
    assert status["epoch"] == parts.log.version.epoch
    assert 0 <= status["uptime_s"] < 3600
    assert status["problems"] == []
    (stream,) = status["streams"]
    assert (stream["name"], stream["rows"], stream["rejected"]) == ("s", 2, 1)
    assert (stream["state"], stream["reason"]) == ("running", None)


def test_the_log_that_queries_share_is_no_followed_query(pond: Pond) -> None:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE QUERY q WITH (follow = true) AS SELECT v FROM s [RANGE 1 HOUR] WHERE v > 1;"
        "CREATE QUERY p WITH (follow = true) AS SELECT v FROM s [RANGE 1 HOUR] WHERE v > 2"
    )
    parts = components_of(pond)
    assert any(stream.is_shared_log for stream in parts.log.version.streams.values())
    assert describe_status(parts)["followed"] == 2


def test_the_uptime_does_not_jump_with_the_clock(pond: Pond, clock: ManualClock) -> None:
    before = describe_status(components_of(pond))["uptime_s"]
    clock.advance(7_200 * SECOND)
    assert before <= describe_status(components_of(pond))["uptime_s"] < before + 3_600


def test_what_stands_still_is_a_problem(pond: Pond) -> None:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM d AS SELECT v FROM s"
    )
    parts = components_of(pond)
    parts.advancer.stop()
    parts.advancer.retries.note(
        parts.derivations.find("d").id, MillpondError("POND-404", "it cannot be evaluated")
    )
    parts.events.file_damaged(MillpondError("STORE-602", 'the file "segments/a" is torn'))
    damaged, stopped = describe_status(parts)["problems"]
    assert damaged["code"] == "STORE-602"
    assert (stopped["code"], stopped["message"]) == (
        "POND-404",
        'stream "d" stands still: it cannot be evaluated',
    )


def test_a_round_of_changes_that_fails_is_a_problem(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.register("SELECT v FROM s", "q").fetch()
    parts = components_of(pond)

    def fail(*given: object) -> None:
        raise OSError("no process runs")

    monkeypatch.setattr(parts.runtime, "run", fail)
    pond.ingest("s", [*rows(1, 2)])
    with pytest.raises(MillpondError, match="INTERNAL-901"):
        pond.catch_up()
    (problem,) = describe_status(parts)["problems"]
    assert (problem["code"], problem["detail"]) == ("INTERNAL-901", "OSError: no process runs")
    assert problem["message"].startswith("followed queries stand still: changes could not be made")


def test_a_clock_that_goes_back_is_a_problem_until_it_has_caught_up(tmp_path: Path) -> None:
    shown = [NOON]
    with open_local(tmp_path / "store", lambda: shown[0]) as pond:
        pond.execute("CREATE STREAM s (v INTEGER); INSERT INTO s VALUES (1)")
        assert pond.status()["problems"] == []
        shown[0] -= 3_600 * SECOND
        (problem,) = pond.status()["problems"]
        assert problem["code"] == "STORE-605"
        assert problem["message"] == "the clock has gone back by 3,600 s"
        pond.execute("INSERT INTO s VALUES (2)")
        assert sorted(pond.ask("SELECT v FROM s [RANGE 1 MINUTE]").rows()) == [(1,), (2,)]
        shown[0] += 3_600 * SECOND
        assert pond.status()["problems"] == []
