"""A real server on a loopback port: its line, its end, its port."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from millpond.api import server
from millpond.api.client import connect
from millpond.errors import MillpondError

HERE = Path(__file__).parent

#: `millpond` with the tests' pond in place of the real one.
MILLPOND = """
import sys, types
sys.path.insert(0, sys.argv.pop(1))
from fake_pond import FakePond
from conftest import FLIGHTS_CSV
def open_pond(store, **options):
    pond = FakePond()
    pond.ingest_text("flights", FLIGHTS_CSV, "csv")
    close = pond.close
    pond.close = lambda: (close(), print("pond closed", file=sys.stderr))
    return pond
composition = types.ModuleType("millpond.service.composition")
composition.open_pond = open_pond
sys.modules["millpond.service.composition"] = composition
from millpond.cli.main import main
main()
"""


def start(*arguments: str, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MILLPOND, str(HERE), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        **options,
    )


def test_serve_in_a_thread(pond):
    listener = server.bind("127.0.0.1", 0)
    up, urls = threading.Event(), []
    servers = []

    def on_ready(url: str) -> None:
        urls.append(url)
        up.set()

    def run() -> None:
        servers.append(server.serve(pond, listener=listener, on_ready=on_ready))

    original = server.Server.startup

    async def startup(self, sockets=None):
        servers.append(self)
        await original(self, sockets)

    patch = pytest.MonkeyPatch()
    patch.setattr(server.Server, "startup", startup)
    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert up.wait(10)
        with connect(urls[0]) as remote:
            remote.register("SELECT carrier FROM flights", "q")
            assert len(remote.query("q").invoke()) == 3
        assert httpx.get(f"{urls[0]}/healthz").json() == {"status": "alive"}
    finally:
        servers[0].should_exit = True
        thread.join(15)
        patch.undo()
    assert servers[1] is None


def test_a_port_in_use():
    with server.bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MillpondError) as caught:
            server.bind("127.0.0.1", port)
    assert caught.value.code == "SERVE-701"
    assert caught.value.primary == f"port {port} is in use"


def test_a_host_that_is_not_here():
    with pytest.raises(MillpondError, match="SERVE-701: cannot listen"):
        server.bind("192.0.2.1", 0)
    with pytest.raises(MillpondError, match="SERVE-701: cannot listen"):
        server.bind("127.0.0.1", 70_000)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_command_ends_gracefully(number, status):
    with start("serve", "--port", "0", "--token", "t") as process:
        line = process.stdout.readline()
        assert line.startswith("Millpond is ready: console http://127.0.0.1:")
        url = line.split()[4].rstrip("/")
        assert httpx.get(f"{url}/v1/queries").status_code == 401
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert process.returncode == status
    assert out == ""
    assert err.splitlines()[-1] == "pond closed"
    assert "Traceback" not in err


def test_the_command_refuses_a_port_in_use_before_anything_is_opened():
    with server.bind("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        with start("serve", "--port", port) as process:
            _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert err.startswith("SERVE-701: port")
    assert "pond closed" not in err


def test_the_shell_through_a_pipe():
    listener = server.bind("127.0.0.1", 0)
    port = str(listener.getsockname()[1])
    listener.close()
    with start("serve", "--port", port) as process:
        url = process.stdout.readline().split()[4]
        with start("shell", "--url", url, stdin=subprocess.PIPE) as shell:
            script = "SELECT carrier,\n  number FROM flights;\nSELECT x FROM nope; \\h\n\\q\n"
            out, err = shell.communicate(script, timeout=20)
        process.terminate()
        process.communicate(timeout=20)
    assert "9007199254740993" in out
    assert "3 rows as of 2026-03-01 12:00:00, final" in out
    assert err.startswith("CQL-201")
    assert shell.returncode == 1
