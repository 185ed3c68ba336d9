"""What the weightiest queries want of a stream."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.unit.service.conftest import components_of

from millpond.catalog.objects import StreamDef
from millpond.engine.admission.wanted_elements import WantedElements
from millpond.service.pond import Pond
from millpond.service.queries.wanted import Wanted

FIRST, SECOND_STEP = 0.5, 0.9


@pytest.fixture
def s(pond: Pond) -> Pond:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE QUERY light WITH (weight = 1) AS SELECT v FROM s [RANGE 1 HOUR] WHERE v = 1;"
        "CREATE QUERY middle WITH (weight = 2) AS SELECT v FROM s [RANGE 1 HOUR] WHERE v = 2;"
        "CREATE QUERY heavy WITH (weight = 3) AS SELECT v FROM s [RANGE 1 HOUR] WHERE v = 3"
    )
    return pond


def find(pond: Pond, share: float) -> WantedElements:
    version = components_of(pond).log.version
    stream = version.find("s")
    assert isinstance(stream, StreamDef)
    return Wanted(components_of(pond).registrar).find(version, stream, share)


def wanted(pond: Pond, share: float) -> list[int]:
    values = list(range(6))
    table = pa.table({"ts": pa.nulls(6, pa.timestamp("us")), "v": pa.array(values, pa.int32())})
    mask = find(pond, share).choose(table)
    return [value for value, kept in zip(values, mask, strict=True) if kept]


def test_heavier_halves_are_spared_then_the_heaviest(s: Pond) -> None:
    assert wanted(s, FIRST) == [2, 3]
    assert wanted(s, SECOND_STEP) == [3]
    s.execute("ALTER QUERY light SET (weight = 4)")
    assert wanted(s, SECOND_STEP) == [1]
    s.execute("ALTER QUERY light SET (active = false)")
    assert wanted(s, SECOND_STEP) == [3]
    s.execute("DROP QUERY heavy; DROP QUERY middle")
    assert wanted(s, FIRST) == []


def test_what_is_spared_is_written_as_slots(s: Pond) -> None:
    slot = components_of(s).log.version.leaves(s.query("heavy").id)[0].slot
    assert find(s, SECOND_STEP).spared == str(slot)


@pytest.mark.parametrize(
    "query",
    [
        "CREATE QUERY every WITH (weight = 3) AS SELECT v FROM s",
        "CREATE QUERY rows WITH (weight = 3) AS SELECT v FROM s [ROWS 5] WHERE v = 3",
        "CREATE QUERY none WITH (weight = 3, materialize = 'none') AS SELECT v FROM s WHERE v = 3",
        "CREATE STREAM d AS SELECT v FROM s WHERE v > 3;"
        "CREATE QUERY over WITH (weight = 3) AS SELECT v FROM d WHERE v = 5",
    ],
)
def test_who_does_not_say_what_he_wants_wants_all(s: Pond, query: str) -> None:
    s.execute(query)
    assert wanted(s, SECOND_STEP) == list(range(6))


def test_a_derived_stream_weighs_as_its_heaviest_reader(s: Pond) -> None:
    s.execute(
        "CREATE STREAM d AS SELECT v FROM s WHERE v > 3;"
        "CREATE STREAM e AS SELECT v FROM d;"
        "CREATE QUERY over WITH (weight = 2) AS SELECT v FROM e"
    )
    assert wanted(s, SECOND_STEP) == [3]
    assert wanted(s, FIRST) == list(range(6))


def test_a_rows_window_over_what_matches_says_what_it_wants(s: Pond) -> None:
    s.execute("CREATE QUERY r WITH (weight = 9) AS SELECT v FROM s [ROWS 2 WHERE v = 4]")
    assert wanted(s, SECOND_STEP) == [4]
