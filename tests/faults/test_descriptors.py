"""A server with few descriptors, and clients that hold more connections than it can have."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.faults.local_server import serve_local

#: What an answer may take on a machine that does other things too.
PATIENCE = 20.0


@pytest.fixture(params=[64, 256])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """The URL of a server, and how many descriptors it may have."""
    limit = int(request.param)
    limited = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh"]
    with serve_local(tmp_path / "store", through=limited) as server:
        yield server.url, limit


def test_idle_connections_keep_nobody_out(served: tuple[str, int]) -> None:
    url, limit = served
    host, _, port = url.removeprefix("http://").partition(":")

    def run(text: str) -> httpx.Response:
        with httpx.Client(base_url=url, timeout=PATIENCE) as http:
            return http.post("/v1/statements", json={"text": text})

    assert run("CREATE STREAM s (n BIGINT); CREATE STREAM t (n BIGINT)").status_code == 200
    idle = []
    try:
        for _ in range(limit + 50):
            idle.append(socket.create_connection((host, int(port)), timeout=PATIENCE))
        answer = run("INSERT INTO s VALUES (1); SELECT count(*) FROM s")
        assert answer.status_code == 200, answer.text
        assert answer.json()["results"][1]["rows"] == [[1]]
        dropped = run("DROP STREAM t")
        assert dropped.status_code == 200, dropped.text
    finally:
        for connection in idle:
            connection.close()
    assert run("SELECT count(*) FROM s").json()["results"][0]["rows"] == [[1]]


def test_the_command_allows_itself_what_it_may_have() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    script = (
        "import resource, sys\n"
        "from millpond.cli import main\n"
        "main._raise_descriptor_limit()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    done = subprocess.run(
        ["sh", "-c", 'ulimit -S -n 64; exec "$@"', "sh", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    wanted = 1 << 16 if hard == resource.RLIM_INFINITY else min(hard, 1 << 16)
    assert done.stdout == f"{wanted}\n", done.stderr
