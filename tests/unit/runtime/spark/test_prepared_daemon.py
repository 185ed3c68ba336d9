"""A daemon of workers that waits for Spark's, which hands over to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.runtime.spark import prepared_daemon
from millpond.runtime.spark.prepared_daemon import prepare_daemon

#: A daemon in which nothing is slow: it says whose process it is, and what it was given.
DAEMON = """
import os, sys
from millpond.runtime.spark.prepared_daemon import hand_over, take_over
if not hand_over():
    take_over()
    print(os.getpid(), sys.argv[1:], os.environ["GIVEN"], os.getcwd(), flush=True)
    sys.stdin.read()
    print("ends", file=sys.stderr, flush=True)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "a_daemon.py").write_text(DAEMON)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(prepared_daemon, "_prepared", [])
    yield "a_daemon"
    for process in prepared_daemon._prepared:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)


def ask(module: str, environment: dict[str, str], folder: Path) -> subprocess.Popen[str]:
    """Start a daemon as Spark does."""
    return subprocess.Popen(
        [sys.executable, "-m", module, "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **environment, "GIVEN": "by Spark"},
    )


def test_sparks_daemon_hands_over_once(module: str, tmp_path: Path) -> None:
    place = prepare_daemon(module, {"GIVEN": "before"})
    (prepared,) = prepared_daemon._prepared
    said = f"['pyspark.worker'] by Spark {tmp_path}\n"
    with ask(module, place, tmp_path) as first:
        assert first.stdout is not None
        assert first.stderr is not None
        assert first.stdin is not None
        assert first.stdout.readline() == f"{prepared.pid} {said}"
        assert not Path(next(iter(place.values()))).parent.exists()
        with ask(module, place, tmp_path) as second:  # as Spark does after the first has ended
            assert second.communicate(timeout=30)[0] == f"{second.pid} {said}"
        assert first.poll() is None  # for Spark it is the daemon
        first.stdin.close()
        assert first.stderr.read() == "ends\n"
        assert first.wait(timeout=30) == 0
        assert prepared.wait(timeout=30) == 0


def test_it_ends_with_the_process_that_prepared_it(module: str) -> None:
    place = prepare_daemon(module, {})
    (prepared,) = prepared_daemon._prepared
    assert prepared.stdin is not None
    prepared.stdin.close()
    assert prepared.wait(timeout=30) == 0
    assert not Path(next(iter(place.values()))).parent.exists()


def test_one_that_dies_is_not_waited_for(module: str, tmp_path: Path) -> None:
    place = prepare_daemon(module, {})
    (prepared,) = prepared_daemon._prepared
    prepared.kill()
    prepared.wait(timeout=30)
    with ask(module, place, tmp_path) as daemon:
        out, _ = daemon.communicate(timeout=30)
    assert out.startswith(f"{daemon.pid} ")
    shutil.rmtree(Path(next(iter(place.values()))).parent)
