"""A store whose directory is removed or moved while a server has it open."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.faults.local_server import serve_local

#: Calls that write, of each kind: method, path, media type, body.
WRITES = [
    ("POST", "/v1/streams/s/tuples", "application/x-ndjson", '{"n": 2}'),
    *(
        ("POST", "/v1/statements", "application/json", f'{{"text": "{text}"}}')
        for text in (
            "INSERT INTO s VALUES (2)",
            "INSERT INTO r VALUES (2)",
            "UPDATE r SET n = 3",
            "DELETE FROM r",
            "CREATE STREAM made (n BIGINT)",
            "CREATE RELATION made (n BIGINT)",
            "CREATE QUERY made AS SELECT n FROM s",
            "ALTER QUERY q SET (weight = 2)",
            "HEARTBEAT e AT TIMESTAMP '2030-01-01 00:00:00'",
            "DROP QUERY q",
            "DROP STREAM e",
        )
    ),
]


def remove(store: Path) -> None:
    shutil.rmtree(store)


def move(store: Path) -> None:
    store.rename(store.with_name("elsewhere"))


@pytest.mark.parametrize("take_away", [remove, move])
def test_writes_are_refused_and_the_server_is_not_ready(
    tmp_path: Path, take_away: Callable[[Path], None]
) -> None:
    store = tmp_path / "store"
    with serve_local(store) as server:
        with httpx.Client(base_url=server.url, timeout=60) as http:
            live(http, store, take_away)
        assert server.process.poll() is None


def live(http: httpx.Client, store: Path, take_away: Callable[[Path], None]) -> None:
    text = (
        "CREATE STREAM s (n BIGINT); CREATE RELATION r (n BIGINT); INSERT INTO r VALUES (1);"
        "CREATE STREAM e (ts TIMESTAMP) TIMESTAMP BY ts; CREATE QUERY q AS SELECT n FROM s"
    )
    assert http.post("/v1/statements", json={"text": text}).status_code == 200
    assert http.get("/readyz").status_code == 200
    take_away(store)
    for method, path, media, body in WRITES:
        answer = http.request(method, path, content=body, headers={"Content-Type": media})
        assert answer.status_code in (500, 507), (body, answer.text)
        error = answer.json()["error"]
        assert error["code"] in ("STORE-602", "STORE-603"), (body, answer.text)
        assert error["hint"], body
        readiness = http.get("/readyz")
        assert readiness.status_code == 503
        assert "STORE-60" in readiness.json()["reason"]
    assert http.get("/healthz").status_code == 200
    problems = http.get("/v1/status").json()["problems"]
    assert problems[0]["code"] in ("STORE-602", "STORE-603")
    assert not store.exists()
