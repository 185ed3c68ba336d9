"""Summaries are stored as their streams come on, and keep the elements they are made of."""

from __future__ import annotations

from tests.unit.service.conftest import rows
from tests.waiting import wait_until

from millpond.service.maintenance.summary_maintenance import needed_since
from millpond.service.pond import Pond

SUMMARY = "CREATE SUMMARY y ON s (v) WITH GRANULARITY 64 SECONDS AND COLLAPSE (2, 2)"


def test_it_is_stored_when_the_stream_has_come_on_by_an_eighth(pond: Pond) -> None:
    pond.execute(f"CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts; {SUMMARY}")
    places = []
    for start in (0, 100, 103, 120):
        pond.ingest("s", rows(start, start + 1))
        pond.catch_up()
        pond.wait_until_matched()
        stored = pond._components.log.version.summaries["y"].file
        places.append(None if stored is None else (stored.path, stored.position))
    assert places[0] is not None
    assert places[1] == places[2]
    assert len(set(places)) == 3
    folder = pond._components.log._directory / "summaries"
    assert [path.name for path in folder.iterdir()] == [places[-1][0].split("/")[1]]


def test_it_is_stored_though_nothing_comes_after_it(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.ingest("s", rows(*range(200)))
    pond.catch_up()
    maintenance = pond._components.maintenance
    wait_until(lambda: not maintenance._list_unsettled(pond._components.log.version))
    pond.execute(SUMMARY)
    wait_until(lambda: pond._components.log.version.summaries["y"].file, 20)


def test_elements_a_summary_reaches_are_kept(pond: Pond) -> None:
    retained = "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts RETAIN INTERVAL 1 SECOND;"
    pond.execute(retained + SUMMARY)
    for start in range(0, 1_000, 50):
        pond.ingest("s", rows(*range(start, start + 50)))
        pond.catch_up()
    pond.wait_until_matched()
    version = pond._components.log.version
    stream = version.find("s")
    reach = needed_since(version, stream)
    assert 0 < version.clock(stream.id).kept_from <= reach
    pond.execute("DROP SUMMARY y")
    pond.ingest("s", rows(1_001))
    pond.catch_up()
    pond.wait_until_matched()
    version = pond._components.log.version
    assert version.clock(stream.id).kept_from > reach
