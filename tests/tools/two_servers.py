"""Two servers of one shared store, which are killed, or stopped until the other leads."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx
from tests.tools.followed_life import (
    FOLLOWED,
    FOLLOWERS,
    PATIENCE,
    Client,
    Follower,
    check,
    check_followers,
)
from tests.waiting import wait_until

from millpond.api.client import connect
from millpond.demo.cluster import free_port

SERVERS = ("kill", "stop")


class TwoServers:
    """The servers, each with a directory of its own, and who leads.

    Attributes:
        ports: Where they listen.
        running: Their processes, by port.
    """

    def __init__(
        self,
        directory: Path,
        command: Callable[[Path, int], list[str]],
        environment: Mapping[str, str],
    ) -> None:
        """Start none yet.

        Args:
            directory: For what they say, and for the directory of each.
            command: The command that serves a directory at a port.
            environment: Its environment.
        """
        self._directory, self._command = directory, command
        self._environment = dict(environment)
        self._log = (directory / "servers.log").open("ab")
        self.ports = [free_port(), free_port()]
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def urls(self) -> str:
        return ",".join(map(url_of, self.ports))

    def start(self, port: int) -> None:
        """Start a server; it waits if another leads."""
        command = self._command(self._directory / f"driver-{port}", port)
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

        found: int = wait_until(find, PATIENCE, "nobody leads")
        return found

    def _leads(self, port: int) -> bool:
        if self.running[port].poll() is not None:
            self.start(port)  # it ended by itself: another led
            return False
        try:
            return httpx.get(f"{url_of(port)}/v1/status", timeout=10).status_code == 200
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
            asked.settimeout(PATIENCE)
            try:
                answer = asked.recv(4096)
            except OSError:  # it ended
                answer = b""
        assert b" 200 " not in answer.partition(b"\r\n")[0], answer
        assert process.wait(PATIENCE) != 0

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()
        self._log.close()

    def tell(self) -> None:
        """Print what the servers said."""
        self._log.flush()
        print((self._directory / "servers.log").read_text(errors="replace")[-20_000:], flush=True)


def survive(
    servers: TwoServers,
    rounds: Sequence[tuple[str, ...]],
    befall: Callable[[tuple[str, ...], int], None],
) -> None:
    """Push, register and follow while faults befall two servers; then check all that was said.

    Args:
        servers: The servers, none of which was started yet; they are closed.
        rounds: The faults of each round.
        befall: Lets a round's faults befall, and end; called with them and the leader's port.
    """
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
        for number, faults in enumerate(rounds, 1):
            client.get_further(3)
            leads = servers.find_leader()
            said = f"{number}: {client.pushed} pushes, {faults} at {leads}"
            print(f"{time.monotonic():.0f}: round {said}", flush=True)
            befall(faults, leads)
        servers.find_leader()
        client.get_further(4)
        client.stopping.set()
        client.join(PATIENCE)
        assert not client.is_alive(), "the client hangs"
        assert client.trouble is None, client.trouble
        check(servers.urls, client)
        check_followers(servers.urls, client, followers)
    except BaseException:
        servers.tell()
        raise
    finally:
        servers.close()


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}"
