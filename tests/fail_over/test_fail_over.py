"""Two servers of one shared store, while servers and the storage fail: nothing is lost or doubled.

Clients of both push, register and follow without pause; see `tests.tools.followed_life`. Servers
are killed, or stopped for longer than the other waits; an object store is slow, fails, loses
answers, refuses, and is silent. A server that comes back after another has led must not acknowledge
anything.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.faults.local_server import command_of_server
from tests.tools.faulty_object_store import BUCKET, FAULTS, FaultyObjectStore, serve_objects
from tests.tools.followed_life import FOLLOWED, FOLLOWERS, Client, Follower, check, check_followers
from tests.waiting import wait_until

from millpond.api.client import connect

ROUNDS = int(os.environ.get("MILLPOND_KILLS", "30"))
#: More seconds than a driver waits for an answer of the storage.
OUTAGE = 45.0
SERVERS = ("kill", "stop")


class TwoServers:
    """The servers `a` and `b`, each with a directory of its own, and who leads."""

    def __init__(self, directory: Path, place: str, environment: dict[str, str]) -> None:
        self._directory, self._place = directory, place
        self._environment = {**os.environ, **environment}
        self._log = (directory / "servers.log").open("ab")
        self.ports = [free_port(), free_port()]
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def urls(self) -> str:
        return ",".join(map(url_of, self.ports))

    def start(self, port: int) -> None:
        """Start a server; it waits if another leads."""
        store = self._directory / f"driver-{port}"
        command = command_of_server(store, port, shared=self._place)
        self.running[port] = subprocess.Popen(
            command, env=self._environment, stdout=self._log, stderr=self._log
        )

    def find_leader(self, other_than: int | None = None) -> int:
        """The port of the server that leads, once one does."""

        def find() -> int | None:
            for port in self.ports:
                if port != other_than and self._leads(port):
                    return port
            return None

        found: int = wait_until(find, 120, "nobody leads")
        return found

    def _leads(self, port: int) -> bool:
        if self.running[port].poll() is not None:
            self.start(port)  # it ended by itself: another led
            return False
        try:
            return httpx.get(f"{url_of(port)}/v1/status", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def harm(self, port: int, fault: str) -> None:
        """Kill or stop a server."""
        self.running[port].send_signal(signal.SIGKILL if fault == "kill" else signal.SIGSTOP)

    def bring_back(self, port: int) -> None:
        """Let a server that was killed or stopped come back, once another leads."""
        process = self.running[port]
        self.find_leader(other_than=port)
        if process.poll() is None:
            self._wake(process, port)
        process.wait()
        self.start(port)

    def _wake(self, process: subprocess.Popen[bytes], port: int) -> None:
        """Let a stopped server go on: what it is asked at once it refuses, and it ends."""
        body = b'{"id": -1}'
        head = f"POST /v1/streams/s/tuples HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        head += f"Content-Type: application/x-ndjson\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port)) as asked:
            asked.sendall(head.encode() + body)
            process.send_signal(signal.SIGCONT)
            asked.settimeout(60)
            try:
                answer = asked.recv(4096)
            except OSError:  # it ended
                answer = b""
        assert b" 200 " not in answer.partition(b"\r\n")[0], answer
        assert process.wait(60) != 0

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()
        self._log.close()

    def tell(self) -> None:
        """Print what the servers said."""
        self._log.flush()
        print((self._directory / "servers.log").read_text(errors="replace")[-20_000:], flush=True)


@pytest.fixture
def objects() -> Iterator[FaultyObjectStore]:
    with serve_objects() as store:
        yield store


def survive(
    directory: Path, objects: FaultyObjectStore | None, faults: list[tuple[str, ...]]
) -> None:
    """Let so many faults befall the servers and the store, each of one or several at once."""
    place = str(directory / "shared") if objects is None else f"s3://{BUCKET}/store"
    servers = TwoServers(directory, place, {} if objects is None else objects.environment)
    try:
        servers.start(servers.ports[0])
        servers.find_leader(other_than=servers.ports[1])
        servers.start(servers.ports[1])
        with connect(servers.urls) as pond:
            pond.execute("CREATE STREAM s (id BIGINT)")
            pond.execute(FOLLOWED)
        client = Client(servers.urls)
        followers = [Follower(servers.urls, name) for name in FOLLOWERS]
        for thread in (client, *followers):
            thread.start()
        for together in faults:
            client.get_further(3)
            leads = servers.find_leader()
            print(
                f"{time.monotonic():.0f}: {client.pushed} pushes, {together} at {leads}", flush=True
            )
            befall(together, leads, servers, objects)
        servers.find_leader()
        client.get_further(4)
        client.stopping.set()
        client.join(120)
        assert client.trouble is None, client.trouble
        check(servers.urls, client)
        check_followers(servers.urls, client, followers)
    except BaseException:
        servers.tell()
        raise
    finally:
        servers.close()


def befall(
    faults: tuple[str, ...], leads: int, servers: TwoServers, objects: FaultyObjectStore | None
) -> None:
    """Let the faults begin at about one time, and end; the storage answers again first."""
    of_store = [fault for fault in FAULTS if fault in faults]
    if objects is not None and of_store:
        [objects.fault], objects.befallen = of_store, 0
        wait_until(lambda: objects.befallen > 4, 60, "nobody asks the store")
    harmed = [fault for fault in faults if fault in SERVERS]
    for fault in harmed:
        servers.harm(leads, fault)
    if objects is not None and of_store:
        time.sleep(OUTAGE if "outage" in faults else 2)
        objects.fault = None
    if harmed:
        servers.bring_back(leads)


@pytest.mark.timeout(300)
def test_a_server_that_is_killed_or_stopped_is_followed_by_the_other(tmp_path: Path) -> None:
    survive(tmp_path, None, [("kill",), ("stop",)])


@pytest.mark.timeout(300)
def test_an_object_store_may_fail_in_every_way(tmp_path: Path, objects: FaultyObjectStore) -> None:
    survive(tmp_path, objects, [(fault,) for fault in FAULTS])


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", SERVERS)
def test_rounds_in_a_directory(tmp_path: Path, fault: str) -> None:
    survive(tmp_path, None, [(fault,)] * ROUNDS)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", [*FAULTS, *SERVERS])
def test_rounds_in_an_object_store(tmp_path: Path, objects: FaultyObjectStore, fault: str) -> None:
    survive(tmp_path, objects, [(fault,)] * ROUNDS)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("server", SERVERS)
def test_rounds_of_pairs(tmp_path: Path, objects: FaultyObjectStore, server: str) -> None:
    pairs = [(fault, server) for fault in FAULTS] * (ROUNDS // len(FAULTS))
    random.shuffle(pairs)
    survive(tmp_path, objects, pairs)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS[1:])
def test_an_outage_ends_the_leader_and_not_what_it_said(
    tmp_path: Path, objects: FaultyObjectStore, fault: str
) -> None:
    survive(tmp_path, objects, [(fault, "outage")])


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}"
