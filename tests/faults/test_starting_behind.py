"""A server answers at once over what is kept; Spark starts behind it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.faults.local_server import end
from tests.waiting import wait_until

from millpond.testing.local_runtime import open_local

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_local(tmp_path / "store") as pond:
        pond.execute("CREATE STREAM s (v BIGINT); CREATE QUERY total AS SELECT sum(v) AS v FROM s")
        pond.ingest("s", [{"v": 1}, {"v": 2}])
        pond.catch_up()
    return tmp_path / "store"


@contextmanager
def serve(store: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that answers, and may not be ready yet; its log is beside the store."""
    log = store.parent / "log"
    command = [sys.executable, "-m", "millpond.cli.main", "serve", "--store", str(store)]
    with (
        log.open("w") as file,
        subprocess.Popen(
            [*command, "--port", "0", *options], stdout=subprocess.PIPE, stderr=file, text=True
        ) as process,
    ):
        try:
            wait_until(lambda: "answers from what is kept" in log.read_text(), 120)
            (line,) = [x for x in log.read_text().splitlines() if "answers from what" in x]
            yield process, line.partition("http://")[2].split()[0]
        finally:
            end(process)


def test_kept_data_is_answered_from_and_pushes_are_taken_before_spark_runs(store: Path) -> None:
    with serve(store) as (process, address), httpx.Client(base_url=f"http://{address}") as http:
        readiness = http.get("/readyz")
        assert readiness.status_code == 503
        assert readiness.json()["reason"] == "POND-419: Spark is starting"
        assert http.get("/v1/queries/total/result").json()["rows"] == [[3]]
        pushed = http.post(
            "/v1/streams/s/tuples",
            content='{"v": 4}',
            headers={"content-type": "application/x-ndjson"},
        )
        assert pushed.json()["accepted"] == 1
        registered = http.post("/v1/queries", json={"name": "n", "cql": "SELECT count(*) FROM s"})
        assert registered.status_code == 201
        assert http.get("/v1/queries/n/result").json()["rows"] == [[2]]
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Millpond is ready: ")
        assert http.get("/readyz").status_code == 200
        wait_until(lambda: http.get("/v1/queries/n/result").json()["rows"] == [[3]], 120)
        assert http.get("/v1/queries/total/result").json()["rows"] == [[7]]


def test_a_server_that_ends_before_spark_runs_ends_at_once_and_leaves_nothing(store: Path) -> None:
    with serve(store) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "Traceback" not in (store.parent / "log").read_text()
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if _has(pid, os.fsencode(store))]
    with open_local(store) as pond:
        assert pond.query("total").invoke().rows() == [(3,)]


def test_a_spark_that_cannot_be_started_ends_the_server_with_the_reason(store: Path) -> None:
    with serve(store, "--master", "spark-nowhere://x") as (process, _):
        assert process.wait(120) == 1
        assert process.stdout is not None
        assert process.stdout.read() == ""
    last = (store.parent / "log").read_text().strip().splitlines()
    assert any("POND-415: Spark could not be started" in line for line in last[-4:]), last[-4:]


def _has(pid: Path, word: bytes) -> bool:
    try:
        return word in (pid / "cmdline").read_bytes()
    except OSError:
        return False
