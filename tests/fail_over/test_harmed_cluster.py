"""A cluster whose executors, workers, disks, drivers and storage fail, each and with the driver.

Two drivers with sessions on one Spark master lead in turn; workers have directories of their own,
which are caches. Clients push, register and follow as in `test_fail_over.py`.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.tools.faulty_object_store import BUCKET, FAULTS, FaultyObjectStore, serve_objects
from tests.tools.followed_life import PATIENCE
from tests.tools.two_servers import SERVERS, TwoServers, survive
from tests.waiting import wait_until

from millpond.demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROUNDS = int(os.environ.get("MILLPOND_KILLS", "30"))
OF_WORKERS = ("kill executor", "stop executor", "kill worker", "stop worker", "lose disks")
PAIRS = ("kill executor", "kill worker", "refused", "stopped")
#: How many seconds a fault of the storage lasts: fewer and more than a leader may be silent.
PAUSES = (2, 9)
WORKERS = 2
#: Settings under which every task that takes longer than others, or than a second, is run twice.
SPECULATION = (
    "=true",
    ".interval=50ms",
    ".multiplier=1.1",
    ".quantile=0.5",
    ".minTaskRuntime=50ms",
    ".task.duration.threshold=1s",
)


class HarmedCluster:
    """A cluster, and what befalls its workers."""

    def __init__(self, directory: Path, objects: FaultyObjectStore) -> None:
        #: Where drivers have their directories, and each worker an empty one of its own.
        self.caches = directory / "caches"
        self.caches.mkdir()
        self._cluster = Cluster(directory)
        #: Executors whose worker was killed. They stay with their driver, and hold memory.
        self._orphans: list[int] = []
        self._objects = objects
        script = 'mount -t tmpfs none "$0" && exec "$@"'
        self._alone = ("unshare", "-m", "sh", "-c", script, str(self.caches))
        self._cluster.use_object_store(f"s3://{BUCKET}/store", objects.environment)
        self._cluster.start_spark(WORKERS, self._alone)
        self.servers = TwoServers(self.caches, self._command, self._cluster.environment)

    def _command(self, store: Path, port: int) -> list[str]:
        command = [sys.executable, "-m", "millpond.cli.main", "serve", "--store", str(store)]
        command += ["--port", str(port), "--shared", self._cluster.place]
        # Half of the drivers have slow tasks run a second time elsewhere, and take who ends first.
        conf = random.choice(((), SPECULATION))
        given = [word for one in conf for word in ("--spark-conf", f"spark.speculation{one}")]
        return [*command, "--master", self._cluster.master, *given]

    def list_executors(self) -> list[int]:
        """The processes of executors."""
        return [pid for worker in self._cluster.workers for pid in list_children(worker.pid)]

    def befall(self, faults: tuple[str, ...], leads: int) -> None:
        """Let the faults begin at about one time, and end."""
        wait_until(lambda: len(self.list_executors()) >= WORKERS, PATIENCE, "executors are missing")
        of_store = [fault for fault in FAULTS if fault in faults]
        if of_store:
            [self._objects.fault] = of_store
            wait_until(self._objects.is_felt, PATIENCE, "nobody asks the store")
        mend = [self._harm_workers(fault) for fault in faults if fault in OF_WORKERS]
        harmed = [fault for fault in faults if fault in SERVERS]
        for fault in harmed:
            self.servers.harm(leads, fault)
        for repair in mend:
            repair()
        if of_store:
            time.sleep(random.choice(PAUSES))
            self._objects.fault = None
        if harmed:
            self.servers.bring_back(leads)

    def _harm_workers(self, fault: str) -> Callable[[], None]:
        """Let a fault of the workers begin; return what ends it."""
        what, _, kind = fault.partition(" ")
        number = random.randrange(WORKERS)
        worker = self._cluster.workers[number]
        if kind == "disks":
            for one in self._cluster.workers:
                clean = ["find", str(self.caches), "-type", "f", "-delete"]
                subprocess.run(["nsenter", "-t", str(one.pid), "-m", *clean], check=False)
        elif what == "stop":
            pid = worker.pid if kind == "worker" else random.choice(self.list_executors())
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
            return lambda: wake_later(pid)
        elif kind == "executor":
            with suppress(ProcessLookupError):
                os.kill(random.choice(self.list_executors()), signal.SIGKILL)
        else:
            for pid in self._orphans:  # of the round before
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._orphans = list_children(worker.pid)
            worker.kill()
            worker.wait()
            self._cluster.workers.pop(number)
            return lambda: self._cluster.start_worker(self._alone)
        return lambda: None

    def close(self) -> None:
        self._cluster.close()


def list_children(pid: int) -> list[int]:
    command = ["ps", "-o", "pid=", "--ppid", str(pid)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return [int(child) for child in said.split()]


def wake_later(pid: int) -> None:
    """Let a stopped process go on after a while."""
    time.sleep(4)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HarmedCluster]:
    alone = ("unshare", "-m", "true")
    if not shutil.which("unshare") or subprocess.run(alone, check=False).returncode:
        pytest.skip("a view of the file system for each process needs unshare, and root")
    with serve_objects() as objects:
        cluster = HarmedCluster(tmp_path, objects)
        yield cluster
        cluster.close()


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", [*OF_WORKERS, *FAULTS, *SERVERS])
def test_rounds_of_a_single_fault(cluster: HarmedCluster, fault: str) -> None:
    survive(cluster.servers, [(fault,)] * ROUNDS, cluster.befall)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("with_driver", PAIRS)
def test_rounds_of_pairs_with_the_driver(cluster: HarmedCluster, with_driver: str) -> None:
    rounds = [(with_driver, SERVERS[n % 2]) for n in range(ROUNDS)]
    survive(cluster.servers, rounds, cluster.befall)
