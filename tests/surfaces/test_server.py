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


def url_in(line: str) -> str:
    assert line.startswith("Millpond is ready: console http://127.0.0.1:")
    return line.split()[4].rstrip("/")


def test_the_command_serves_the_shell_and_ends_gracefully():
    with start("serve", "--port", "0", "--token", "t") as process:
        url = url_in(process.stdout.readline())
        assert httpx.get(f"{url}/v1/queries").status_code == 401
        with start("shell", "--url", url, "--token", "t", stdin=subprocess.PIPE) as shell:
            script = "SELECT carrier,\n  number FROM flights;\nSELECT x FROM nope;\n\\h\n\\q\n"
            shown, complaints = shell.communicate(script, timeout=20)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    assert "9007199254740993" in shown
    assert "3 rows as of 2026-03-01 12:00:00, final" in shown
    assert complaints.startswith("CQL-201")
    assert shell.returncode == 1
    assert process.returncode == 0
    assert out == ""
    assert err.splitlines()[-1] == "pond closed"
    assert "Traceback" not in err


def test_an_interrupt_closes_the_pond():
    with start("serve", "--port", "0") as process:
        url_in(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "pond closed"
    assert "Traceback" not in err
