"""The manifest for Kubernetes: its driver has pods started that work, and others for lost ones."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.tools.kubernetes_server import KubernetesServer
from tests.waiting import wait_until

from millpond.api.client import connect
from millpond.demo.cluster import free_port

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MANIFEST = Path(__file__).parents[3] / "packaging" / "kubernetes.yaml"
STORAGE = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_REGION": "r"}
FIELDS = {"POD_NAME": "millpond-0", "POD_NAMESPACE": "ponds", "POD_IP": "127.0.0.1"}


def read_arguments(directory: Path, master: str, port: int) -> list[str]:
    """The driver's arguments in the manifest, with what differs on loopback."""
    documents = [d for d in yaml.safe_load_all(MANIFEST.read_text()) if d["kind"] == "StatefulSet"]
    driver = documents[0]["spec"]["template"]["spec"]["containers"][0]
    text = "\n".join(driver["args"])
    text = re.sub(r"\$\((\w+)\)", lambda name: FIELDS[name[1]], text)
    for here, there in {
        "--host=0.0.0.0": f"--host=127.0.0.1\n--port={port}",
        "/var/lib/": f"{directory}/",
        "s3://acme/pond": str(directory / "shared"),
        "k8s://https://kubernetes.default.svc": f"k8s://{master}",
        "executor.cores=2": "executor.cores=1",
        "executor.memory=1g": "executor.memory=512m",
    }.items():
        assert here in text
        text = text.replace(here, there)
    # Spark looks every 30 seconds; what it is told of at once goes over a WebSocket.
    return [*text.split("\n"), "--spark-conf=spark.kubernetes.executor.apiPollingInterval=1s"]


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[KubernetesServer]:
    server = KubernetesServer(tmp_path, {"millpond-storage": STORAGE})
    path = f"/api/v1/namespaces/ponds/pods/{FIELDS['POD_NAME']}"
    server.add(path, {"kind": "Pod", "metadata": {"name": FIELDS["POD_NAME"]}})
    yield server
    server.close()


@pytest.mark.timeout(600)
def test_pods_work_and_are_replaced(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    port = free_port()
    arguments = read_arguments(tmp_path, kubernetes.url, port)
    command = [sys.executable, "-m", "millpond.cli.main", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with (tmp_path / "driver.log").open("wb") as out:
        driver = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
    opened = ExitStack()
    try:
        pond = wait_until(lambda: connect(f"http://127.0.0.1:{port}"))
        opened.callback(pond.close)
        pond.execute("CREATE STREAM s (a INTEGER, ts TIMESTAMP) TIMESTAMP BY ts")
        pond.register("SELECT a, count(*) AS n FROM s GROUP BY a", name="q", follow=True)
        push(pond, 1_000, minute=0)
        wait_until(lambda: is_answered(pond, 1_000))
        assert len(kubernetes.running) == 2
        for pod in kubernetes.asked.values():
            check_pod(pod, tmp_path)

        name, process = next(iter(kubernetes.running.items()))
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: len(kubernetes.asked) == 3)
        push(pond, 500, minute=1)
        wait_until(lambda: is_answered(pond, 1_500))
        wait_until(lambda: name not in kubernetes.running)
        wait_until(lambda: len(kubernetes.running) == 2)
    finally:
        opened.close()
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(120) == 0, (tmp_path / "driver.log").read_text()[-3_000:]
    wait_until(lambda: not kubernetes.running)


def push(pond: Any, rows: int, minute: int) -> None:
    at = f"2026-01-01 00:{minute:02d}:00"
    pond.ingest("s", [{"a": i % 2, "ts": at} for i in range(rows)])


def is_answered(pond: Any, rows: int) -> bool:
    half = rows // 2
    return sorted(pond.query("q").invoke().rows()) == [(0, half), (1, half)]


def check_pod(pod: dict[str, Any], directory: Path) -> None:
    """It has room for Python's workers and a cache, ends with its driver, and tells no secret."""
    container = pod["spec"]["containers"][0]
    assert container["resources"]["limits"]["memory"] == f"{512 + 3 * 1024}Mi"
    assert pod["metadata"]["ownerReferences"][0]["name"] == FIELDS["POD_NAME"]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(directory / "millpond"), str(directory / "spark")} <= mounted
    assert STORAGE["AWS_SECRET_ACCESS_KEY"] not in str(pod)
