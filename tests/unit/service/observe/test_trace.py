"""The tuples of a batch are traced to the queries they went to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
        for least in (0, 2, 4):
            pond.execute(
                f"CREATE QUERY over_{least} AS SELECT k FROM s [RANGE 1 HOUR] WHERE v > {least}"
            )
        yield pond


def test_each_tuple_says_which_queries_it_went_to(pond: Pond) -> None:
    assert pond.trace("s")["tuples"] == []
    pond.ingest("s", [{"ts": "1970-01-01 00:00:01", "k": "old", "v": 9}])
    pond.catch_up()
    rows = [{"ts": f"1970-01-01 00:00:0{n}", "k": "ab"[n % 2], "v": n} for n in (2, 3, 5)]
    pond.ingest("s", rows)
    pond.catch_up()
    traced = pond.trace("s")
    assert (traced["stream"], traced["rows"], traced["predicates"]) == ("s", 3, 3)
    assert [one["values"]["v"] for one in traced["tuples"]] == [2, 3, 5]
    went = [one["queries"] for one in traced["tuples"]]
    assert went == [["over_0"], ["over_0", "over_2"], ["over_0", "over_2", "over_4"]]
    assert [one["matched"] for one in traced["tuples"]] == [1, 2, 3]
    assert traced["tuples"][0]["at"] == "1970-01-01 00:00:02"
    own = pond.trace("s", "over_4", tuples=2)
    assert [one["queries"] for one in own["tuples"]] == [[], ["over_4"]]


@pytest.mark.parametrize(("stream", "query"), [("t", None), ("s", "nobody"), ("s$rejects", None)])
def test_what_is_not_there_is_not_traced(pond: Pond, stream: str, query: str | None) -> None:
    with pytest.raises(MillpondError, match="CQL-201"):
        pond.trace(stream, query)
