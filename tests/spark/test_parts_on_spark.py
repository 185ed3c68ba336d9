"""Followed parts on Spark find what they find in one process, over a restart, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

pytestmark = pytest.mark.spark

PREFERENCE = "SUMMARY(si).ESTIMATE.COUNT(s.item) BUDGET '0.4 probes'"
QUERIES = {
    "selected": f"SELECT s.n FROM s WHERE s.n % 3 <> 1 WITH PREFERENCE WEIGHTED {PREFERENCE}",
    "joined": "SELECT s.n, t.n AS other FROM s [RANGE 9 SECONDS], t [RANGE 9 SECONDS]"
    f" WHERE s.item = t.item WITH PREFERENCE DESC {PREFERENCE}",
    "counted": "SELECT COUNT(*) AS c, SUM(s.n) AS n FROM s [RANGE 9 SECONDS]"
    f" WITH PREFERENCE ASC {PREFERENCE}",
}


def push(pond: Pond, second: int) -> None:
    """Forty elements of both streams in four seconds, and a heartbeat."""
    numbers = range(second * 10, second * 10 + 40)
    ts = pa.array([n * 100_000 for n in numbers], pa.timestamp("us"))
    for name, step in (("s", 3), ("t", 5)):
        items = pa.array([n * step % 17 % 7 for n in numbers], pa.int32())
        pond.ingest(name, pa.table({"ts": ts, "item": items, "n": list(numbers)}))
        pond.execute(f"HEARTBEAT {name} AT TIMESTAMP '1970-01-01 00:00:{second + 4:02}'")
    for name in QUERIES:
        pond.query(name).fetch()


def live(opening: Callable[[], Pond]) -> dict[str, list[tuple[Any, ...]]]:
    """What is found in a life with one restart."""
    with opening() as pond:
        for name in "st":
            pond.execute(
                f"CREATE STREAM {name} (ts TIMESTAMP, item INTEGER, n BIGINT) TIMESTAMP BY ts"
            )
        pond.execute(
            "CREATE SUMMARY si ON s (item) WITH GRANULARITY INTERVAL 32 SECONDS AND COLLAPSE (2, 3)"
        )
        for name, text in QUERIES.items():
            pond.register(text, name, changes="from beginning", follow=True)
        push(pond, 0)
        push(pond, 4)
    with opening() as pond:
        push(pond, 8)
        found = {name: pond.query(name).fetch(after="oldest") for name in QUERIES}
        assert all(page.as_of >= 11_999_999 for page in found.values())
        return {name: [row[1:] for row in page.rows()] for name, page in found.items()}


def test_parts_on_spark_are_those_of_one_process(
    open_store: Callable[..., Pond], tmp_path: Path
) -> None:
    found = live(lambda: open_store("parts"))
    assert found == live(lambda: open_local(tmp_path / "local"))
    assert all(len(rows) > 20 for rows in found.values())
