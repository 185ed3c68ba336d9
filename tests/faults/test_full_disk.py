"""A full disk: pushes are refused, answers go on, and once there is room everything goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.faults.local_server import start, wait_until_ready
from tests.waiting import wait_until

sys.path.insert(0, str(Path(__file__).parent))

from small_disk import SmallDisk, small_disk

from millpond.state.disk_floor import DISK_FLOOR

MILLPOND = (sys.executable, "-m", "millpond.cli.main")
LARGE = 200_000
PUSHES = 125


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    monkeypatch.setenv(DISK_FLOOR, "0")  # whatever else writes to the disk does not ask for it
    with small_disk(tmp_path / "disk", 8) as disk:
        yield disk


class Server:
    """A served pond on the small disk."""

    def __init__(self, store: Path) -> None:
        self.process = start(store)
        self.http = httpx.Client(base_url=wait_until_ready(self.process).url, timeout=60)

    def push(self, stream: str, number: int, size: int = 10) -> httpx.Response:
        row = f'{{"n": {number}, "pad": "{"x" * size}"}}'
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": f"k{number}"}
        return self.http.post(f"/v1/streams/{stream}/tuples", content=row, headers=headers)

    def ask(self, text: str) -> Any:
        answer = self.http.post("/v1/statements", json={"text": text})
        assert answer.status_code == 200, answer.text
        return answer.json()["results"][-1].get("rows")

    def invoke(self, name: str) -> Any:
        answer = self.http.get(f"/v1/queries/{name}/result")
        assert answer.status_code == 200, answer.text
        return answer.json()["rows"]

    def kill(self) -> None:
        self.http.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_pushes_are_refused_until_there_is_room(disk):
    server = Server(disk.path / "store")
    try:
        for name in ("s", "t"):
            server.ask(f"CREATE STREAM {name} (n BIGINT, pad STRING)")
        server.ask("CREATE QUERY total AS SELECT count(*), sum(n) FROM s WHERE n > 0")
        for number in (1, 2, 3):
            assert server.push("s", number).status_code == 200
        assert server.invoke("total") == [[3, 6]]

        disk.fill(leave=100_000)
        refused = server.push("s", 4, size=LARGE)
        assert refused.status_code == 507
        error = refused.json()["error"]
        assert error["code"] == "STORE-603"
        assert "No space left on device" in error["detail"]
        assert "Free disk space" in error["hint"]
        assert server.invoke("total") == [[3, 6]]

        disk.fill()
        for number in (5, 6):
            assert server.push("t", number, size=LARGE).status_code == 507
            assert server.push("s", number, size=LARGE).status_code == 507
            assert server.invoke("total")[0][0] >= 3
        assert server.http.get("/healthz").status_code == 200
        assert server.http.get("/v1/status").status_code == 200

        disk.empty()
        for number in (4, 5, 6):
            assert server.push("s", number, size=LARGE).status_code == 200
        assert server.push("t", 5, size=LARGE).status_code == 200
        assert server.ask("SELECT n FROM s ORDER BY n") == [[n] for n in range(1, 7)]
        assert server.invoke("total") == [[6, 21]]
    finally:
        server.kill()
    again = Server(disk.path / "store")
    try:
        assert again.invoke("total") == [[6, 21]]
        assert again.push("s", 4, size=LARGE).json()["duplicate"]
        assert again.http.get("/v1/status").json()["problems"] == []
    finally:
        again.kill()


def test_a_disk_that_fills_while_rows_come(disk):
    """Whatever write it is that finds no room, what was acknowledged is there once."""
    server = Server(disk.path / "store")
    try:
        server.ask("CREATE STREAM s (n BIGINT, pad STRING)")
        server.ask("CREATE QUERY numbers AS SELECT n FROM s WHERE n % 2 = 0")
        acknowledged = []
        for number in range(PUSHES):
            if number % 25 == 15:
                disk.fill(leave=(number // 25) * 30_000)
            if number % 25 == 24:
                disk.empty()
            answer = server.push("s", number, size=3_000)
            if answer.status_code == 200:
                acknowledged.append(number)
            else:
                assert answer.status_code == 507, answer.text
        assert len(acknowledged) < PUSHES
        for number in range(PUSHES):  # all of them again: as retries, or for the first time
            answer = server.push("s", number, size=3_000)
            assert answer.status_code == 200, answer.text
            assert answer.json()["duplicate"] or number not in acknowledged
        assert server.ask("SELECT n FROM s ORDER BY n") == [[n] for n in range(PUSHES)]
        assert sorted(server.invoke("numbers")) == [[n] for n in range(0, PUSHES, 2)]
    finally:
        server.kill()


def test_rows_are_taken_only_above_the_floor(disk, monkeypatch):
    """What stays free is for the journal: statements that free room are taken."""
    monkeypatch.setenv(DISK_FLOOR, "3m")
    server = Server(disk.path / "store")
    try:
        server.ask("CREATE STREAM s (n BIGINT, pad STRING); CREATE STREAM t (n BIGINT, pad STRING)")
        server.ask("CREATE QUERY total AS SELECT count(*) FROM s")
        taken = 0
        while (answer := server.push("s", taken, size=LARGE)).status_code == 200:
            taken += 1
            assert taken < 60
        assert answer.status_code == 507
        error = answer.json()["error"]
        assert error["code"] == "STORE-603"
        assert "stay free" in error["detail"]
        assert disk.free() > 2 << 20
        problem = server.http.get("/v1/status").json()["problems"][0]
        assert "the disk of the store" in problem["message"]
        assert server.http.get("/readyz").status_code == 200
        assert server.invoke("total")[0][0] <= taken
        metrics = server.http.get("/metrics").text
        assert "millpond_disk_floor_bytes 3.145728e+06" in metrics

        server.ask("CREATE QUERY more AS SELECT n FROM t; DROP STREAM s CASCADE")
        # The files go as soon as nobody reads them any more, and maintenance may.
        wait_until(lambda: server.push("t", 1, size=LARGE).status_code == 200)
    finally:
        server.kill()


def test_a_new_store_on_a_full_disk(disk):
    disk.fill()
    ended = subprocess.run(
        [*MILLPOND, "serve", "--port", "0", "--store", str(disk.path / "store")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1
    assert "STORE-603" in ended.stderr
    assert "Traceback" not in ended.stderr
