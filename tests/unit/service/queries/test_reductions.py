"""How far a query is reduced is chosen once, by its weight, and kept."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.service.answers.test_reduced import SCHEMA, elements, full
from tests.unit.service.conftest import OpenPond

from millpond.errors import MillpondError
from millpond.service.pond import Pond

__all__ = ["full"]


def test_how_far_a_query_is_reduced_is_kept(open_pond: OpenPond) -> None:
    pond = open_pond()
    pond.execute(SCHEMA)
    pond.ingest("s", elements(5_000))
    pond.catch_up()
    pond.alter_system(query_memory="20 KB")
    before = pond.register("SELECT v FROM s", "q", tolerate="sample 10 %").invoke()
    described = pond.query("q").describe()
    assert described["reduced"].startswith("sample ")
    assert described["options"] == {"tolerate": "sample 10 %"}
    copied = pond.register(described["cql"], "copy", **described["options"])
    assert copied.describe()["reduced"] == described["reduced"]
    again = open_pond().query("q")
    assert again.invoke().rows() == before.rows()
    assert again.invoke().loss == before.loss
    again.alter(tolerate="nothing")
    assert again.invoke().exact
    assert again.describe()["reduced"] is None


def test_the_grant_is_by_weight(full: Pond) -> None:
    text = "SELECT g, v FROM s WHERE v > 60"
    light = full.register(text, tolerate="sample 1 %", weight=0.5)
    heavy = full.register(text, tolerate="sample 1 %", weight=2)
    heaviest = full.register(text, tolerate="sample 1 %", weight=100)
    kept = [q.invoke().loss[0].kept for q in (light, heavy)]
    assert kept[0] < kept[1]  # type: ignore[operator]
    assert heaviest.invoke().exact


def test_what_is_followed_does_not_become_another_query(full: Pond) -> None:
    query = full.register("SELECT v FROM s WHERE v > 99", "q", tolerate="sample 5 %")
    query.fetch()
    before = query.describe()["reduced"]
    query.alter(weight=50)
    assert query.describe()["reduced"] == before
    with pytest.raises(MillpondError, match="CQL-214"):
        query.alter(tolerate="nothing")


@pytest.mark.parametrize(
    "wrong",
    ["", "sample", "sample 0 %", "sample 100 %", "sample 5", "window 0 s", "error 2 %",
     "window -1 s", "sample 5 %, sample 6 %", "false positives 60 %", "false positives 0 %",
     5, None,
     "sample 5 %, error 0 %", "sample 5 %, error 1 % at 100 %", "window 9999999 days" * 99],
)  # fmt: skip
def test_a_wrong_tolerance_is_refused(pond: Pond, wrong: Any) -> None:
    pond.execute(SCHEMA)
    with pytest.raises(MillpondError, match="CQL-214"):
        pond.register("SELECT v FROM s", tolerate=wrong)
    with pytest.raises(MillpondError, match="CQL-214"):
        pond.register("SELECT v FROM s", reduced="sample 5 %")
