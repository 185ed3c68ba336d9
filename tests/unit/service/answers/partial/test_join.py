"""Joins in parts: which pairs are found."""

from __future__ import annotations

import pytest
from tests.unit.service.conftest import rows

from millpond.errors import MillpondError
from millpond.service.pond import Pond

SHAPE = "WITH GRANULARITY 64 SECONDS AND COLLAPSE (2, 3)"


def test_a_probe_is_one_look_up_in_one_zone(pond: Pond) -> None:
    """Figure 7: the element is looked up where the other stream is expected to have most."""
    pond.execute(
        "CREATE STREAM a (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM b (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        f"CREATE SUMMARY y ON b (v) {SHAPE}"
    )
    pond.ingest("a", [{**row, "v": v} for v, row in zip([1, 1, 2], rows(60, 61, 62), strict=True)])
    values = [1] * 5 + [2] * 20
    pond.ingest("b", [{**r, "v": v} for v, r in zip(values, rows(*range(30, 55)), strict=True)])
    pond.execute("HEARTBEAT a AT TIMESTAMP '1970-01-01 00:01:04'")
    pond.catch_up()
    text = "SELECT a.v FROM a, b WHERE a.v = b.v"
    query = pond.register(f"{text} WITH PREFERENCE DESC SUMMARY(y).ESTIMATE.COUNT(b.v)")
    first = query.invoke(budget="1 probes")
    assert set(first.rows()) == {(2,)}
    assert 0 < len(first) <= 20
    assert first.part.probes == 1
    assert first.part.rows == pytest.approx(30, rel=0.2)


def test_the_share_is_known_where_the_summary_expects_nothing(pond: Pond) -> None:
    """Before a summary's first line has passed; and a part that leaves no pair is the last."""
    for name in "ab":
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
        pond.ingest(name, [{**row, "v": n % 5} for n, row in enumerate(rows(*range(40)))])
    pond.execute("CREATE SUMMARY y ON a (v) WITH GRANULARITY INTERVAL 1 HOUR AND COLLAPSE (4, 4)")
    pond.catch_up()
    text = "SELECT a.v FROM a, b [RANGE 10 SECONDS] WHERE a.v = b.v"
    query = pond.register(f"{text} WITH PREFERENCE DESC SUMMARY(y).ESTIMATE.COUNT(a.v)")
    parts, after = [], None
    while after is not None or not parts:
        answer = query.invoke(budget="3 probes", after=after)
        after = answer.part.cursor
        parts.append((len(answer), answer.part.share, answer.part.rows, answer.part.whole))
    assert [found for found, *_ in parts] == [24, 24, 24, 8]
    assert [share for _, share, *_ in parts] == pytest.approx([0.3, 0.6, 0.9, 1.0])
    assert [about for _, _, about, _ in parts] == pytest.approx([80] * 4)
    assert [whole for *_, whole in parts] == [False, False, False, True]


def test_keys_of_two_types_are_refused(pond: Pond) -> None:
    pond.execute(
        "CREATE STREAM a (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM b (ts TIMESTAMP, v DOUBLE) TIMESTAMP BY ts;"
        f"CREATE SUMMARY y ON b (v) {SHAPE}"
    )
    text = "SELECT a.v FROM a, b WHERE a.v = b.v"
    with pytest.raises(MillpondError, match="INTEGER and DOUBLE cannot be looked up"):
        pond.register(f"{text} WITH PREFERENCE DESC SUMMARY(y).ESTIMATE.COUNT(b.v)")
