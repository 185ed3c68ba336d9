"""What ends with a pond: the tasks it has called for, and Spark, unless another pond uses it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond

pytestmark = pytest.mark.spark

#: Longer than ending a task takes, and shorter than the task.
PATIENCE, LONG = 60.0, 3600.0


def test_tasks_end_and_no_others_begin(open_store: Callable[..., Pond], spark: Any) -> None:
    runtime: Any = open_store()._components.runtime
    failed: list[Exception] = []

    def run() -> None:
        try:
            runtime.run(time.sleep, [LONG])
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    tracker = spark.sparkContext.statusTracker()
    until = time.monotonic() + PATIENCE
    while not tracker.getActiveStageIds() and time.monotonic() < until:
        threading.Event().wait(0.02)
    while not failed and time.monotonic() < until:
        runtime.end_tasks()
        thread.join(0.1)
    assert not thread.is_alive()
    assert len(failed) == 1
    with pytest.raises(MillpondError, match="POND-410"):
        runtime.run(time.sleep, [0.0])


PROGRAM = """
import sys
from pathlib import Path
import millpond

def use(pond):
    pond.ingest("s", [{"v": 1}])
    pond.catch_up(timeout=120)
    return pond.ask("SELECT count(*) FROM s").rows()[0][0]

stores = [Path(sys.argv[1], name) for name in "ab"]
millpond.open(stores[0]).close()  # before Spark has run a job
first, second = ponds = [millpond.open(store, master="local[1]") for store in stores]
for pond in ponds:
    pond.execute("CREATE STREAM s (v BIGINT)")
print(use(first), use(second), use(first))
first.close()
print(use(second))
print(*(Path(store, "spark.pid").exists() for store in stores))
first = millpond.open(stores[0], master="local[1]")
print(use(second), use(first))
second.close()
print(use(first))
try:
    millpond.open(stores[1], master="local[2]")
except millpond.MillpondError as error:
    print(str(error).splitlines()[0])
first.close()
print([file.name for store in stores for file in (store / "checkpoints").glob(".scratch*")])
"""


def test_ponds_of_one_process_go_on_when_another_is_closed() -> None:
    """They share a Spark session, which belongs to none of them."""
    with TemporaryDirectory(dir="/tmp") as stores:  # short enough for sockets in it
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, stores], capture_output=True, text=True, timeout=300
        )
    said = "CQL-214: Spark runs in this process already, with another spark.master"
    expected = ["1 1 2", "2", "False False", "3 3", "4", said, "[]"]
    assert done.stdout.splitlines() == expected, done.stderr[-3000:]
    assert done.stderr == ""


KILLED = """
import os, signal, sys
from pathlib import Path
import millpond
from pyspark import SparkContext

def use(pond):
    pond.ingest("s", [{"v": 1}])
    pond.catch_up(timeout=120)
    return pond.ask("SELECT count(*) FROM s").rows()[0][0]

stores = [Path(sys.argv[1], name) for name in "ab"]
first, second = ponds = [millpond.open(store, master="local[1]") for store in stores]
for pond in ponds:
    pond.execute("CREATE STREAM s (v BIGINT)")
print(use(first), use(second))
os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
SparkContext._gateway.proc.wait()
try:
    millpond.open()
except millpond.MillpondError as error:
    print(error.code)
first.close()
first = millpond.open(stores[0], master="local[1]")
print(use(first))
second.close()
print(use(first))
second = millpond.open(stores[1])
first.close()
print(use(second))
second.close()
"""


def test_ponds_of_one_process_come_back_one_by_one_when_spark_is_killed() -> None:
    with TemporaryDirectory(dir="/tmp") as stores:
        done = subprocess.run(
            [sys.executable, "-c", KILLED, stores], capture_output=True, text=True, timeout=300
        )
    assert done.stdout.splitlines() == ["1 1", "POND-415", "2", "3", "2"], done.stderr[-3000:]


OWN = """
import sys
import millpond
from pyspark.sql import SparkSession

own = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
before = own.sql("SET").collect()
for _ in range(2):
    with millpond.open(sys.argv[1]) as pond:
        if not pond.streams():
            pond.execute("CREATE STREAM s (v BIGINT)")
        pond.ingest("s", [{"v": 1}])
        pond.catch_up(timeout=120)
        print(pond.ask("SELECT count(*) FROM s").rows()[0][0])
    print(own.range(3).count(), own.sql("SET").collect() == before)
"""


def test_a_session_that_runs_already_is_used_and_goes_on() -> None:
    """Somebody has started it in a notebook, and opens a pond without passing it."""
    with TemporaryDirectory() as store:
        done = subprocess.run(
            [sys.executable, "-c", OWN, store], capture_output=True, text=True, timeout=300
        )
    assert done.stdout.splitlines() == ["1", "3 True", "2", "3 True"], done.stderr[-3000:]
