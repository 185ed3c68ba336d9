"""ALTER STREAM … SET: clauses change, and the heartbeat never goes back by that."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.service.conftest import SECOND, OpenPond, rows

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock

CREATED = """CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY 2 SECONDS
  IDLE AFTER '10 s' RETAIN INTERVAL 1 HOUR"""


@pytest.fixture
def pond(pond: Pond) -> Pond:
    pond.execute(CREATED)
    return pond


def stream(pond: Pond, name: str = "s") -> StreamDef:
    return next(s for s in pond.streams() if s.name == name)


def heartbeat(pond: Pond) -> str:
    (described,) = pond.status()["streams"]
    return str(described["heartbeat"])


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ("delay = INTERVAL 5 SECONDS", {"delay": 5 * SECOND}),
        ("DELAY = '0 s'", {"delay": 0}),
        ("idle after = 'never'", {"idle_after": None}),
        ("idle_after = '1 minute', delay = '1 s'", {"idle_after": 60 * SECOND, "delay": SECOND}),
        ("ahead = '1 hour'", {"ahead": 3600 * SECOND}),
        ("retain = 'everything'", {"retain": None, "retain_rows": None}),
        ("retain = '7 rows'", {"retain": None, "retain_rows": 7}),
        ("retain = '2 days', overload = 'shed random'", {"retain": 172800 * SECOND}),
    ],
)
def test_a_clause_changes_and_stays_after_a_restart(
    pond: Pond, open_pond: OpenPond, given: str, fields: dict[str, Any]
) -> None:
    before = stream(pond)
    (done,) = pond.execute(f"ALTER STREAM s SET ({given})")
    assert done.message == "stream s: altered"
    after = stream(open_pond())
    assert {name: getattr(after, name) for name in fields} == fields
    changed = {n for n in ("delay", "idle_after", "ahead", "retain") if n in fields}
    kept = {"delay", "idle_after", "ahead", "retain", "schema"} - changed
    assert all(getattr(before, name) == getattr(after, name) for name in kept)


def test_show_create_gives_the_clauses_as_they_are(pond: Pond) -> None:
    pond.alter_stream("s", delay="1 minute", idle_after="never", retain="9 rows", ahead="unbounded")
    (shown,) = pond.execute("SHOW CREATE STREAM s")
    assert shown.text == (
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 1 MINUTE"
        " AHEAD UNBOUNDED RETAIN 9 ROWS;"
    )


def test_a_longer_delay_is_for_what_comes(pond: Pond) -> None:
    pond.ingest("s", rows(100))
    pond.catch_up()
    assert heartbeat(pond).endswith("00:01:38")
    pond.alter_stream("s", delay="30 s")
    assert heartbeat(pond).endswith("00:01:38")
    assert pond.ingest("s", rows(97, 98)).accepted == 1
    pond.ingest("s", rows(120))
    pond.catch_up()
    assert heartbeat(pond).endswith("00:01:38")
    assert pond.ingest("s", rows(99)).accepted == 1
    pond.alter_stream("s", delay="0 s")
    pond.ingest("s", rows(121))
    pond.catch_up()
    assert heartbeat(pond).endswith("00:02:01")


@pytest.mark.parametrize("idle", ["never", "1 hour", "1 s"])
def test_the_heartbeat_of_an_idle_stream_does_not_go_back(
    pond: Pond, clock: ManualClock, open_pond: OpenPond, idle: str
) -> None:
    pond.ingest("s", rows(990))
    pond.catch_up()
    clock.advance(60 * SECOND)
    reached = heartbeat(pond)
    assert reached.endswith("00:17:28")  # 12 s behind the clock, as when the row came
    pond.alter_stream("s", idle_after=idle)
    assert heartbeat(pond) == reached
    assert heartbeat(open_pond()) == reached
    clock.advance(5 * SECOND)
    assert heartbeat(open_pond()).endswith("00:17:33" if idle == "1 s" else "00:17:28")


def test_a_stream_that_had_nothing_stays_at_its_beginning(pond: Pond, clock: ManualClock) -> None:
    pond.alter_stream("s", idle_after="1 s")
    clock.advance(60 * SECOND)
    assert heartbeat(pond) == "None"


def test_streams_behind_queries_in_from_are_kept_as_long(pond: Pond) -> None:
    pond.execute(
        "CREATE QUERY q AS SELECT max(n) AS m"
        " FROM ISTREAM(SELECT count(*) AS n FROM s [ROWS 9]) [ROWS 2] AS c"
    )
    (inner,) = (s for s in pond.streams() if s.name.startswith("stream$"))
    assert inner.retain == 3600 * SECOND
    for given, retain in (("2 hours", 7200 * SECOND), ("everything", None)):
        pond.alter_stream("s", retain=given)
        assert stream(pond, inner.name).retain == retain


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("ALTER STREAM s SET (delay = 5)", "CQL-214"),
        ("ALTER STREAM s SET (retain = '0 rows')", "CQL-214"),
        ("ALTER STREAM s SET (colour = 'red')", "CQL-214"),
        ("ALTER STREAM arrivals SET (delay = '5 s')", "CQL-214"),
        ("ALTER STREAM arrivals SET (idle after = '5 s')", "CQL-214"),
        ("ALTER STREAM d SET (retain = '5 s')", "CQL-214"),
        ("ALTER STREAM nothing SET (delay = '5 s')", "CQL-201"),
        ("ALTER STREAM s$rejects SET (retain = '5 s')", "CQL-216"),
        ("CREATE STREAM t (a INT) WITH (retain = '5 s')", "CQL-214"),
    ],
)
def test_what_is_refused(pond: Pond, statement: str, code: str) -> None:
    pond.execute("CREATE STREAM arrivals (a INT); CREATE STREAM d AS SELECT v FROM s")
    before = pond.streams()
    with pytest.raises(MillpondError, match=code):
        pond.execute(statement)
    assert pond.streams() == before


@pytest.mark.parametrize("what", ["ADD COLUMN w INTEGER", "SET (delay = '5 s')"])
def test_while_spark_starts_a_stream_is_altered_behind_what_was_pushed(
    pond: Pond, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """And nothing that others need is held meanwhile."""
    runtime, wake = pond._components.runtime, pond._components.runtime.wake_inbox
    monkeypatch.setattr(runtime, "wake_inbox", lambda: None)
    pond.ingest("s", rows(1, 2))

    def start() -> None:
        with ThreadPoolExecutor() as others:
            others.submit(pond.register, "SELECT v FROM s", "other").result(timeout=60)
        wake()

    monkeypatch.setattr(runtime, "wait_until_started", start)
    pond.execute(f"ALTER STREAM s {what}")
    assert pond.query("other").invoke().rows() == [(0,), (1,)]
