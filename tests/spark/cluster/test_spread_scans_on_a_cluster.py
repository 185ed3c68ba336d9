"""Scans on a cluster of two machines: each reads its own share of the files, and keeps it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tools.faulty_object_store import BUCKET, FaultyObjectStore, serve_objects

from millpond.demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MACHINES = ("127.0.0.2", "127.0.0.3")
#: A driver that does what it is told, a line at a time, and says what it has.
DRIVER = """
import json, sys, time
from pathlib import Path
from millpond.errors import MillpondError
from millpond.service.open_pond import open_pond
from millpond.work import limit_work

TEXT = "SELECT count(*) AS n, sum(v) AS s FROM s WHERE v % 7 = 0"
place, master, store = sys.argv[1:]
conf = {"spark.locality.wait": "60s"}
with open_pond(Path(store), shared=place, master=master, spark_conf=conf) as pond:
    scans = pond._components.invoker.scans
    pond._components.maintenance.stop()
    pond.execute("CREATE STREAM s (v BIGINT)")
    for push in range(16):
        pond.ingest("s", [{"v": push * 100 + i} for i in range(100)])
        pond.catch_up()
    for line in sys.stdin:
        told = json.loads(line)
        scans.least_rows = told["least"]
        before = scans.count
        try:
            with limit_work(told.get("seconds", 600)):
                rows = pond.ask(told.get("text", TEXT)).table.to_pylist()
        except MillpondError as error:
            rows = error.code
        files = [s.path for s in pond._components.log.version.segments(1)]
        said = {"rows": rows, "spread": scans.count - before, "files": files}
        print("said", json.dumps(said), flush=True)
"""


@pytest.fixture
def objects() -> Iterator[FaultyObjectStore]:
    with serve_objects() as store:
        yield store


@pytest.fixture
def cluster(tmp_path: Path, objects: FaultyObjectStore) -> Iterator[Cluster]:
    caches = tmp_path / "caches"
    caches.mkdir()
    script = 'mount -t tmpfs none "$0" && exec "$@"'
    alone = ("unshare", "-m", "sh", "-c", script, str(caches))
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("a view of the file system for each process needs unshare, and root")
    cluster = Cluster(tmp_path)
    cluster.use_object_store(f"s3://{BUCKET}/store", objects.environment)
    cluster.start_spark(0)
    for machine in MACHINES:
        cluster.start_worker(alone, machine)
    yield cluster
    cluster.close()


@pytest.fixture
def tell(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    command = [sys.executable, "-c", DRIVER, cluster.place, cluster.master]
    driver = subprocess.Popen(
        [*command, str(tmp_path / "caches" / "driver")],
        env=dict(cluster.environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdin is not None
    assert driver.stdout is not None

    def tell(**told: Any) -> dict[str, Any]:
        driver.stdin.write(json.dumps(told) + "\n")
        driver.stdin.flush()
        line = driver.stdout.readline()
        while line and not line.startswith("said "):
            line = driver.stdout.readline()
        said: dict[str, Any] = json.loads(line.removeprefix("said "))
        return said

    yield tell
    driver.kill()
    driver.wait()


def kill_executors(cluster: Cluster) -> None:
    for worker in cluster.workers:
        command = ["ps", "-o", "pid=", "--ppid", str(worker.pid)]
        for pid in subprocess.run(command, capture_output=True, text=True).stdout.split():
            os.kill(int(pid), signal.SIGKILL)


@pytest.mark.timeout(900)
def test_machines_read_their_share_and_no_loss_of_them_shows(
    cluster: Cluster, objects: FaultyObjectStore, tell: Callable[..., dict[str, Any]]
) -> None:
    own = tell(least=1 << 40)
    multiples = range(0, 1_600, 7)
    assert own["rows"] == [{"n": len(multiples), "s": sum(multiples)}]
    assert own["spread"] == 0

    def reads() -> list[int]:
        return [objects.reads[f"store/files/{path}"] for path in own["files"]]

    tell(least=1)
    first = reads()
    for _ in range(3):
        said = tell(least=1)
        assert (said["rows"], said["spread"]) == (own["rows"], 1)
    assert reads() == first, "a machine has read what another one has"
    rows = "SELECT v FROM s WHERE v % 500 = 3 ORDER BY v"
    assert tell(least=1, text=rows)["rows"] == [{"v": v} for v in range(3, 1_600, 500)]

    kill_executors(cluster)
    assert tell(least=1)["rows"] == own["rows"]

    for worker in cluster.workers:
        worker.kill()
        worker.wait()
    # Nobody runs the tasks: the request ends when its time is over, and the driver still answers.
    assert tell(least=1, seconds=5)["rows"] == "POND-405"
    assert tell(least=1 << 40)["rows"] == own["rows"]
