"""Joins and followed parts on Spark: their answers are those of the windows, and of one process."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

pytestmark = pytest.mark.spark

START = datetime.datetime(2026, 1, 1)


def rows(first: int, count: int, step: int) -> pa.Table:
    seconds = range(first, first + count)
    return pa.table(
        {
            "ts": pa.array([START + datetime.timedelta(seconds=s) for s in seconds]),
            "k": pa.array([s * step % 7 for s in seconds], pa.int32()),
            "v": pa.array(list(seconds), pa.int32()),
        }
    )


def keep_and_answer(pond: Pond) -> None:
    pond._components.set_join_settings(JoinSettings(shards=3, routing="random"))
    for name in "ab":
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY ts")
    text = (
        "SELECT a.v, b.v FROM a [RANGE 60 SECONDS], b [RANGE 30 SECONDS]"
        " WHERE a.k = b.k AND a.v <> 13"
    )
    pond.register(text, "stored")
    pond.register(text, "plain", materialize="none")
    for batch in range(3):
        pond.ingest("a", rows(batch * 40, 40, 1))
        pond.ingest("b", rows(batch * 40, 40, 3))
        pond.wait_until_matched(120)
    joins = pond._components.log.version.joins
    (core,) = joins.cores.values()
    assert core.covered == (120, 120)
    assert {run.shard for runs in joins.runs_of.values() for run in runs} == {0, 1, 2}
    stored, plain = (pond.query(name).invoke().table for name in ("stored", "plain"))
    assert stored.num_rows > 0
    assert stored.equals(plain)


def test_a_join_in_shards_is_kept_and_answered(pond: Pond) -> None:
    keep_and_answer(pond)


@pytest.mark.slow
def test_workers_that_are_processes_of_their_own(tmp_path: Path) -> None:
    """Two workers of a cluster on this machine: what tasks share is in the store, or nowhere."""
    script = (
        "import sys, runpy; test = runpy.run_path(sys.argv[1]);"
        "from millpond.service.open_pond import open_pond\n"
        "with open_pond(sys.argv[2], master='local-cluster[2,1,1024]') as pond:"
        " test['keep_and_answer'](pond)"
    )
    command = [sys.executable, "-c", script, __file__, str(tmp_path / "store")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]


# -- followed parts -----------------------------------------------------------------------------

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
