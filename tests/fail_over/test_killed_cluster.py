"""A cluster whose processes are killed while rows come: nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest

import millpond
from millpond.demo.cluster import Cluster, free_port
from millpond.errors import MillpondError

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
CREATE STREAM p (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts;
CREATE STREAM f (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts USING csv OPTIONS (path '{path}');
CREATE QUERY qp WITH (follow = true) AS SELECT n FROM p;
CREATE QUERY qf WITH (follow = true) AS SELECT n FROM f;
CREATE QUERY j WITH (follow = true) AS
    SELECT p.n FROM p [RANGE 1 HOUR], f [RANGE 1 HOUR] WHERE p.n = f.n
"""
FIRST = datetime(2026, 1, 1)
T = TypeVar("T")


class Drivers:
    """Two servers of one shared store."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster, self._directory = cluster, directory
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.ports = [free_port(), free_port()]

    @property
    def urls(self) -> str:
        return ",".join(f"http://127.0.0.1:{port}" for port in self.ports)

    def start(self, port: int) -> None:
        command = [sys.executable, "-m", "millpond.cli.main", "serve"]
        command += ["--store", str(self._directory / str(port)), "--port", str(port)]
        command += ["--shared", self._cluster.place, "--master", self._cluster.master]
        command += ["--source-root", str(self._directory)]
        with (self._directory / f"{port}.log").open("ab") as log:
            self._running[port] = subprocess.Popen(
                command, env=dict(self._cluster.environment), stdout=log, stderr=log
            )

    def kill_leader(self, leads: int) -> None:
        process = self._running.pop(self.ports[leads])
        process.kill()
        process.wait()

    def close(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    cluster.start_object_store()
    cluster.start_spark()
    yield cluster
    cluster.close()


@pytest.fixture
def drivers(cluster: Cluster, tmp_path: Path) -> Iterator[Drivers]:
    drivers = Drivers(cluster, tmp_path)
    yield drivers
    drivers.close()


def kill_executor(cluster: Cluster) -> None:
    """Kill one executor of the workers; Spark starts another."""
    for worker in cluster.workers:
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(worker.pid)], capture_output=True, text=True
        )
        for pid in found.stdout.split():
            os.kill(int(pid), signal.SIGKILL)
            return


@pytest.mark.timeout(900)
def test_rows_are_there_once_whoever_is_killed(
    cluster: Cluster, drivers: Drivers, tmp_path: Path
) -> None:
    given = tmp_path / "in"
    given.mkdir()
    drivers.start(drivers.ports[0])
    with wait_for(lambda: millpond.connect(drivers.urls)) as mp:
        wait_for(lambda: mp.ready or None)
        drivers.start(drivers.ports[1])
        mp.execute(SCRIPT.format(path=given))
        pushed = 0

        def go_on(count: int) -> None:
            nonlocal pushed
            for _ in range(count):
                pushed += 1
                at = FIRST + timedelta(seconds=pushed)
                (tmp_path / "new").write_text(f"{at},{pushed}\n")
                (tmp_path / "new").rename(given / f"{pushed:06}.csv")
                mp.ingest("p", [{"ts": at, "n": pushed}])
                time.sleep(0.05)

        faults: list[Callable[[], None]] = [
            lambda: kill_executor(cluster),
            lambda: cluster.workers[0].kill(),
            lambda: drivers.kill_leader(0),
        ]
        for fault in faults:
            go_on(60)
            fault()
        go_on(60)
        wait_for(lambda: mp.ready or None)
        mp.catch_up(timeout=240)
        for query in ("qp", "qf", "j"):
            rows = mp.query(query).invoke().table["n"].to_pylist()
            assert sorted(rows) == list(range(1, pushed + 1)), query
            changes = [change.row[0] for change in mp.query(query).fetch()]
            assert changes == list(range(1, len(changes) + 1)), query
            assert len(changes) >= pushed - 1, query


def wait_for(attempt: Callable[[], T | None], seconds: float = 240) -> T:
    """What an attempt gives once it gives anything."""
    end = time.monotonic() + seconds
    while True:
        with suppress(MillpondError):
            if (found := attempt()) is not None:
                return found
        assert time.monotonic() < end
        time.sleep(0.2)
