"""Clients that send slowly, do not take their answers, or hold what others need.

A test a setting of `millpond serve`, with small values of it; the slow test has forty clients that
do not take large answers, with the defaults.
"""

from __future__ import annotations

import json
import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from tests.faults.local_server import resident, serve_local
from tests.faults.test_bombs import ROOM

from millpond.catalog.option import Scope
from millpond.catalog.options import list_options

#: What an answer may take on a machine that does other things too, in seconds.
PATIENCE = 30.0

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
PUSH = (
    b"POST /v1/streams/s/tuples HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/x-ndjson\r\n"
)


@dataclass
class Served:
    """A server of its own process."""

    url: str
    pid: int
    connections: ExitStack = field(default_factory=ExitStack)

    def connect(self, receives: int | None = None) -> socket.socket:
        """A connection, perhaps one whose system takes few bytes ahead."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        connection = self.connections.enter_context(socket.socket())
        if receives is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        connection.settimeout(PATIENCE)
        connection.connect((host, int(port)))
        return connection

    def run(self, text: str) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/statements", json={"text": text}, timeout=PATIENCE)

    def push(self, body: bytes) -> httpx.Response:
        headers = {"Content-Type": "application/x-ndjson"}
        url = f"{self.url}/v1/streams/s/tuples"
        return httpx.post(url, content=body, headers=headers, timeout=PATIENCE)

    def ask_for(self, statement: str, form: bytes = b"application/json") -> socket.socket:
        """A connection that has asked for an answer and does not take it."""
        connection = self.connect(receives=4096)
        body = json.dumps({"text": statement}).encode()
        connection.sendall(
            b"POST /v1/statements HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Accept: %s\r\nContent-Length: %d\r\n\r\n%s" % (form, len(body), body)
        )
        return connection


@contextmanager
def serve(store: Path, **settings: object) -> Iterator[Served]:
    with serve_local(store, **settings) as server:
        served = Served(server.url, server.process.pid)
        assert served.run("CREATE STREAM s (n BIGINT, t STRING)").status_code == 200
        with ExitStack() as served.connections:
            yield served


def is_ended(connection: socket.socket, seconds: float = PATIENCE) -> bool:
    """Whether the server ends a connection in that time; what it has sent is left unread."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            # One byte of the window would let more come, so nothing is read.
            connection.send(b"\r\n")
        except OSError:
            return True
        time.sleep(0.1)
    return False


def read_all(connection: socket.socket) -> bytes:
    data = b""
    with suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            data += part
    return data


def read_answer(connection: socket.socket) -> bytes:
    """One answer on a connection that stays open."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None
    while len(body) < int(length[1]):
        body += connection.recv(1 << 20)
    return head + b"\r\n\r\n" + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_every_setting_of_a_server_has_a_test() -> None:
    here = set(re.findall(r"\b(\w+)=", Path(__file__).read_text()))
    assert set(list_options(Scope.SERVER)) <= here


def test_headers_that_do_not_come_are_not_waited_for(tmp_path: Path) -> None:
    with serve(tmp_path / "store", patience=1) as served:
        silent, slow, later = (served.connect() for _ in range(3))
        slow.sendall(HEAD)
        later.sendall(HEAD + b"\r\n")
        assert status(read_answer(later)) == 200
        later.sendall(HEAD)
        assert read_all(silent) == b""
        for connection in (slow, later):
            answer = read_all(connection)
            assert status(answer) == 408
            error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
            assert error["code"] == "SERVE-715"
            assert "within 1 seconds" in error["message"]
        assert served.run("SELECT 1").status_code == 200


def test_a_body_that_comes_too_slowly_is_not_waited_for(tmp_path: Path) -> None:
    """Each sends every tenth of a second: the slow one a byte, the fast one more than is asked."""
    patience = 4
    with serve(tmp_path / "store", patience=patience, slowest_rate=20) as served:
        fast, slow = served.connect(), served.connect()
        row = b'{"n": 1}\n'
        fast.sendall(PUSH + b"Transfer-Encoding: chunked\r\n\r\n")
        slow.sendall(PUSH + b"Content-Length: 1000\r\n\r\n")
        rows, until = 0, time.monotonic() + PATIENCE
        ends: float | None = None  # some time behind the end of the slow one
        while ends is None or time.monotonic() < ends:
            fast.sendall(b"%x\r\n%s\r\n" % (10 * len(row), 10 * row))
            rows += 10
            if ends is None and select.select([slow], [], [], 0)[0]:
                assert status(read_all(slow)) == 408
                ends = time.monotonic() + patience
            elif ends is None:
                with suppress(OSError):
                    slow.sendall(b" ")
            assert time.monotonic() < until
            time.sleep(0.1)
        fast.sendall(b"0\r\n\r\n")
        answer = read_answer(fast)
        assert status(answer) == 200
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["accepted"] == rows


@pytest.mark.slow
def test_the_rest_of_a_refused_body_is_not_read_for_ever(tmp_path: Path) -> None:
    with serve(tmp_path / "store", patience=1) as served:
        connection = served.connect()
        connection.sendall(PUSH.replace(b"ndjson", b"nothing"))
        connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        part = b"100\r\n" + b"x" * 256 + b"\r\n"
        until = time.monotonic() + PATIENCE
        with suppress(OSError):
            while True:
                connection.sendall(part)
                time.sleep(0.01)
                assert time.monotonic() < until
        assert served.run("SELECT 1").status_code == 200


def test_an_idle_connection_is_kept_as_long_as_the_setting_says(tmp_path: Path) -> None:
    with serve(tmp_path / "store", keep_alive=1, patience=60) as served:
        connection = served.connect()
        connection.sendall(HEAD + b"\r\n")
        assert status(read_answer(connection)) == 200
        assert connection.recv(1) == b""


def test_no_more_connections_than_the_setting_says(tmp_path: Path) -> None:
    with serve(tmp_path / "store", max_connections=3) as served:
        busy = [served.connect() for _ in range(3)]
        for connection in busy:
            connection.sendall(PUSH + b"Content-Length: 9\r\n\r\n{")
        time.sleep(0.5)
        refused = read_all(served.connect())
        assert status(refused) == 503
        assert b"Retry-After: 1" in refused
        assert json.loads(refused.partition(b"\r\n\r\n")[2])["error"]["code"] == "SERVE-715"
        for connection in busy:
            connection.sendall(b'"n": 1}\n')
            assert status(connection.recv(1 << 16)) == 200
        assert served.run("SELECT 1").status_code == 200  # an idle one gives way


def fill(served: Served, rows: int = 100_000) -> None:
    body = b"".join(b'{"n": %d, "t": "%s"}\n' % (n, b"x" * 40) for n in range(rows))
    assert served.push(body).status_code == 200
    httpx.post(f"{served.url}/v1/catch-up", timeout=PATIENCE)


@pytest.mark.slow
def test_an_answer_that_nobody_takes_is_given_up(tmp_path: Path) -> None:
    with serve(tmp_path / "store", patience=1) as served:
        fill(served)
        assert is_ended(served.ask_for("SELECT * FROM s"))


def test_a_feed_that_nobody_reads_is_given_up(tmp_path: Path) -> None:
    with serve(tmp_path / "store", patience=1) as served:
        assert served.run("CREATE QUERY q AS SELECT * FROM s").status_code == 200
        httpx.get(f"{served.url}/v1/queries/q/changes", timeout=PATIENCE)
        feeds = []
        for path in (b"/v1/queries/q/changes?follow=true", b"/v1/changes?queries=q&follow=true"):
            for form in (b"application/x-ndjson", b"text/event-stream"):
                feed = served.connect(receives=4096)
                head = b"GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\n\r\n" % (path, form)
                feed.sendall(head)
                feeds.append(feed)
        fill(served)
        assert all(map(is_ended, feeds))


def test_answers_that_wait_give_way_to_later_ones(tmp_path: Path) -> None:
    with serve(tmp_path / "store", answer_memory="8 MB", patience=600) as served:
        fill(served)
        first = served.ask_for("SELECT * FROM s")
        time.sleep(3)
        second = served.ask_for("SELECT * FROM s")
        assert is_ended(first)
        body = read_answer(second).partition(b"\r\n\r\n")[2]
        assert len(body) > 5_000_000
        assert len(json.loads(body)["results"][0]["rows"]) == 100_000


@pytest.mark.slow
def test_bodies_together_have_a_limit(tmp_path: Path) -> None:
    with serve(tmp_path / "store", body_memory="3 MB", patience=4, slowest_rate=1) as served:
        slow = served.connect()
        slow.sendall(PUSH + b"Content-Length: 3000000\r\n\r\n" + b" " * 2_500_000)
        time.sleep(1)
        rows = b'{"n": 1}\n' * 100_000
        refused = served.push(rows)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "SERVE-715"
        assert refused.headers["Retry-After"] == "1"
        assert served.push(b'{"n": 1}\n').status_code == 200
        until = time.monotonic() + PATIENCE
        while served.push(rows).status_code != 200:
            # The slow one has to be there longer than `patience` before it gives way.
            assert time.monotonic() < until
            with suppress(OSError):
                slow.send(b" ")
            time.sleep(0.2)
        assert status(read_all(slow)) == 503


@pytest.mark.slow
def test_headers_have_a_size(tmp_path: Path) -> None:
    with serve(tmp_path / "store") as served:
        for long in (
            HEAD + b"X: " + b"x" * (1 << 20),
            HEAD + b"".join(b"X-Header-%d: %d\r\n" % (n, n) for n in range(10_000)),
            b"GET /" + b"x" * (1 << 20),
            PUSH + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * (1 << 20),
            PUSH + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * 100_000,
        ):
            connection = served.connect()
            with suppress(OSError):
                connection.sendall(long)
            assert read_all(connection)[:12] in (b"HTTP/1.1 400", b"")
        assert served.run("SELECT 1").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("form", [b"application/json", b"application/vnd.apache.arrow.stream"])
def test_many_large_answers_that_nobody_takes(tmp_path: Path, form: bytes) -> None:
    """Forty at once; without room for few evaluations of many rows they took 4.6 GB, and 1.5 GB."""
    rows = 300_000 if b"json" in form else 900_000
    with serve(tmp_path / "store") as served:
        for _ in range(rows // 100_000):
            fill(served)
        idle, held, waited = resident(served.pid), [0], [0.0]
        is_over = threading.Event()

        def weigh() -> None:
            while not is_over.wait(0.02):
                held.append(resident(served.pid))

        watching = threading.Thread(target=weigh)
        watching.start()
        statement = "SELECT n, upper(t) AS t FROM s WHERE n >= 0 ORDER BY t, n"
        connections = [served.ask_for(statement, form) for _ in range(40)]
        until = time.monotonic() + 30
        while time.monotonic() < until:
            began = time.monotonic()
            assert served.run("SELECT count(*) AS c FROM s [ROWS 9]").status_code == 200
            waited.append(time.monotonic() - began)
            time.sleep(0.2)
        is_over.set()
        watching.join()
        answers = [connection.recv(12) for connection in connections[-20:]]
        assert {answer[9:] for answer in answers} <= {b"200", b"503", b""}
        assert max(held) - idle < ROOM
        # A second on a machine that has it to itself.
        assert max(waited) < 5.0
