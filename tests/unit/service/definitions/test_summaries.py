"""CREATE SUMMARY and DROP SUMMARY."""

from __future__ import annotations

import pytest
from tests.unit.service.conftest import OpenPond

from millpond.errors import MillpondError
from millpond.service.pond import Pond

SHAPE = "WITH GRANULARITY 1 MINUTE AND COLLAPSE (4, 6)"


@pytest.fixture
def both(pond: Pond) -> Pond:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER, name VARCHAR, at BLOB) TIMESTAMP BY ts;"
        f"CREATE RELATION r (v INTEGER); CREATE SUMMARY Y ON s (V) {SHAPE} MEMORY '1 MB'"
    )
    return pond


@pytest.mark.parametrize(
    ("statement", "code", "words"),
    [
        (f"CREATE SUMMARY y ON s (v) {SHAPE}", "CQL-208", 'a summary "y" already'),
        (f"CREATE SUMMARY x ON t (v) {SHAPE}", "CQL-201", 'no stream "t"'),
        (f"CREATE SUMMARY x ON r (v) {SHAPE}", "CQL-216", '"r" is not a stream'),
        (f"CREATE SUMMARY x ON s$rejects (reason) {SHAPE}", "CQL-216", "is not a stream"),
        (f"CREATE SUMMARY x ON s (w) {SHAPE}", "CQL-202", 'no column "w"'),
        (f"CREATE SUMMARY x ON s (at) {SHAPE}", "CQL-205", "no count sketch of a BLOB"),
        (f"CREATE SUMMARY x ON s (name) {SHAPE} USING SAMPLE", "CQL-205", "no sample of a VARCHAR"),
        (
            "CREATE SUMMARY x ON s (v) WITH GRANULARITY 1 DAY AND COLLAPSE (64, 16)",
            "CQL-207",
            "longer than all instants",
        ),
        ("DROP SUMMARY x", "CQL-201", "SHOW SUMMARIES lists them"),
        ("DROP STREAM s", "POND-401", "summary Y"),
    ],
)
def test_what_is_refused(both: Pond, statement: str, code: str, words: str) -> None:
    with pytest.raises(MillpondError) as failure:
        both.execute(statement)
    assert failure.value.code == code
    assert words in str(failure.value)


def test_a_summary_is_dropped_when_nobody_asks_it(both: Pond) -> None:
    both.execute(
        "CREATE QUERY q AS SELECT v, SUMMARY(y).ESTIMATE.COUNT(v) AS n FROM s;"
        "CREATE QUERY p AS SELECT v FROM s WITH PREFERENCE ASC SUMMARY(y).ESTIMATE.COUNT(v);"
        "CREATE RELATION w AS SELECT SUMMARY(y).ESTIMATE.TOTAL() AS t"
    )
    with pytest.raises(MillpondError, match=r"(?s)POND-401.*query q, query p, relation w"):
        both.execute("DROP SUMMARY y")
    both.execute("DROP QUERY q; DROP QUERY p; DROP RELATION w; DROP SUMMARY y; DROP STREAM s")
    assert both.execute("SHOW SUMMARIES")[0].table.num_rows == 0


def test_it_keeps_within_its_memory_and_survives_a_restart(open_pond: OpenPond) -> None:
    pond = open_pond()
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        f"CREATE SUMMARY y ON s (v) {SHAPE} MEMORY '1 MB'"
    )
    pond.ingest("s", [{"ts": f"1970-01-01 {n % 24:02}:00:00", "v": n} for n in sorted(range(24))])
    pond.catch_up()
    pond.wait_until_matched()
    for at in (pond, open_pond()):
        figures = at.entities.one("summary:y").figures
        assert 0 < figures["bytes"] <= figures["bytes declared"] == 1 << 20
        assert figures["elements"] == 23  # the last element's line is not over yet
        assert figures["zones"] >= figures["zones of the newest granularity"] >= 8
