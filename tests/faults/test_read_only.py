"""A store that cannot be written any more, or not from the start."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.faults.local_server import end, start, wait_until_ready

NDJSON = {"Content-Type": "application/x-ndjson"}
#: Permissions do not count for root; without these capabilities they do.
_ORDINARY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def start_ordinary(store: Path) -> subprocess.Popen[str]:
    """Start a server for which the permissions of files count."""
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("permissions do not count for root")
    return start(store, _ORDINARY if os.getuid() == 0 else (), stderr=subprocess.PIPE)


def allow(store: Path, writing: bool) -> None:
    """Let the store's directories be written, or not."""
    for folder in [store, *(entry for entry in store.iterdir() if entry.is_dir())]:
        folder.chmod(0o755 if writing else 0o555)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "store"
    allow(tmp_path / "store", True)


def test_a_store_that_turns_read_only_under_a_server(store: Path) -> None:
    with start_ordinary(store) as process:
        try:
            with httpx.Client(base_url=wait_until_ready(process).url, timeout=30) as http:
                live(http, store)
        finally:
            end(process)


def live(http: httpx.Client, store: Path) -> None:
    def push(n: int) -> httpx.Response:
        return http.post("/v1/streams/s/tuples", content=f'{{"n": {n}}}', headers=NDJSON)

    def count() -> list[list[int]]:
        answer = http.post("/v1/statements", json={"text": "SELECT count(*), sum(n) FROM s"})
        assert answer.status_code == 200, answer.text
        rows: list[list[int]] = answer.json()["results"][0]["rows"]
        return rows

    http.post("/v1/statements", json={"text": "CREATE STREAM s (n BIGINT)"})
    assert push(1).status_code == 200
    assert http.get("/readyz").status_code == 200
    allow(store, False)
    refused = push(2)
    assert refused.status_code == 507, refused.text
    assert refused.json()["error"]["code"] == "STORE-603"
    away = http.get("/readyz")
    assert (away.status_code, away.json()["status"]) == (503, "not ready")
    assert away.json()["reason"] == "STORE-603: the store cannot be written"
    assert http.get("/v1/status").json()["problems"][0]["code"] == "STORE-603"
    assert count() == [[1, 1]]
    allow(store, True)
    assert http.get("/readyz").status_code == 200
    assert push(4).status_code == 200
    assert count() == [[2, 5]]


def test_a_store_that_is_read_only_from_the_start(store: Path) -> None:
    with start_ordinary(store) as process:
        wait_until_ready(process)
        end(process)
    allow(store, False)
    with start_ordinary(store) as process:
        assert process.stderr is not None
        assert process.wait(60) != 0
        said = process.stderr.read()
    assert "STORE-603" in said
    assert "cannot be written" in said
