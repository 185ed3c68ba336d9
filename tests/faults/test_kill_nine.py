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
import threading
import time
from pathlib import Path

import httpx
import pytest
from tests.faults.local_server import command_of_server
from tests.waiting import wait_until

from millpond.api.client import connect
from millpond.errors import MillpondError
from millpond.service.results import Change

#: What the followers follow: a stream, one derived from a derived one, and a window that forgets.
FOLLOWED = """
CREATE QUERY every AS SELECT id FROM s;
CREATE STREAM thirds AS SELECT id FROM s WHERE id % 3 = 0;
CREATE QUERY few AS ISTREAM(SELECT id FROM thirds [RANGE 10 SECONDS]);
CREATE QUERY recent AS SELECT id FROM s [RANGE 1 SECOND];
"""

FOLLOWERS = ("every", "few", "recent")

#: How long a server may take that says what it does: Spark has started in minutes on machines that
#: did much else, and the server itself gives up earlier (`runtime/spark/machine.py`).
PATIENCE = 900
KILLS = int(os.environ.get("MILLPOND_KILLS", "30"))
ROWS = 5


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


class Client(threading.Thread):
    """Pushes and registers until told to stop; repeats what was not acknowledged."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.pushed, self.registered = url, 0, 0
        self.stopping = threading.Event()
        self.trouble: str | None = None

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=30) as http:
            while not self.stopping.is_set():
                try:
                    self.push(http)
                    if self.pushed % 3 == 0:
                        self.register(http)
                except httpx.HTTPError:
                    self.stopping.wait(0.05)  # the server is down: the same again, soon
                except AssertionError as error:
                    self.trouble = str(error)
                    return

    def get_further(self, pushes: int) -> None:
        """Wait until so many more pushes are acknowledged."""
        goal = self.pushed + pushes
        wait_until(
            lambda: self.pushed >= goal or self.trouble is not None, PATIENCE, "no push went on"
        )

    def push(self, http: httpx.Client) -> None:
        number = self.pushed
        body = "\n".join(f'{{"id": {number * ROWS + i}}}' for i in range(ROWS))
        headers = {"Idempotency-Key": f"push-{number}", "Content-Type": "application/x-ndjson"}
        answer = http.post("/v1/streams/s/tuples", content=body, headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.json()["accepted"] == ROWS, answer.text
        self.pushed += 1

    def register(self, http: httpx.Client) -> None:
        name, text = query(self.registered)
        answer = http.post("/v1/queries", json={"name": name, "cql": text})
        taken = answer.status_code in (400, 409) and "CQL-208" in answer.text
        # Taken: the registration before the kill was durable, only its answer was lost.
        assert answer.status_code == 201 or taken, answer.text
        self.registered += 1


class Follower(threading.Thread):
    """Follows a query over every life of the server, and writes down what it is told."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(daemon=True)
        self.url, self.name = url, name
        self.told: list[Change] = []
        self.connections = 0
        self.trouble: Exception | None = None

    def run(self) -> None:
        while self.trouble is None:
            after = self.told[-1].cursor if self.told else None
            try:
                with connect(self.url) as remote:
                    self.connections += 1
                    for change in remote.query(self.name).subscribe(after, patience=0):
                        self.told.append(change)
            except MillpondError as error:
                if error.code not in ("SERVE-705", "POND-410"):
                    self.trouble = error
                time.sleep(0.1)
            except Exception as error:
                self.trouble = error


def query(number: int) -> tuple[str, str]:
    text = f"SELECT count(*) AS n, sum(id) AS total FROM s WHERE id % 7 = {number % 7}"
    return f"w{number}", f"{text} AND id >= {number}"


def expected(number: int, ids: range) -> list[int | None]:
    mine = [i for i in ids if i % 7 == number % 7 and i >= number]
    return [len(mine), sum(mine) if mine else None]


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
        check(server, client)
        check_followers(server, client, followers)
        assert server.left_running() == []
        # A server that is killed early has not started Spark yet.
        ended = len([victim for victim in order if victim != "worker"])
        assert on_spark * ended / 2 <= len(server.machines) <= on_spark * ended
    except BaseException:
        server.tell()
        raise
    finally:
        server.stop()


def check(server: Server, client: Client) -> None:
    ids = range(client.pushed * ROWS)
    with httpx.Client(base_url=server.url, timeout=60) as http:

        def ask(text: str) -> list[list[int]]:
            answer = http.post("/v1/statements", json={"text": text})
            assert answer.status_code == 200, answer.text
            rows: list[list[int]] = answer.json()["results"][0]["rows"]
            return rows

        everything = "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM s"
        whole = [[len(ids), len(ids), 0, len(ids) - 1]]
        wait_until(lambda: ask(everything) == whole, PATIENCE, f"{ask(everything)} is not {whole}")
        names = [row[0] for row in ask("SHOW QUERIES") if row[0] not in FOLLOWERS]
        assert sorted(names) == sorted(query(n)[0] for n in range(client.registered))
        for number in range(client.registered):
            result = http.get(f"/v1/queries/{query(number)[0]}/result").json()
            assert result["rows"] == [expected(number, ids)], (number, result)
    assert client.pushed > 0
    assert client.registered > 0


def check_followers(server: Server, client: Client, followers: list[Follower]) -> None:
    """Each was told every change once and in order, whatever was killed under it."""
    with connect(server.url) as remote:
        for follower in followers:
            handle = remote.query(follower.name)
            ids = range(client.pushed * ROWS)
            wanted = len([i for i in ids if i % 3 == 0]) if follower.name == "few" else len(ids)

            def all_told(follower: Follower = follower, wanted: int = wanted) -> bool:
                came = [c for c in follower.told if c.sign == "+"]
                return len(came) >= wanted or follower.trouble is not None

            wait_until(
                all_told, PATIENCE, f"{follower.name}: {len(follower.told)} changes, not {wanted}"
            )
            assert follower.trouble is None, follower.trouble
            told = list(follower.told)
            came = sorted(c.row[0] for c in told if c.sign == "+")
            assert came == [i for i in ids if follower.name != "few" or i % 3 == 0]
            assert [c.number for c in told] == list(range(1, len(told) + 1))
            assert [c.at for c in told] == sorted(c.at for c in told)
            kept = list(handle.subscribe(follow=False))
            assert kept[: len(told)] == told


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
