"""A real server on a loopback port: its line, its end, its port."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import socket
import stat
import subprocess
import sys
import termios
import threading
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from millpond.api import listening, server, tokens
from millpond.api.access import Access
from millpond.api.client import connect
from millpond.cli.main import app
from millpond.errors import MillpondError

ABOVE = Path(__file__).parents[1]

#: `millpond` with the tests' pond in place of the real one.
MILLPOND = """
import sys, types
sys.path.insert(0, sys.argv.pop(1))
store = sys.argv.pop(1)
def open_pond(ignored, **options):
    from flights import FLIGHTS_CSV, SCHEMA
    from millpond.testing.local_runtime import open_local
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
        [sys.executable, "-c", MILLPOND, str(ABOVE), str(store), *arguments],
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


def test_a_server_ends_when_its_pond_cannot_work_again(pond):
    def visit(url: str) -> None:
        pond._components.runtime.failure = MillpondError("POND-415", "Spark has ended", hint="?")

    with pytest.raises(MillpondError, match="POND-415"):
        server.serve(pond, port=0, on_ready=visit)


def test_the_command_ends_with_the_reason(tmp_path):
    broken = MILLPOND.replace(
        "    return pond\n",
        "    from millpond.errors import MillpondError\n"
        "    pond._components.runtime.failure = MillpondError('POND-415', 'Spark has ended',"
        " hint='Start it again.')\n"
        "    return pond\n",
    )
    assert broken != MILLPOND
    done = subprocess.run(
        [sys.executable, "-c", broken, str(ABOVE), str(tmp_path / "store"), "serve", "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "is ready" not in done.stdout
    assert "pond closed\nPOND-415: Spark has ended\nHint: Start it again.\n" in done.stderr


def test_a_port_in_use():
    with listening.bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MillpondError) as caught:
            listening.bind("127.0.0.1", port)
    assert caught.value.code == "SERVE-701"
    assert caught.value.primary == f"port {port} is in use"


def test_a_host_that_is_not_here():
    with pytest.raises(MillpondError, match="SERVE-701: cannot listen"):
        listening.bind("192.0.2.1", 0)
    with pytest.raises(MillpondError, match="SERVE-701: cannot listen"):
        listening.bind("127.0.0.1", 70_000)


def test_connections_send_without_delay():
    """Else a small answer on a connection that is kept takes 40 ms, until the client says more."""
    with (
        listening.bind("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_other_machines_are_not_served_without_a_token(pond):
    with pytest.raises(MillpondError) as caught:
        server.serve(pond, "0.0.0.0", 0)
    assert caught.value.code == "SERVE-712"
    for access, insecure in ((Access("t"), False), (None, True)):
        answers = []

        def visit(url, answers=answers):
            def call():
                try:
                    answers.append(httpx.get(f"{url}/healthz", timeout=60).json())
                finally:  # or the server would never end
                    signal.raise_signal(signal.SIGTERM)

            threading.Thread(target=call).start()

        server.serve(pond, "0.0.0.0", 0, access, insecure=insecure, on_ready=visit)
        assert answers == [{"status": "alive"}]


def test_the_command_refuses_other_machines_before_it_starts(tmp_path):
    refused = CliRunner().invoke(app, ["serve", "--host", "0.0.0.0", "--port", "0"])
    assert refused.exit_code == 1
    assert refused.stderr.startswith("SERVE-712: whoever reaches 0.0.0.0 could read and write")
    assert "--token auto" in refused.stderr


def test_the_token_that_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(MillpondError, match="SERVE-712"):
        tokens.read_token()
    token, path = tokens.make_token(), tmp_path / "millpond" / "token"
    assert len(token) >= 32
    assert tokens.make_token() == tokens.read_token() == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["token"]
    path.chmod(0o640)
    with pytest.raises(MillpondError, match="SERVE-712") as caught:
        tokens.make_token()
    assert caught.value.detail == "Others than its owner can read or write it."
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MillpondError, match="SERVE-712"):
        tokens.make_token()


def test_serve_and_shell_share_the_token_that_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with start(tmp_path / "s", "serve", "--port", "0", "--token", "auto") as process:
        url = process.stdout.readline().split()[4].rstrip("/")
        assert httpx.get(f"{url}/v1/queries").status_code == 401
        arguments = ["shell", "--url", url, "--token", "auto"]
        shell = CliRunner().invoke(app, arguments, input="SELECT count(*) AS n FROM flights")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert shell.exit_code == 0, shell.stderr
    assert "1 row as of" in shell.stdout
    assert str(tmp_path / "millpond" / "token") in err
    assert tokens.read_token() not in err


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


def test_a_hang_up_ends_no_server_without_a_terminal(tmp_path):
    """As under systemd: SIGHUP asks a server to read its files anew."""
    with start(tmp_path / "s", "serve", "--port", "0", start_new_session=True) as process:
        url = process.stdout.readline().split()[4].rstrip("/")
        for _ in range(3):
            process.send_signal(signal.SIGHUP)
            assert httpx.get(f"{url}/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "SIGHUP: the server goes on" in err
    assert err.splitlines()[-1] == "pond closed"


@pytest.mark.parametrize("is_ignored", [False, True], ids=["plain", "nohup"])
def test_a_server_ends_in_order_with_its_terminal(tmp_path, is_ignored):
    terminal, inner = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(inner, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)

    with start(tmp_path / "s", "serve", "--port", "0", preexec_fn=take_terminal) as process:
        os.close(inner)
        url = process.stdout.readline().split()[4].rstrip("/")
        os.close(terminal)
        if is_ignored:
            assert httpx.get(f"{url}/healthz").status_code == 200
            process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert err.splitlines()[-1] == "pond closed"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--backup-root", "nowhere"], 'the backup root "nowhere" is not a directory'),
        (["--source-root", "nowhere"], 'the source root "nowhere" is not a directory'),
        (["--tokens", "nowhere"], "nowhere"),
        (["--tls-cert", "nowhere"], "a certificate has a key"),
        (["--path-prefix", "pond"], '"pond" is not a path prefix'),
        (["--port", "70000"], 'cannot listen on "127.0.0.1" port 70000'),
        (["--host", "0.0.0.0", "--port", "0"], "whoever reaches 0.0.0.0 could read and write"),
        (["--shared", "s3://bucket/pond", "--port", "0"], "a shared store needs --store"),
    ],
)
def test_what_is_refused_is_refused_before_anything_is_compiled(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    """Compiling takes a minute or two in a new installation."""
    code = """
import sys
sys.modules["millpond.model.compiled"] = None  # importing it fails
from millpond.cli.main import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode != 0
    assert said in done.stderr
    assert "millpond.model.compiled" not in done.stderr


def test_the_threads_of_a_server_take_turns_often(tmp_path: Path) -> None:
    """Before the pond is open: kept data is answered from while Spark starts."""
    code = """
import sys, types

def open_pond(*arguments, **options):
    print(sys.getswitchinterval())
    raise SystemExit(3)

sys.modules["millpond.service.open_pond"] = module = types.ModuleType("open_pond")
module.open_pond = open_pond
from millpond.cli.main import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", "--port", "0", "--store", str(tmp_path / "s")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 3
    assert float(done.stdout) <= 0.001
