"""A query's changes are its own: what else is followed over its streams changes nothing in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

SCHEMA = """
CREATE STREAM g (ts TIMESTAMP, k STRING) TIMESTAMP BY ts;
CREATE QUERY other WITH (follow = true) AS SELECT k FROM g [RANGE 1 MINUTE];
"""
QUERY = "CREATE QUERY casts WITH (follow = true) AS SELECT CAST(k AS INTEGER) AS n FROM g"


def test_an_element_of_before_the_registration_fails_no_change_after_it(tmp_path: Path) -> None:
    # The other query's window has the dataflow that both share see the element again.
    with open_local(tmp_path) as pond:
        pond.execute(SCHEMA)
        _feed(pond, 1, "bad")
        _feed(pond, 2, "3")  # so that the instant of the bad one is final
        pond.catch_up()
        pond.execute(QUERY)
        _feed(pond, 3, "4")
        _feed(pond, 4, "5")
        pond.catch_up()
        assert [row[-1] for row in pond.query("casts").fetch().rows()] == [3, 4]
    with open_local(tmp_path) as pond:  # makes the dataflow anew
        _feed(pond, 5, "6")
        pond.catch_up()
        assert [row[-1] for row in pond.query("casts").fetch().rows()] == [3, 4, 5]
        _feed(pond, 6, "worse")
        _feed(pond, 7, "7")
        pond.catch_up()
        with pytest.raises(MillpondError, match="suspended"):
            pond.query("casts").fetch().rows()
        assert len(pond.query("other").fetch().rows()) == 6


def _feed(pond: Pond, second: int, k: str) -> None:
    pond.ingest("g", [{"ts": f"2026-03-01 00:00:0{second}", "k": k}])
