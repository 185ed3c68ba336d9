"""What stands still is seen in the metrics; tests/surfaces/test_alerts.py has the alerts fire."""

from __future__ import annotations

from millpond.service.pond import Pond

SCHEMA = """
CREATE STREAM s (ts TIMESTAMP, t STRING) TIMESTAMP BY ts;
CREATE STREAM parsed AS SELECT ts, CAST(t AS BIGINT) AS x FROM s;
CREATE QUERY behind WITH (changes = 'from beginning') AS SELECT x FROM parsed;
CREATE QUERY failing AS SELECT t FROM s WHERE CAST(t AS BIGINT) > 0;
"""


def sample(pond: Pond, name: str, **labels: str) -> float | None:
    found: float | None = pond.metrics.get_sample_value(f"millpond_{name}", labels)
    return found


def test_what_stands_still_is_counted(pond: Pond) -> None:
    pond.execute(SCHEMA)
    pond.query("behind").fetch()
    assert sample(pond, "ready") == 1
    assert sample(pond, "spark_down") == 0
    assert sample(pond, "stream_arrived_seconds", stream="s") is None
    for name in ("s", "parsed"):
        assert sample(pond, "stream_stopped", stream=name) == 0
    for minute, text in enumerate(("1", "x", "2")):
        pond.ingest("s", [{"ts": f"2026-03-01 00:0{minute}:00", "t": text}])
    pond.catch_up(timeout=60)
    assert sample(pond, "stream_stopped", stream="s") == 0
    assert sample(pond, "stream_stopped", stream="parsed") == 1
    assert sample(pond, "queries_suspended") == 1
    assert sample(pond, "stream_arrived_seconds", stream="s") is not None
    assert sample(pond, "ready") == 1
