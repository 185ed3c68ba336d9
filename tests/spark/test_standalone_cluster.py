"""The goldens of joins on a cluster: a master and two workers on loopback, over a shared store."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

GOLDENS = Path(__file__).parents[1] / "cql" / "joins"

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

master, directory, goldens = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
session = start_session(directory, master, directory / "spark.log")
for number, golden in enumerate(sorted(goldens.glob("*.cqt"))):
    opened = []

    def make(clock):
        pond = Pond(directory / f"store-{number}", SparkRuntime(spark=session), clock=clock)
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


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def daemon(environment: dict[str, str], log: Path, *command: str) -> Iterator[subprocess.Popen]:
    """A process of the cluster; ended when the block ends."""
    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(launcher), *command], env=environment, stdout=out, stderr=out, cwd=log.parent
        )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)
        process.kill()


def wait_for(log: Path, text: str, process: subprocess.Popen, seconds: float = 90) -> None:
    """Wait until a process says something."""
    deadline = time.monotonic() + seconds
    while text not in log.read_text(errors="replace"):
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)


def test_joins_on_a_master_and_two_workers(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    logs = [tmp_path / name for name in ("master._components.log", "worker-1.log", "worker-2.log")]
    at_master = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()))
    with daemon(environment, logs[0], f"{deploy}.master.Master", *at_master) as first:
        wait_for(logs[0], "I have been elected leader", first)
        worker = [
            f"{deploy}.worker.Worker",
            "--host",
            "127.0.0.1",
            "--cores",
            "1",
            "--memory",
            "1g",
        ]
        with (
            daemon(
                environment, logs[1], *worker, "--webui-port", str(free_port()), master
            ) as second,
            daemon(
                environment, logs[2], *worker, "--webui-port", str(free_port()), master
            ) as third,
        ):
            wait_for(logs[1], "Successfully registered with master", second)
            wait_for(logs[2], "Successfully registered with master", third)
            done = subprocess.run(
                [sys.executable, "-c", DRIVER, master, str(tmp_path), str(GOLDENS)],
                capture_output=True,
                text=True,
                timeout=540,
                env=environment,
                cwd=tmp_path,
            )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    said = done.stdout.split("\n")
    assert {golden.stem for golden in GOLDENS.glob("*.cqt")} <= set(said)
    assert "executors 2" in said
