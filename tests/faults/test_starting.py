"""What keeps a server from starting is said in one text, and exit status 1."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.local_server import serve_local

from millpond.api import listening
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

#: Long after any test runs, for the fixture's store is made by the real clock.
NOON = 7_952_342_400_000_000


def serve(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`millpond serve`, which is expected to end at once."""
    env = {**os.environ, **environment}
    env = {name: value for name, value in env.items() if value}
    return subprocess.run(
        [sys.executable, "-m", "millpond.cli.main", "serve", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=env,
    )


LOGGED = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z (INFO|WARNING) millpond")


def said(ended: subprocess.CompletedProcess[str]) -> str:
    """Its complaint, after the lines of the log about its start."""
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    lines = ended.stderr.splitlines()
    return "\n".join(line for line in lines if not LOGGED.match(line))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_local(tmp_path / "store") as pond:
        pond.execute("CREATE STREAM s (n BIGINT); INSERT INTO s VALUES (1)")
    return tmp_path / "store"


@pytest.fixture
def holder(store: Path) -> Iterator[subprocess.Popen[str]]:
    """Another server, over the same store."""
    with serve_local(store) as server:
        yield server.process


def test_a_store_in_use(store, holder):
    text = said(serve("--store", store, "--port", "0"))
    assert text.startswith(f'STORE-601: the store "{store}" is in use by process {holder.pid}')
    assert "Hint: " in text
    assert holder.poll() is None


def test_a_store_is_free_once_its_process_is_killed(store, holder):
    holder.kill()
    holder.wait()
    with open_local(store) as pond:
        assert pond.ask("SELECT n FROM s").rows() == [(1,)]


def test_a_port_in_use(store):
    with listening.bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        text = said(serve("--store", store, "--port", str(port)))
    assert text.startswith(f"SERVE-701: port {port} is in use")
    assert "--port" in text


@pytest.mark.parametrize("home", ["", pytest.param("/nowhere/java", marks=pytest.mark.slow)])
def test_no_java(store, home):
    text = said(serve("--store", store, "--port", "0", PATH="/nowhere", JAVA_HOME=home))
    assert text.startswith("SERVE-702: Java is missing or too old")
    assert (home or "no java on PATH") in text
    assert "apt-get install -y openjdk-17-jre-headless" in text
    with open_local(store) as pond:
        assert pond.ask("SELECT n FROM s").rows() == [(1,)]


def test_a_java_that_is_too_old(store, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    text = said(serve("--store", store, "--port", "0", JAVA_HOME=str(tmp_path)))
    assert text.startswith("SERVE-702")
    assert "is Java 11" in text


@pytest.mark.slow
def test_a_java_that_does_not_run(store, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 3\n")
    java.chmod(0o755)
    text = said(serve("--store", store, "--port", "0", JAVA_HOME=str(tmp_path)))
    assert text.startswith("SERVE-702")


def test_a_directory_of_something_else(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"")
    text = said(serve("--store", tmp_path, "--port", "0"))
    assert text.startswith(f'STORE-604: the directory "{tmp_path}" is not a store')
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_database_that_is_gone(store):
    for file in store.glob("pond.db*"):
        file.unlink()
    text = said(serve("--store", store, "--port", "0"))
    assert text.startswith("STORE-602: the store's database")
    assert str(store / "pond.db") in text
    assert "millpond repair" in text


def test_a_clock_that_went_back_is_said(store):
    clock = ManualClock(NOON)
    with open_local(store, clock) as pond:
        pond.execute("INSERT INTO s VALUES (2)")
        pond.wait_until_matched()
        assert pond.status()["problems"] == []
    with open_local(store, ManualClock(NOON - 3_600_000_000)) as pond:
        (problem,) = pond.status()["problems"]
        assert (problem["code"], "3,600 s" in problem["message"]) == ("STORE-605", True)
        pond.execute("INSERT INTO s VALUES (3)")
        pond.wait_until_matched()
        assert pond.ask("SELECT n FROM s").rows() == [(1,), (2,), (3,)]
    with open_local(store, ManualClock(NOON + 1)) as pond:
        assert pond.status()["problems"] == []
        assert pond.ask("SELECT n FROM s").rows() == [(1,), (2,), (3,)]
