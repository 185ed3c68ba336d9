"""A cluster on loopback: an object store, Spark's master and workers, and a second driver."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from millpond.api.client import RemotePond, connect
from millpond.demo.travellers import Traveller
from millpond.errors import MillpondError
from millpond.model.owner_only import make_directory, write_owner_only

#: The variable that names a server of S3's protocol, which is started with `-H host -p port`.
OBJECT_STORE = "MILLPOND_OBJECT_STORE"
_HOST = "127.0.0.1"
_DEPLOY = "org.apache.spark.deploy"
#: For the object store on loopback alone, which asks nobody who they are.
_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "loopback",
    "AWS_SECRET_ACCESS_KEY": "loopback",
    "AWS_REGION": "us-east-1",
}


#: The settings of every process of the cluster, which know each other by a secret.
PRIVATE = """\
spark.authenticate=true
spark.authenticate.secret={}
spark.network.crypto.enabled=true
spark.io.encryption.enabled=true
spark.master.rest.enabled=false
"""


class Cluster:
    """The processes of a cluster on this machine, in a directory that has their logs.

    Attributes:
        master: The URL of Spark's master.
        place: Where the drivers' store is shared.
        is_object_store: Whether that is an object store; else it is a directory.
        workers: The processes of Spark's workers.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_WORKER_DIR": str(directory / "work"),
        }
        conf = directory / "conf"
        make_directory(conf)
        secret = secrets.token_hex(16)
        write_owner_only(conf / "spark-defaults.conf", PRIVATE.format(secret).encode())
        self._environment["SPARK_CONF_DIR"] = str(conf)
        port = free_port()
        self.master = f"spark://{_HOST}:{port}"
        self._at_master = ("--host", _HOST, "--port", str(port))
        self.place = str(directory / "shared")
        self.is_object_store = False

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of the cluster's processes; a driver needs it, too."""
        return self._environment

    def start_object_store(self) -> None:
        """Start the object store, if there is one; else the shared place is a directory."""
        server = os.environ.get(OBJECT_STORE) or shutil.which("moto_server")
        if server is None:
            return
        port = free_port()
        url = f"http://{_HOST}:{port}"
        process = self._start("object-store.log", [server, "-H", _HOST, "-p", str(port)])
        _await(process, lambda: _connects(port), self._directory / "object-store.log")
        with urllib.request.urlopen(
            urllib.request.Request(f"{url}/pond", method="PUT"), timeout=60
        ):
            pass
        self.use_object_store("s3://pond/store", {**_CREDENTIALS, "AWS_ENDPOINT_URL": url})

    def use_object_store(self, place: str, environment: Mapping[str, str]) -> None:
        """Share the store in an object store that is there.

        Args:
            place: Where in it.
            environment: What a process needs to know it by.
        """
        self._environment |= environment
        self.place, self.is_object_store = place, True

    def start_spark(self, workers: int = 2, before: tuple[str, ...] = ()) -> None:
        """Start Spark's master, and workers of one core each.

        Args:
            workers: How many.
            before: What stands before a worker's command, which may give it a view of the file
                system of its own.
        """
        launcher = _find_launcher()
        web = ("--webui-port", "0")
        command = [launcher, f"{_DEPLOY}.master.Master", *self._at_master, *web]
        self._await_line("master.log", command, "I have been elected leader")
        for _ in range(workers):
            self.start_worker(before)

    def start_worker(self, before: tuple[str, ...] = (), host: str = _HOST) -> None:
        """Start one more worker.

        Args:
            before: As of `start_spark`.
            host: An address of loopback, which stands for a machine.
        """
        command = [*before, _find_launcher(), f"{_DEPLOY}.worker.Worker", "--host", host]
        command += ["--cores", "1", "--memory", "1g", "--webui-port", "0", self.master]
        log = f"worker-{len(self._processes)}.log"
        worker = self._await_line(log, command, "Successfully registered with master")
        self.workers.append(worker)

    def start_second_driver(self, store: Path) -> str:
        """Start a driver that waits until nobody leads the store; return its URL.

        Args:
            store: Its directory, which is a cache.
        """
        port = free_port()
        command = [sys.executable, "-m", "millpond.cli.main", "serve", "--store", str(store)]
        command += ["--shared", self.place, "--master", self.master, "--port", str(port)]
        self._await_line("second.log", command, "waits: another driver leads")
        return f"http://{_HOST}:{port}"

    def close(self) -> None:
        """End every process, the last one first."""
        for process in reversed(self._processes):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
            process.kill()
            process.wait()
        self._processes.clear()

    def _start(self, log: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._directory / log).open("wb") as out:
            process = subprocess.Popen(
                command, env=self._environment, stdout=out, stderr=out, cwd=self._directory
            )
        self._processes.append(process)
        return process

    def _await_line(self, log: str, command: list[str], text: str) -> subprocess.Popen[bytes]:
        file = self._directory / log
        process = self._start(log, command)
        _await(process, lambda: text in file.read_text(errors="replace"), file)
        return process


@contextmanager
def start_cluster() -> Iterator[Cluster]:
    """A whole cluster for the length of the block, with this process as one of its drivers."""
    directory = Path(tempfile.mkdtemp(prefix="millpond-cluster-"))
    before = dict(os.environ)
    cluster = Cluster(directory)
    try:
        cluster.start_object_store()
        cluster.start_spark()
        os.environ.update(cluster.environment)
        yield cluster
    finally:
        cluster.close()
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(directory, ignore_errors=True)


def answers_of(pond: Any, people: Sequence[Traveller]) -> dict[str, list[str]]:
    """The rows of everybody's answer as a bag of texts, by name."""
    answers = ((t.name, pond.query(t.name).invoke()) for t in people)
    return {name: sorted(map(str, answer.table.to_pylist())) for name, answer in answers}


def wait_for_lead(url: str, seconds: float = 120) -> RemotePond:
    """Connect to a driver as soon as it leads.

    Raises:
        MillpondError: it does not in time.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            return connect(url)
        except MillpondError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    with socket.socket() as free:
        free.bind((_HOST, 0))
        return int(free.getsockname()[1])


def _find_launcher() -> str:
    """Spark's own launcher of its daemons, which is in its package."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "bin" / "spark-class")


def _connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((_HOST, port)) == 0


def _await(
    process: subprocess.Popen[bytes], is_up: Callable[[], bool], log: Path, seconds: float = 300
) -> None:
    """Wait until a process is up, as long as it runs and its log grows every so many seconds."""
    size, end = -1, 0.0
    while not is_up():
        if (grown := log.stat().st_size) != size:
            size, end = grown, time.monotonic() + seconds
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(log.read_text(errors="replace")[-2000:])
        time.sleep(0.1)
