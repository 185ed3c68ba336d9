"""CREATE SUMMARY and DROP SUMMARY."""

from __future__ import annotations

import itertools
import re

import pytest
from tests.unit.service.conftest import OpenPond

from millpond.errors import MillpondError
from millpond.service.answers import summary_states
from millpond.service.definitions import summaries
from millpond.service.pond import Pond
from millpond.synopses.summaries.stream_summary import make_kind
from millpond.synopses.summaries.zones import Grid

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
        (f"CREATE SUMMARY x ON s (ts) {SHAPE} USING HISTOGRAM", "CQL-205", "Write USING SAMPLE"),
        (f"CREATE SUMMARY x ON s (name) {SHAPE} USING SAMPLE", "CQL-205", "no sample of a VARCHAR"),
        (
            "CREATE SUMMARY x ON s (v) WITH GRANULARITY 1 DAY AND COLLAPSE (64, 16)",
            "CQL-207",
            "longer than all instants",
        ),
        (
            "CREATE SUMMARY x ON s (v) WITH GRANULARITY 1 MINUTE AND COLLAPSE (64, 3)"
            " MEMORY '64 KB'",
            "CQL-207",
            "Write MEMORY '416 KB'",
        ),
        (f"CREATE SUMMARY x ON s (v) {SHAPE} MEMORY '65 MB'", "CQL-103", "64 KB and 64 MB"),
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


def test_any_shape_fits_the_memory_it_has_if_none_is_said(both: Pond) -> None:
    """And where a shape is refused, the memory that the refusal names has room for its cells."""
    kinds, shapes = ("COUNT SKETCH", "HISTOGRAM", "SAMPLE"), [(1, 16), (7, 2), (64, 1), (64, 6)]
    refused = 0
    for kind, shape in itertools.product(kinds, shapes):
        text = f"CREATE SUMMARY x ON s (v) WITH GRANULARITY 2 MILLISECONDS AND COLLAPSE {shape}"
        for memory in ("", " MEMORY '64 KB'"):
            try:
                both.execute(f"{text} USING {kind}{memory}")
            except MillpondError as error:
                refused += 1
                (least,) = re.findall(r"Write (MEMORY '\d+ KB')", str(error))
                both.execute(f"{text} USING {kind} {least}")
            definition = both._components.log.version.summaries["x"]
            grid = Grid.of(definition.granularity, definition.rate, definition.depth)
            kept = make_kind(definition.kind, definition.memory, grid, False).empty(grid.most_cells)
            assert kept.nbytes <= definition.memory
            both.execute("DROP SUMMARY x")
    assert refused >= 4


def test_all_summaries_together_have_a_limit(both: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "MOST_TOGETHER", 9 << 20)
    both.execute(f"CREATE SUMMARY x ON s (v) {SHAPE}; CREATE SUMMARY z ON s (v) {SHAPE}")
    with pytest.raises(MillpondError, match=r"(?s)CQL-207.*13 MB together.*DROP SUMMARY"):
        both.execute(f"CREATE SUMMARY w ON s (v) {SHAPE}")
    both.execute(f"DROP SUMMARY x; CREATE SUMMARY w ON s (v) {SHAPE}")


def test_a_large_summary_is_held_at_one_instant_alone(
    both: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {}
    for limit in (0, 1 << 30):
        monkeypatch.setattr(summary_states, "_KEPT_BYTES", limit)
        for n in range(6):
            at = f"1970-01-01 0{n}:{limit and 30:02}:00"
            both.ingest("s", [{"ts": at, "v": n, "name": "", "at": b""}])
            both.catch_up()
            both.ask("SELECT SUMMARY(y).ESTIMATE.COUNT(1)")
        held[limit] = both.entities.one("summary:Y").figures
        both.execute("DROP SUMMARY y")
        both.execute(f"CREATE SUMMARY Y ON s (V) {SHAPE} MEMORY '1 MB'")
    small, large = held.values()
    assert small["bytes"] == large["bytes"] <= 1 << 20
    assert small["bytes"] < small["bytes held"] <= 3 * small["bytes"] + 4_096
    assert 4 * small["bytes"] < large["bytes held"] <= 12 * small["bytes"] + 16_384
