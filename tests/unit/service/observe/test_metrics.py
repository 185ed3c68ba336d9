"""Metrics: counters of what happened, and gauges of what is."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest
from tests.unit.service.conftest import SECOND, components_of, rows

from millpond.service.components import Components
from millpond.service.observe.metrics import Metrics
from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock


@pytest.fixture
def parts(pond: Pond) -> Components:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
    return components_of(pond)


def metrics_of(pond: Pond) -> Metrics:
    return pond._metrics


def sample(pond: Pond, name: str, **labels: str) -> float | None:
    found: float | None = pond.metrics.get_sample_value(f"millpond_{name}", labels)
    return found


def test_elements_rejects_and_matches_are_counted(pond: Pond, parts: Components) -> None:
    pond.register("SELECT v FROM s WHERE v >= 1")
    pond.ingest("s", [*rows(1, 2, 3), {"ts": "never"}])
    pond.ingest("s", rows(4))
    assert sample(pond, "elements_total", stream="s") == 4
    assert sample(pond, "rejects_total", stream="s") == 1
    assert sample(pond, "matches_total", stream="s") == 2
    assert sample(pond, "batches_total") == 2
    assert sample(pond, "freshness_seconds_count") == 2
    assert sample(pond, "segments", stream="s") is not None
    assert sample(pond, "slots", stream="s") == 1


def test_changes_are_counted_where_they_are_changes(pond: Pond, parts: Components) -> None:
    pond.execute("CREATE STREAM d AS SELECT v FROM s")
    pond.register("SELECT v FROM s [RANGE 1 SECOND]", "q", changes="from beginning")
    pond.query("q").fetch()
    pond.ingest("s", rows(1, 2, 5))
    pond.query("q").fetch()
    pond.catch_up()
    assert sample(pond, "changes_total") == 4  # each of two comes and goes
    assert sample(pond, "elements_total", stream="d") == 2
    assert sample(pond, "derivations") == 2


def test_lag_and_freshness_are_told_by_stream(pond: Pond, parts: Components) -> None:
    pond.execute("CREATE STREAM other (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.execute("CREATE STREAM d AS SELECT v FROM s")
    pond.ingest("s", rows(1, 2, 5))
    pond.catch_up()
    assert (sample(pond, "stream_freshness_seconds", stream="s") or 0) >= 0
    assert sample(pond, "stream_freshness_seconds", stream="other") is None
    assert [sample(pond, "stream_lag_seconds", stream=name) for name in ("s", "d")] == [0, 0]
    assert sample(pond, "stream_lag_seconds", stream="other") is None  # nothing follows it
    parts.advancer.lag = lambda: {pond.derived("d").definition.id: 7.5}  # type: ignore[method-assign]
    assert [sample(pond, "stream_lag_seconds", stream=name) for name in ("s", "d")] == [7.5, 7.5]


def test_a_rate_is_of_the_time_there_was(pond: Pond, parts: Components, clock: ManualClock) -> None:
    (stream,) = pond.streams()
    pond.ingest("s", rows(*range(30)))
    # Of less than a second nothing is said as if it were more.
    assert metrics_of(pond).rate(stream.id) == 30
    clock.set(clock() + 10 * SECOND)
    assert metrics_of(pond).rate(stream.id) == 3
    clock.set(clock() + 50 * SECOND - 1)
    pond.ingest("s", rows(*range(30, 36)))
    assert metrics_of(pond).rate(stream.id) == pytest.approx(36 / 60)
    clock.set(clock() + 1)
    assert metrics_of(pond).rate(stream.id) == 0.1


def test_what_follows_is_behind_by_what_is_final(pond: Pond, parts: Components) -> None:
    pond.register("SELECT v FROM s", "q", changes="from beginning")
    pond.query("q").fetch()
    pond.ingest("s", rows(1))
    pond.query("q").fetch()
    parts.advancer.stop()
    pond.ingest("s", rows(9))
    assert sample(pond, "derivation_lag_seconds") == 8


def test_invocations_have_their_time(pond: Pond, parts: Components) -> None:
    query = pond.register("SELECT v FROM s", "q")
    before = sample(pond, "invocation_seconds_count")
    pond.query("q").invoke()
    assert sample(pond, "invocation_seconds_count") == (before or 0) + 1
    metrics_of(pond).count_invocation(parts.log.version.queries[query.id], 0.3)
    assert (sample(pond, "invocation_seconds_sum") or 0) >= 0.3


def test_kept_answers_are_counted_when_they_are_served(pond: Pond, parts: Components) -> None:
    pond.register("SELECT count(*) AS n FROM s", "q", materialize="eager")
    pond.ingest("s", rows(1))
    parts.refresher.wait_until_idle(20)
    for _ in range(3):
        pond.query("q").invoke()
    assert sample(pond, "kept_answers") == 1
    assert sample(pond, "kept_answers_served_total") == 3


def test_joins_and_functions_have_figures(pond: Pond, parts: Components) -> None:
    pond.execute("CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.function("half", lambda x: pc.divide(x, 2), arguments=["DOUBLE"], returns="DOUBLE")
    pond.register("SELECT s.v FROM s, t WHERE s.v = t.v")
    pond.register("SELECT v FROM s WHERE half(v) >= 1")
    for name in "st":
        pond.ingest(name, rows(1, 2, 3))
    pond.wait_until_matched()
    assert sample(pond, "joins") == 1
    assert sample(pond, "join_pairs", streams="s, t") == 3
    assert (sample(pond, "function_rows_total", function="half") or 0) >= 3
