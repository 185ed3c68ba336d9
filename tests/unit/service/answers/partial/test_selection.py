"""Selections in parts: which elements are looked at."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.service.conftest import rows

from millpond.service.answers.partial.partial_answers import PartialAnswers
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


def test_the_rest_of_a_sum_of_what_ranks_is_no_multiple_of_the_greatest_values(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 4.3: value × frequency, the greatest first; scaled by the share, the sum is twice
    what it is."""
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER, w DOUBLE) TIMESTAMP BY ts;" + SUMMARY)
    random = np.random.default_rng(1)
    v = random.zipf(1.3, 4_000).clip(1, 500).astype(np.int32)
    ts = np.sort(random.integers(0, 60_000_000, len(v))).astype("datetime64[us]")
    w = random.random(len(v))
    pond.ingest("s", pa.table({"ts": ts, "v": pa.array(v, mask=w > 0.99), "w": w}))
    pond.catch_up()
    ranked = "WITH PREFERENCE DESC SUMMARY(y).ESTIMATE.COUNT(v) * v"
    every = "SUM(V) AS a, SUM(x.v) AS b, COUNT(*) AS n, SUM(w) AS w"
    query = pond.register(f"SELECT {every} FROM s AS x WHERE w < 0.6 AND v < 400 {ranked}")
    ((exact, _, count, weight),) = query.invoke().rows()
    answer = query.invoke(budget="900 probes")
    ((found, again, n, w_found),) = answer.rows()
    assert 0.2 < answer.part.share < 0.3
    assert found == again
    assert found == pytest.approx(exact, rel=0.05)
    assert n == pytest.approx(count, rel=0.1)
    assert w_found == pytest.approx(weight, rel=0.1)
    on = query.invoke(budget="900 probes", after=answer.part.cursor)
    assert on.rows()[0][0] == pytest.approx(exact, rel=0.05)
    monkeypatch.setattr(PartialAnswers, "_sum_rest", staticmethod(lambda *_: {}))
    ((scaled, *_),) = query.invoke(budget="900 probes").rows()
    assert scaled > 2 * exact
