"""Stored joins, their SteMs and eddies, and the totals of segments are entities."""

from __future__ import annotations

from tests.unit.service.conftest import rows

from millpond.service.pond import Pond


def test_shared_joins_their_stems_and_eddies_and_kept_totals_are_entities(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.ingest("s", rows(1, 2, 3))
    pond.execute("CREATE STREAM t (ts TIMESTAMP, w INTEGER) TIMESTAMP BY ts")
    pond.ingest("t", [{"ts": "1970-01-01 00:00:02", "w": 1}])
    for name in "ab":
        pond.register("SELECT v FROM s [RANGE 1 HOUR], t [RANGE 1 HOUR] WHERE v = w", name)
    pond.register("SELECT sum(v) AS n FROM s [RANGE 1 HOUR]", "n")
    pond.wait_until_matched()
    every = {entity.id: entity for entity in pond.entities.every()}
    (join,) = [e for id, e in every.items() if id.startswith("join:s-t.")]
    assert join.kind == "synopsis"
    # Found once for each query, or once for both if they were matched together.
    assert join.figures["rows"] in (1, 2)
    assert join.figures["bytes"] > 0
    assert join.figures["queries"] == 2
    stems = {e.of: e.figures for id, e in every.items() if id.startswith("stem:")}
    assert stems.keys() == {"s", "t"}
    assert stems["s"] == {
        "rows": 3, "bytes": stems["s"]["bytes"], "segments arranged": 1, "joins": 1,
    }  # fmt: skip
    assert stems["s"]["bytes"] > 0
    (eddy,) = [e for id, e in every.items() if id.startswith("eddy:s-t.")]
    assert eddy.figures["modules"] > 0
    pond.query("n").invoke()
    totals = pond.entities.one("totals:s").figures
    assert totals["wanted"] > 0
    assert totals["bytes"] == totals["bytes on disk"] + totals["bytes in memory"] > 0
