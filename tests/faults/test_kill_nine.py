"""kill -9 at random instants: every acknowledged tuple and query is there once, afterwards.

A client pushes batches under idempotency keys and registers queries without pause; it sends what
was not acknowledged again, as a careful client would. The server is killed at random instants and
started again over the same store. In the end there must be exactly the pushed tuples, exactly the
registered queries, and every answer must be what plain Python computes from the pushed tuples.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from tests.faults.local_server import command_of_server
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

KILLS = int(os.environ.get("MILLPOND_KILLS", "30"))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class ServerEnded(BaseException):
    """The server has ended by itself; nothing is worth waiting for."""


class Server:
    """A server process over a store, killed and started again."""

    def __init__(self, store: Path, on_spark: bool) -> None:
        self.store, self.on_spark, self.port = store, on_spark, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = (store.parent / "server.log").open("ab")
        self.process: subprocess.Popen[bytes] | None = None
        self.machines: set[int] = set()
        #: What it said last of its being ready.
        self.said: str | None = None

    def start(self) -> None:
        command = command_of_server(self.store, self.port)
        if self.on_spark:
            options = ["--store", str(self.store), "--port", str(self.port)]
            # With its fault handler, a server that hangs says where: see `tell`.
            python = [sys.executable, "-X", "faulthandler"]
            command = [*python, "-m", "millpond.cli.main", "serve", *options]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        wait_until(self.is_up, PATIENCE, "the server did not start")

    def is_up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise ServerEnded
        try:
            return httpx.get(f"{self.url}/healthz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        assert self.process is not None
        if (noted := self.store / "spark.pid").exists():
            self.machines.add(int(noted.read_text()))
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def await_spark(self) -> None:
        """Wait until Spark runs, which starts behind the server."""
        wait_until(lambda: self.readiness() == 200, PATIENCE, "no Spark")

    def kill_jvm(self) -> None:
        """Kill Spark under the server, which has to bring it back by itself."""
        self.await_spark()
        noted = self.store / "spark.pid"
        jvm = int(noted.read_text())
        self.machines.add(jvm)
        os.kill(jvm, signal.SIGKILL)
        # Another one is noted; or the server is not ready, and says why as long as it is not.
        wait_until(
            lambda: self.readiness() != 200 or int(noted.read_text()) != jvm,
            PATIENCE,
            "nobody noticed that Spark has ended",
        )
        self.await_spark()

    def kill_worker(self, chance: random.Random) -> None:
        """Kill one of Spark's Python workers, whatever it does, or the one they are forked from."""
        self.await_spark()
        jvm = int((self.store / "spark.pid").read_text())
        python = [pid for pid in descendants(jvm) if b"python" in command_of(pid)]
        if python:
            os.kill(chance.choice(python), signal.SIGKILL)

    def readiness(self) -> int:
        assert self.process is not None
        if self.process.poll() is not None:
            raise ServerEnded
        try:
            answer = httpx.get(f"{self.url}/readyz", timeout=20)
        except httpx.HTTPError as error:
            status, said = 0, repr(error)
        else:
            status, said = answer.status_code, answer.text
        if said != self.said:
            print(f"{time.monotonic():.0f}: ready: {status} {said[:300]}", flush=True)
            self.said = said
        return status

    def tell(self) -> None:
        """Print what the server did last, and where it is now; it ends with that."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
        for log in (Path(self.log.name), self.store / "spark.log"):
            if log.exists():
                print(f"==== {log.name}\n{log.read_text(errors='replace')[-20_000:]}", flush=True)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        self.log.close()

    def left_running(self) -> list[int]:
        """The JVMs of killed servers that did not end with them."""
        # An id may belong to another process by now.
        store = str(self.store).encode()
        return [pid for pid in self.machines if store in command_of(pid)]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(pid: int) -> list[int]:
    """The processes a process started, and those they started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return sorted(found)


def survive(
    tmp_path: Path,
    on_spark: bool,
    kills: int,
    seed: int,
    longest: float = 0.5,
    victims: tuple[str, ...] = ("server",),
) -> None:
    """Kill so many times, each life lasting up to `longest` seconds beyond its goal.

    Every victim is killed at least once if there are as many kills.
    """
    print(f"seed {seed}")
    chance = random.Random(seed)
    server = Server(tmp_path / "store", on_spark)
    try:
        server.start()
        made = httpx.post(
            f"{server.url}/v1/statements", json={"text": "CREATE STREAM s (id BIGINT)"}, timeout=60
        )
        assert made.status_code == 200, made.text
        followed = httpx.post(f"{server.url}/v1/statements", json={"text": FOLLOWED}, timeout=60)
        assert followed.status_code == 200, followed.text
        client = Client(server.url)
        client.start()
        followers = [Follower(server.url, name) for name in FOLLOWERS]
        for follower in followers:
            follower.start()
        order = [*victims, *chance.choices(victims, k=kills)][:kills]
        chance.shuffle(order)
        for life, victim in enumerate(order):
            if life % 3:  # most lives get somewhere before they end; the others may not
                server.await_spark()
                client.get_further(chance.randint(1, 6))
            time.sleep(chance.uniform(0, longest))
            print(f"{time.monotonic():.0f}: {client.pushed} pushes, kill {victim}", flush=True)
            if victim == "server":
                server.kill()
                server.start()
            elif victim == "JVM":
                server.kill_jvm()
            else:
                server.kill_worker(chance)
        client.get_further(4)
        client.stopping.set()
        client.join(60)
        assert client.trouble is None, client.trouble
        check(server.url, client)
        check_followers(server.url, client, followers)
        assert server.left_running() == []
        # A server that is killed early has not started Spark yet.
        ended = len([victim for victim in order if victim != "worker"])
        assert on_spark * ended / 2 <= len(server.machines) <= on_spark * ended
    except BaseException:
        server.tell()
        raise
    finally:
        server.stop()


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_when_the_server_is_killed_a_few_times(tmp_path: Path) -> None:
    survive(tmp_path, on_spark=False, kills=3, seed=4, longest=0.0)


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_when_the_server_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, on_spark=False, kills=KILLS, seed=random.randrange(10**6))


@pytest.mark.slow
@pytest.mark.spark
def test_nothing_is_lost_or_doubled_when_anything_on_spark_is_killed(tmp_path: Path) -> None:
    survive(
        tmp_path,
        on_spark=True,
        kills=KILLS,
        seed=random.randrange(10**6),
        victims=("server", "JVM", "worker"),
    )


@pytest.mark.spark
def test_nothing_is_lost_or_doubled_when_each_is_killed_once(tmp_path: Path) -> None:
    survive(
        tmp_path, on_spark=True, kills=3, seed=7, longest=0.0, victims=("server", "JVM", "worker")
    )
