"""The goldens of joins on a cluster: a master and two workers on loopback, over a shared store."""

from __future__ import annotations

import http.client
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from millpond.demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

GOLDENS = Path(__file__).parents[2] / "cql" / "joins"

#: What the driver does, in a process of its own: this one may have a session on another master.
DRIVER = """
import sys
from pathlib import Path
from millpond.runtime.spark.runtime import SparkRuntime
from millpond.runtime.spark.session import start_session
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.pond import Pond
from tests.tools.golden import run_golden
from tests.tools.golden_ways import Variation

master, directory, stores, goldens, place = sys.argv[1], *map(Path, sys.argv[2:5]), sys.argv[5]
session = start_session(directory, master, directory / "spark.log")
for number, golden in enumerate(sorted(goldens.glob("*.cqt"))):
    opened = []

    def make(clock):
        shared = f"{place}/{number}" if place else None
        runtime = SparkRuntime(spark=session)
        pond = Pond(stores / f"store-{number}", runtime, clock=clock, shared=shared)
        pond._components.set_join_settings(JoinSettings(shards=3))
        opened.append(pond)
        return pond

    run_golden(golden, make, Variation(cut=7, order="queries first"))
    for pond in opened:
        pond.close()
    print(golden.stem, flush=True)
print("executors", session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1)
session.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "stores").mkdir()
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def run_goldens(cluster: Cluster, directory: Path, place: str) -> None:
    """Run the goldens on a cluster, with a store each; with a place, it is shared there."""
    arguments = [cluster.master, str(directory), str(directory / "stores"), str(GOLDENS), place]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments],
        capture_output=True,
        text=True,
        timeout=540,
        env=dict(cluster.environment),
        cwd=directory,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    said = done.stdout.split("\n")
    assert {golden.stem for golden in GOLDENS.glob("*.cqt")} <= set(said)
    assert "executors 2" in said


@pytest.mark.timeout(120)
def test_no_port_of_a_master_takes_programs_from_everybody(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Spark's REST server runs whatever it is posted, and asks for no secret."""
    cluster.start_spark(0)
    ports = re.findall(r"on port (\d+)", (tmp_path / "master.log").read_text())
    assert len(ports) >= 2
    for port in map(int, ports):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/v1/submissions/status/driver-1")
            assert b"SubmissionStatusResponse" not in connection.getresponse().read()
        connection.close()


def test_joins_on_a_master_and_two_workers(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start_spark()
    run_goldens(cluster, tmp_path, "")


def test_workers_with_directories_of_their_own(cluster: Cluster, tmp_path: Path) -> None:
    """Where the driver has its stores, each worker has an empty directory."""
    script = 'mount -t tmpfs none "$0" && exec "$@"'
    alone = ("unshare", "-m", "sh", "-c", script, str(tmp_path / "stores"))
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("a view of the file system for each process needs unshare, and root")
    cluster.start_spark(before=alone)
    run_goldens(cluster, tmp_path, str(tmp_path / "shared"))
