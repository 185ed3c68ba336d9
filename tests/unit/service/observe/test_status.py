"""The status of a pond: counts, streams, and whatever is wrong."""

from __future__ import annotations

from tests.unit.service.conftest import SECOND, components_of, rows

from millpond.errors import MillpondError
from millpond.service.observe.status import describe_status
from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock


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
    assert status["uptime_s"] == 5
    assert status["problems"] == []
    (stream,) = status["streams"]
    assert (stream["name"], stream["rows"], stream["rejected"]) == ("s", 2, 1)
    assert (stream["state"], stream["reason"]) == ("running", None)


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
