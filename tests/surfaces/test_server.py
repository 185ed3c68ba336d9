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
from typer.testing import CliRunner

from millpond.api import server
from millpond.api.client import connect
from millpond.cli.main import app
from millpond.errors import MillpondError

HERE = Path(__file__).parent

#: `millpond` with the tests' pond in place of the real one.
MILLPOND = """
import sys, types
sys.path.insert(0, sys.argv.pop(1))
store = sys.argv.pop(1)
def open_pond(ignored, **options):
    from conftest import FLIGHTS_CSV, SCHEMA, open_local
    pond = open_local(store)
    pond.execute(SCHEMA)
    pond.ingest_text("flights", FLIGHTS_CSV, "csv")
    close = pond.close
    pond.close = lambda: (close(), print("pond closed", file=sys.stderr))
    return pond
composition = types.ModuleType("millpond.service.open_pond")
composition.open_pond = open_pond
sys.modules["millpond.service.open_pond"] = composition
from millpond.cli.main import main
main()
"""


def start(store: Path, *arguments: str, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MILLPOND, str(HERE), str(store), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        **options,
    )


def test_serve_until_a_signal(pond):
    seen = []

    def visit(url: str) -> None:
        # The server's loop is this thread's: whoever calls it is another.
        def call() -> None:
            with connect(url) as remote:
                remote.register("SELECT carrier FROM flights", "q")
                seen.append(len(remote.query("q").invoke()))
            signal.raise_signal(signal.SIGTERM)

        threading.Thread(target=call).start()

    before = signal.getsignal(signal.SIGTERM)
    ended_by = server.serve(pond, port=0, on_ready=visit)
    assert (ended_by, seen) == (signal.SIGTERM, [3])
    assert signal.getsignal(signal.SIGTERM) is before
    assert pond.ready


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


def test_the_command_serves_the_shell_and_ends_gracefully(tmp_path):
    with start(tmp_path / "s", "serve", "--port", "0", "--token", "t") as process:
        line = process.stdout.readline()
        assert line.startswith("Millpond is ready: console http://127.0.0.1:")
        url = line.split()[4].rstrip("/")
        assert httpx.get(f"{url}/v1/queries").status_code == 401
        script = "SELECT carrier,\n  number FROM flights;\nSELECT x FROM nope;\n\\h\n\\q\n"
        shell = CliRunner().invoke(app, ["shell", "--url", url, "--token", "t"], input=script)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    assert "9007199254740993" in shell.stdout
    assert "3 rows as of 2026-03-01 11:45:00, not final" in shell.stdout
    assert shell.stderr.startswith("CQL-201")
    assert shell.exit_code == 1
    assert process.returncode == 0
    assert out == ""
    assert err.splitlines()[-1] == "pond closed"
    assert "Traceback" not in err
