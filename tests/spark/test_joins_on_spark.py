"""Joins on Spark: one task a shard, on workers, the answers those of the windows."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.pond import Pond

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
