"""Selections in parts: which elements are looked at."""

from __future__ import annotations

from tests.unit.service.conftest import rows

from millpond.service.pond import Pond

SUMMARY = "CREATE SUMMARY y ON s (v) WITH GRANULARITY 64 SECONDS AND COLLAPSE (2, 3)"


def test_elements_whose_values_the_predicate_excludes_are_not_looked_at(pond: Pond) -> None:
    """Figure 8: the selection predicate is processed on top of the summaries."""
    pond.execute(f"CREATE STREAM s (ts TIMESTAMP, v INTEGER, w INTEGER) TIMESTAMP BY ts; {SUMMARY}")
    pond.ingest("s", [{**row, "w": n % 2} for n, row in enumerate(rows(*range(60)))])
    pond.catch_up()
    text = "SELECT v FROM s WHERE v BETWEEN 10 AND 19 AND w = 1"
    query = pond.register(f"{text} WITH PREFERENCE DESC SUMMARY(y).ESTIMATE.COUNT(v)")
    answer = query.invoke(budget="1000 probes")
    assert sorted(answer.rows()) == [(11,), (13,), (15,), (17,), (19,)]
    assert (answer.part.probes, answer.part.whole) == (10, True)


def test_without_a_preference_the_most_recent_come_first(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY 9 SECONDS")
    pond.ingest("s", rows(3, 1, 9, 5, 7))
    pond.catch_up()
    query = pond.register("SELECT v FROM s")
    first = query.invoke(budget="2 probes")
    assert first.rows() == [(2,), (4,)]
    assert first.part.share == 0.4
    assert query.invoke(budget="9 probes", after=first.part.cursor).rows() == [(3,), (0,), (1,)]
